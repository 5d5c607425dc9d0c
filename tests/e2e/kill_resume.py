#!/usr/bin/env python3
"""Kills a training run with SIGKILL at random moments, resumes it each time, and compares the end with an
undisturbed run: weights, test results, and every recorded step must be equal, bit for bit.

    kill_resume.py [--kills 25] [--seed 1] [--bin build/release/bin] [--job FILE] [-s KEY=VALUE]...

Every third kill waits until a checkpoint is being written (a .tmp-* directory is there) and strikes inside
it. Prints a line per kill: where the run was, and what was being written.
"""
import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time

SOURCE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
JOB = """
muster: 1
name: victim
model: { zoo: lenet }
data:
  train: { format: idx, images: %(d)s/mnist/train-images-idx3-ubyte.gz, labels: %(d)s/mnist/train-labels-idx1-ubyte.gz }
  test: { format: idx, images: %(d)s/mnist/t10k-images-idx3-ubyte.gz, labels: %(d)s/mnist/t10k-labels-idx1-ubyte.gz }
batch: 64
lanes: 4
steps: %(steps)d
optimizer: { kind: sgd, lr: 0.02, momentum: 0.9, schedule: { kind: cosine, warmup: 10 } }
checkpoint: { every: 4 steps, keep: 2 }
eval: { every: 40 steps }
track: { every: 1 steps }
"""


def start(args, command):
    return subprocess.Popen([os.path.join(args.bin, "muster"), *command, "--json"], stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, text=True)


def finish(process):
    out, err = process.communicate()
    if process.returncode != 0:
        sys.exit(f"kill_resume: the run failed ({process.returncode}): {err}")
    return json.loads(out.strip().splitlines()[-1])


def children(pid):
    with open(f"/proc/{pid}/task/{pid}/children") as f:
        return [int(p) for p in f.read().split()]


def worker_of(process):
    """The worker's pid, once it has become one (before exec it is a copy of the launcher)."""
    while process.poll() is None:
        try:
            for child in children(process.pid):
                with open(f"/proc/{child}/cmdline", "rb") as f:
                    if b"train" in f.read().split(b"\0")[1:2]:
                        return child
        except OSError:
            pass
        time.sleep(0.001)
    return None


def writing(run):
    """What is being written aside now, or was when the run was killed."""
    try:
        with os.scandir(os.path.join(run, "checkpoints")) as entries:
            return {(e.name, e.inode()) for e in entries if e.name.startswith(".tmp-")}
    except OSError:
        return set()


def kill_once(args, run, dice, number):
    """Starts or resumes the run, kills its worker at a random moment. True if it was still running."""
    left_over = writing(run)
    process = start(args, ["resume", run])
    worker = worker_of(process)
    if worker is None:
        return None, finish(process)
    delay = dice.uniform(0.05, args.longest)
    deadline = time.monotonic() + delay
    inside = number % 3 == 2
    while time.monotonic() < deadline and process.poll() is None:
        time.sleep(0.002)
    if inside:
        limit = time.monotonic() + 3
        while not writing(run) - left_over and time.monotonic() < limit and process.poll() is None:
            pass
    aside = writing(run) - left_over
    try:
        os.kill(worker, signal.SIGKILL)
    except ProcessLookupError:
        return None, finish(process)
    process.communicate()
    if process.returncode == 0:
        return None, "finished"
    steps = sorted(n for n in os.listdir(os.path.join(run, "checkpoints"))) if os.path.isdir(
        os.path.join(run, "checkpoints")) else []
    print(f"kill {number + 1}: after {delay:.2f} s, checkpoints {' '.join(steps) or 'none'}"
          f"{', inside a write' if aside else ''}", flush=True)
    return bool(aside), None


def records(run):
    with open(os.path.join(run, "metrics.jsonl")) as f:
        lines = [json.loads(line) for line in f]
    for line in lines:
        line.pop("seconds", None)
        line.pop("time", None)
    return lines


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=25)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--longest", type=float, default=1.5, help="seconds until a kill, at most")
    parser.add_argument("--bin", default=os.environ.get("MUSTER_BIN_DIR", os.path.join(SOURCE, "build/release/bin")))
    parser.add_argument("--job")
    parser.add_argument("-s", action="append", default=[], dest="sets")
    args = parser.parse_args()
    dice = random.Random(args.seed)
    with tempfile.TemporaryDirectory(prefix="muster-") as folder:
        job = args.job
        if not job:
            job = os.path.join(folder, "job.yaml")
            with open(job, "w") as f:
                f.write(JOB % {"d": os.path.join(SOURCE, "examples/data"), "steps": 60 + 24 * args.kills})
        sets = [word for s in args.sets for word in ("-s", s)]
        calm_dir, wild = os.path.join(folder, "calm"), os.path.join(folder, "wild")
        calm = finish(start(args, ["train", job, "--run-dir", calm_dir, *sets]))
        print(f"undisturbed: {calm['steps']} steps, weights {calm['weights_hash']}", flush=True)

        # The first start is a kill too: before anything is saved.
        first = start(args, ["train", job, "--run-dir", wild, *sets])
        worker = worker_of(first)
        time.sleep(0.3)
        os.kill(worker, signal.SIGKILL)
        first.communicate()
        kills, inside = 1, 0
        print("kill 1: at the start", flush=True)
        while kills < args.kills:
            hit, end = kill_once(args, wild, dice, kills)
            if end is not None:
                sys.exit("kill_resume: the run ended before all kills were done; give the job more steps")
            kills += 1
            inside += hit
        result = finish(start(args, ["resume", wild]))
        print(f"after {kills} kills, {inside} of them inside a checkpoint write: {result['steps']} steps, "
              f"weights {result['weights_hash']}")
        same = [key for key in ("weights_hash", "steps", "samples", "test", "best_step")
                if calm[key] != result[key]]
        if records(calm_dir) != records(wild):
            same.append("metrics.jsonl")
        if same:
            sys.exit(f"DIFFERENT: {', '.join(same)}")
        if args.kills >= 6 and inside == 0:
            sys.exit("kill_resume: no kill hit a checkpoint write, so that was not tested")
        print("EQUAL: weights, test results and every recorded step")


if __name__ == "__main__":
    main()
