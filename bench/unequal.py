#!/usr/bin/env python3
"""Four workers of which one is four times slower: how much of what they could do they do together.

    bench/unequal.py [--python PYTHON] [--bin build/release/bin] [--shares 0.4,0.4,0.4,0.1] [--lanes 26] [--batch 832]
                     [--settle 40] [--seconds 60] [--model lenet] [--only ours,ddp] [-o json|FILE.json]

Each worker has a share of a core (cpu_share.py says how, and what is fair about it); all shares together must leave the
machine some room, so that nothing but the shares limits them. First each kind of worker trains alone, with its share,
then all of them together; the figure is samples per second together, divided by the sum of the four alone. Only
settled time counts: the first seconds are left out, while lanes follow the speeds. 26 lanes can follow 4 : 4 : 4 : 1
exactly. With one thread in each worker; the launcher and its coordinator have no limit.

Beside it PyTorch's DistributedDataParallel, with the same shares, batch and model: all have equal parts of the batch, so
the slowest sets the pace. Its processes get their shares after the first step, for `import torch` on a tenth of a core
takes long.

Checked on the way: the losses of all runs of Muster are equal, step by step, whoever computed them; and each process
used as much of its share as the table says: one that is alone and used less was kept from it by other load, and the
figures say nothing then.
"""
import argparse
import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time

import cpu_share
import processes
from step_time import HERE, SOURCE, job_file

START = 120  # seconds until everything must be going
ONE_THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


def say(text):
    print(text, file=sys.stderr, flush=True)


class Muster:
    name = "Muster"

    def __init__(self, args, workers, folder):
        self.args, self.workers = args, workers
        self.run = os.path.join(tempfile.mkdtemp(dir=folder), "run")
        self.log = self.run + ".log"
        sets = [f"batch={args.batch}", "threads=1", "track.every=1 steps", "checkpoint.every=0", "track.tensorboard=false"]
        self.process = processes.start(
            [os.path.join(args.bin, "muster"), "train", job_file(args.model, args.lanes, folder), "--quiet", "--run-dir",
             self.run, "--workers", str(workers), *(word for s in sets for word in ("-s", s))], self.log)

    def launch_log(self):
        with contextlib.suppress(FileNotFoundError), open(os.path.join(self.run, "launch.log")) as f:
            return f.read().splitlines()
        return []

    def pids(self):
        """By worker, as soon as all are started; else nothing."""
        found = [re.search(r"worker (\d+) is started: process (\d+)", line) for line in self.launch_log()]
        pids = {int(m[1]): int(m[2]) for m in found if m}
        return [pids[i] for i in sorted(pids)] if len(pids) == self.workers else []

    def commits(self):
        """(time, samples so far) of every step."""
        return [(r["time"], r["samples"]) for r in self.records()]

    def records(self):
        with contextlib.suppress(FileNotFoundError), open(os.path.join(self.run, "metrics.jsonl")) as f:
            text = f.read()
            return [r for r in map(json.loads, text[:text.rfind("\n") + 1].splitlines()) if "time" in r]
        return []

    def more(self):
        """What else is worth telling, while it still runs."""
        done = subprocess.run([os.path.join(self.args.bin, "muster"), "status", self.run, "-o", "json"],
                              capture_output=True, text=True)
        status = json.loads(done.stdout) if done.returncode == 0 else {}
        keep = ("id", "state", "lanes", "lane_seconds")
        return dict(workers=[{k: w[k] for k in keep if k in w} for w in status.get("workers", [])],
                    moves=[line.split(" info ", 1)[-1].strip() for line in self.launch_log() if " roster " in line],
                    losses=[r["loss"] for r in self.records()])


class Ddp:
    name = "DDP"

    def __init__(self, args, workers, folder):
        self.batch, self.workers = args.batch, workers
        self.folder = tempfile.mkdtemp(dir=folder)
        self.log = os.path.join(self.folder, "torchrun.log")
        self.reader = processes.StepReader(self.folder)
        self.process = processes.start(
            [args.python, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(workers),
             os.path.join(HERE, "ddp_resume.py"), args.model, str(args.batch), "0", self.folder], self.log, ONE_THREAD)

    def pids(self):
        found = {s["rank"]: s["pid"] for s in self.reader.look()}
        return [found[i] for i in sorted(found)] if len(found) == self.workers else []

    def commits(self):
        return [(s["time"], s["step"] * self.batch) for s in self.reader.look() if s["rank"] == 0]

    def more(self):
        return {}


def rate(commits):
    """Samples per second between the first and the last of them."""
    if len(commits) < 3:
        sys.exit("unequal: too few steps were done in that time: give it more --seconds, or a smaller --batch")
    (begin, before), (end, after) = commits[0], commits[-1]
    return (after - before) / (end - begin)


