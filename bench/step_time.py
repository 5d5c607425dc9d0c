#!/usr/bin/env python3
"""Time per step: Muster against the loop that anybody would write with libtorch, in C++ and in Python.

All contestants of a row live at the same time and take turns in short slices, so that a noisy machine
disturbs all of them alike; the figure is the median of all steps, and the comparison a ratio of medians.
Only one of them computes at a time.

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

# Batch, lanes and the job that is the same work as bare_loop's. Lanes: as many as threads compared, since
# each lane is one pass over the gradients that the bare loop does not need.
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
        self.times = []
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                        env={**os.environ, **(env or {})})

    def run(self, steps, keep=True):
        self.process.stdin.write(f"{steps}\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            sys.exit(f"step_time: {self.name} ended early")
        if keep:
            self.times += json.loads(line)

    def close(self):
        self.process.stdin.close()
        self.process.wait()

    def median(self):
        return statistics.median(self.times)


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
    batch = str(MODELS[model]["batch"])
    lanes = args.lanes or threads
    job = job_file(model, lanes, folder)
    muster = [os.path.join(args.bin, "muster_loop"), job, "-s", f"threads={threads}"]
    contestants = [
        Contestant("muster", muster),
        Contestant("muster native", muster + ["-s", "sync.reduction=native"]),
        Contestant("libtorch", [os.path.join(args.bin, "bare_loop"), model, batch, str(threads)],
                   {"OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads)}),
    ]
    if args.python:
        contestants.append(Contestant("python", [args.python, os.path.join(HERE, "bare_loop.py"), model, batch,
                                                 str(threads)]))
    for c in contestants:
        c.run(MODELS[model]["slice"], keep=False)
    for _ in range(args.rounds):
        for c in contestants:
            c.run(MODELS[model]["slice"])
    for c in contestants:
        c.close()
    return {c.name: c.median() for c in contestants}


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
    try:
        print(f"{'model':6} {'threads':>7} {'muster':>10} {'native':>10} {'libtorch':>10} {'python':>10}"
              f" {'/libtorch':>10} {'/python':>10} {'/native':>10}")
        with tempfile.TemporaryDirectory() as folder:
            for model in args.models.split(","):
                for threads in map(int, args.threads.split(",")):
                    t = compare(model, threads, args, folder)
                    rows.append(dict(model=model, threads=threads, loaded=args.loaded, seconds=t))
                    python = t.get("python")
                    print(f"{model:6} {threads:7} {t['muster']*1e3:8.2f}ms {t['muster native']*1e3:8.2f}ms"
                          f" {t['libtorch']*1e3:8.2f}ms " +
                          (f"{python*1e3:8.2f}ms" if python else f"{'-':>10}") +
                          f" {t['muster']/t['libtorch']:10.3f} " +
                          (f"{t['muster']/python:10.3f}" if python else f"{'-':>10}") +
                          f" {t['muster']/t['muster native']:10.3f}", flush=True)
    finally:
        for process in load:
            process.kill()
    if args.output:
        with open(args.output, "w") as f:
            json.dump(rows, f, indent=1)


if __name__ == "__main__":
    main()
