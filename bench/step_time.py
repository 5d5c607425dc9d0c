#!/usr/bin/env python3
"""Time per step: Muster against the loop that anybody would write with libtorch, in C++ and in Python.

All contestants of a row live at the same time and take turns in short slices, so that a noisy machine
disturbs all of them alike; the figure is the median of all steps. The speed of a shared machine also drifts, so
the comparison is made within each round (the ratio of two medians of one slice), and the median of these is shown.
Only one of them computes at a time.

With T threads there are two ways to use them: T lanes of one thread each, or one lane that shares each operation
among T threads ("1 x T"; threads_per_lane). Both are timed, against the same runs of the others.

    bench/step_time.py [--bin build/release/bin] [--python /path/with/torch/bin/python]
                       [--models lenet,mlp,gpt] [--threads 1,2] [--rounds 15] [--loaded] [-o FILE.json]

--loaded runs as many busy loops beside it as there are cores, to see how each contestant degrades.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
SOURCE = os.path.dirname(HERE)

# Batch and the job that is the same work as bare_loop's.
MODELS = {
    "lenet": dict(batch=128, slice=6, job="""
        model: { zoo: lenet }
        optimizer: { kind: sgd, lr: 0.01, momentum: 0.9 }
        """),
    "mlp": dict(batch=128, slice=6, job="""
        model: { zoo: mlp }
        optimizer: { kind: sgd, lr: 0.01, momentum: 0.9 }
        """),
    "gpt": dict(batch=12, slice=12, job="""
        model: { zoo: gpt, args: { layers: 4, heads: 4, width: 128, dropout: 0.0, bias: false } }
        optimizer: { kind: adamw, lr: 0.001, beta2: 0.99, weight_decay: 0.1, clip: { norm: 1.0 } }
        """),
}
IMAGES = """
        data: { train: { format: idx, images: %s/examples/data/mnist/train-images-idx3-ubyte.gz,
                         labels: %s/examples/data/mnist/train-labels-idx1-ubyte.gz } }
"""
TEXT = """
        data: { train: { format: text, path: %s/examples/data/tinyshakespeare/input.txt, context: 64 } }
"""


class Contestant:
    def __init__(self, name, command, env=None):
        self.name = name
        self.rounds = []
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                        env={**os.environ, **(env or {})})

    def run(self, steps, keep=True):
        self.process.stdin.write(f"{steps}\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            sys.exit(f"step_time: {self.name} ended early")
        if keep:
            self.rounds.append(json.loads(line))

    def close(self):
        self.process.stdin.close()
        self.process.wait()

    def median(self):
        return statistics.median(time for times in self.rounds for time in times)

    def to(self, other):
        return statistics.median(statistics.median(ours) / statistics.median(theirs)
                                 for ours, theirs in zip(self.rounds, other.rounds))


def job_file(model, lanes, folder):
    spec = MODELS[model]
    data = TEXT % SOURCE if model == "gpt" else IMAGES % (SOURCE, SOURCE)
    text = f"muster: 1\nname: bench\nbatch: {spec['batch']}\nlanes: {lanes}\nsteps: 100000000\n"
    text += "\n".join(line.strip() for line in (spec["job"]).strip().splitlines()) + "\n"
    text += " ".join(data.split()) + "\n"
    path = os.path.join(folder, f"{model}-{lanes}.yaml")
    with open(path, "w") as f:
        f.write(text)
    return path


def busy_loops(count):
    return [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]


def compare(model, threads, args, folder):
    """The rows of one model and number of threads: one for each way of using them."""
    batch = str(MODELS[model]["batch"])

    def muster(name, lanes, per_lane):
        words = [os.path.join(args.bin, "muster_loop"), job_file(model, lanes, folder),
                 "-s", f"threads={threads}", "-s", f"threads_per_lane={per_lane}"]
        return (Contestant(name, words), Contestant(name + ", native", words + ["-s", "sync.reduction=native"]))

    ways = [muster(f"{args.lanes or threads} x 1", args.lanes or threads, 1)]
    if threads > 1 and not args.lanes:
        ways.append(muster(f"1 x {threads}", 1, threads))
    libtorch = Contestant("libtorch", [os.path.join(args.bin, "bare_loop"), model, batch, str(threads)],
                          {"OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads)})
    python = args.python and Contestant("python", [args.python, os.path.join(HERE, "bare_loop.py"), model, batch,
                                                   str(threads)])
    contestants = [c for way in ways for c in way] + [libtorch] + ([python] if python else [])
    for c in contestants:
        c.run(MODELS[model]["slice"], keep=False)
    for _ in range(args.rounds):
        for c in contestants:
            c.run(MODELS[model]["slice"])
    for c in contestants:
        c.close()
    return [dict(model=model, threads=threads, way=exact.name, loaded=args.loaded,
                 muster=exact.median(), native=native.median(), libtorch=libtorch.median(),
                 python=python.median() if python else None,
                 to_libtorch=exact.to(libtorch), to_python=exact.to(python) if python else None,
                 to_native=exact.to(native)) for exact, native in ways]


def put_out(rows, output, table):
    """What -o says: "json" instead of the table, or a file for it beside the table."""
    if output == "json":
        print(json.dumps(rows, indent=1))
        return
    table(rows)
    if output:
        with open(output, "w") as f:
            json.dump(rows, f, indent=1)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", default=os.path.join(SOURCE, "build/release/bin"))
    parser.add_argument("--python", default="", help="a Python that has torch; without it that column is left out")
    parser.add_argument("--models", default="lenet,mlp,gpt")
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--lanes", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--loaded", action="store_true")
    parser.add_argument("-o", "--output")
    args = parser.parse_args()

    rows = []
    load = busy_loops(os.cpu_count()) if args.loaded else []

    def number(value, scale, unit, digits):
        return f"{'-':>10}" if value is None else f"{value * scale:{10 - len(unit)}.{digits}f}{unit}"

    try:
        print(f"{'model':6} {'threads':>7} {'lanes':>5} {'muster':>10} {'native':>10} {'libtorch':>10} {'python':>10}"
              f" {'/libtorch':>10} {'/python':>10} {'/native':>10}")
        with tempfile.TemporaryDirectory() as folder:
            for model in args.models.split(","):
                for threads in map(int, args.threads.split(",")):
                    for row in compare(model, threads, args, folder):
                        rows.append(row)
                        print(f"{model:6} {threads:7} {row['way']:>5}",
                              *(number(row[k], 1e3, "ms", 2) for k in ("muster", "native", "libtorch", "python")),
                              *(number(row[k], 1, "", 3) for k in ("to_libtorch", "to_python", "to_native")),
                              flush=True)
    finally:
        for process in load:
            process.kill()
    if args.output:
        with open(args.output, "w") as f:
            json.dump(rows, f, indent=1)


if __name__ == "__main__":
    main()