def measure(kind, args, shares, settle, seconds, folder):
    """Trains with as many workers as there are shares, and ends them."""
    job = kind(args, len(shares), folder)
    limits = cpu_share.make(args.weight, args.limit)

    def fail(what):
        sys.exit(f"unequal: {kind.name} {what}: {processes.last_words(job.log)}")

    def wait(condition, what):
        end = time.time() + START
        while not condition():
            if job.process.poll() is not None or time.time() > end:
                fail(what)
            time.sleep(0.005)

    try:
        wait(job.pids, "does not start")
        pids = job.pids()
        for pid, share in zip(pids, shares):
            limits.limit(pid, share)
        limited = time.time()
        wait(lambda: job.commits() and job.commits()[-1][0] > limited, "does not get going")
        time.sleep(settle)
        begin, used = time.time(), [cpu_share.cpu_seconds(pid) for pid in pids]
        time.sleep(seconds)
        if job.process.poll() is not None:
            fail("ended early")
        end = time.time()
        used = [(cpu_share.cpu_seconds(pid) - before) / (end - begin) for pid, before in zip(pids, used)]
        result = dict(who=kind.name, shares=shares, limit=limits.name, used=used, **job.more(),
                      rate=rate([c for c in job.commits() if begin <= c[0] <= end]))
        say(f"  {kind.name}, shares {shares}: {result['rate']:.1f} samples/s, used {[round(u, 3) for u in used]}")
        return result
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(job.process.pid, signal.SIGKILL)
        processes.end_all()
        limits.close()


def contest(kind, args, shares, folder):
    alone = {}
    for share in sorted(set(shares), reverse=True):
        alone[share] = measure(kind, args, [share], args.settle / 4, args.seconds / 2, folder)
    together = measure(kind, args, shares, args.settle, args.seconds, folder)
    runs = [*alone.values(), together]
    for other in runs[1:]:
        if any(a != b for a, b in zip(runs[0].get("losses", []), other.get("losses", []))):
            sys.exit("unequal: the losses depend on who computed them")
    for run in runs:
        run.pop("losses", None)
    total = sum(alone[share]["rate"] for share in shares)
    return dict(who=kind.name, alone={str(s): r for s, r in alone.items()}, together=together, sum=total,
                reached=together["rate"] / total)


def count_lanes(lanes):
    return len(lanes) if isinstance(lanes, list) else lanes


def table(rows):
    print("| | alone, samples/s | sum of all | together | reached | share of a core used, together | lanes |")
    print("|---|---|---|---|---|---|---|")
    for r in rows:
        if "skipped" in r:
            print(f"| {r['who']} | skipped: {r['skipped']} | | | | | |")
            continue
        alone = ", ".join(f"{a['rate']:.1f} with {s} (used {a['used'][0]:.3f})" for s, a in r["alone"].items())
        used = ", ".join(f"{u:.3f} of {s:g}" for u, s in zip(r["together"]["used"], r["together"]["shares"]))
        lanes = ", ".join(f"{w['id']}: {count_lanes(w['lanes'])}" for w in r["together"].get("workers", []))
        print(f"| {r['who']} | {alone} | {r['sum']:.1f} | {r['together']['rate']:.1f} | {r['reached']:.2f} | {used} |"
              f" {lanes or '-'} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", default=os.path.join(SOURCE, "build/release/bin"))
    parser.add_argument("--python", default="", help="a Python that has torch; without it DDP is left out")
    parser.add_argument("--shares", default="0.4,0.4,0.4,0.1", help="of a core, by worker")
    parser.add_argument("--model", default="lenet")
    parser.add_argument("--lanes", type=int, default=26)
    parser.add_argument("--batch", type=int, default=832, help="of all workers together; at most 1024")
    parser.add_argument("--settle", type=float, default=40)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--weight", type=int, default=1024, help="cpu.shares of each worker against other load")
    parser.add_argument("--limit", choices=("quota", "stop"), default="quota")
    parser.add_argument("--only", default="ours,ddp")
    parser.add_argument("-o", "--output", help="json: instead of the table; or a file for it")
    args = parser.parse_args()
    shares = [float(s) for s in args.shares.split(",")]
    processes.own_all()
    rows = []
    with tempfile.TemporaryDirectory(prefix="muster-unequal-", ignore_cleanup_errors=True) as folder:
        for name in args.only.split(","):
            if name == "ddp" and not args.python:
                rows.append(dict(who="DDP", skipped="no --python"))
                continue
            rows.append(contest({"ours": Muster, "ddp": Ddp}[name], args, shares, folder))
    if args.output == "json":
        print(json.dumps(rows, indent=1))
        return
    table(rows)
    for move in (m for r in rows for m in r.get("together", {}).get("moves", [])):
        print("  " + move)
    if args.output:
        with open(args.output, "w") as f:
            json.dump(rows, f, indent=1)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
