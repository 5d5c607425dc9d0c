#!/usr/bin/env python3
"""Four workers of which one is four times slower: how much of what they could do they do together.

    bench/unequal.py [--python PYTHON] [--bin build/release/bin] [--shares 0.4,0.4,0.4,0.1] [--lanes 52] [--batch 1664]
                     [--settle 40] [--seconds 60] [--model lenet] [--one-by-one] [--only ours,ddp] [-o json|FILE.json]

Each worker has a share of a core (cpu_share.py says how, and what is fair about it); all shares together must leave the
machine some room, so that nothing but the shares limits them. First each worker trains a job of its own, alone, then all
of them one job together, then each alone again; "reached" is samples per second together, divided by the sum of the four
alone, before and after in the mean. The four jobs
of one worker run at the same time, because cores of one machine slow each other down and machines do not (--one-by-one:
they do not, one of each kind). Only settled time counts: the first seconds are left out, while lanes follow the speeds.

52 lanes can follow 4 : 4 : 4 : 1 exactly. Every worker takes part in every step's sum, commit and update, whatever its
lanes, and alone it does that once for the whole batch: so the batch is large. One thread in each worker; the launcher
and its coordinator have no limit.

reached = busy * work. busy: processor time used together, of that used alone; what is missing was waited for others.
work: samples for each second of it, together to alone; what is missing are sums and updates that one alone does not do.

Beside it PyTorch's DistributedDataParallel, with the same shares, batch and model: all have equal parts of the batch, so
the slowest sets the pace. Its processes get their shares after the first step, for `import torch` on a tenth of a core
takes long.

Checked on the way: the losses of all runs of Muster are equal, step by step, whoever computed them; and each process
used as much of its share as the table says. One that is alone and used less was kept from it by other load: then the
figures say little (--weight helps a worker against such load).
"""
import argparse
import contextlib
import json
import os
import re
import subprocess
import sys
import tempfile
import time

import cpu_share
import processes
from step_time import HERE, SOURCE, job_file, put_out

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
            [os.path.join(args.bin, "muster"), "train", args.job, "--quiet", "--run-dir",
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


def measure(kind, args, teams, settle, folder):
    """Trains one job for each team of shares, all at the same time, and ends them. A result for each."""
    jobs = [kind(args, len(shares), folder) for shares in teams]
    limits = cpu_share.make(args.weight, args.limit)

    def wait(condition, what):
        end = time.time() + START
        while not condition():
            for job in jobs:
                if job.process.poll() is not None or time.time() > end:
                    sys.exit(f"unequal: {kind.name} {what}: {processes.last_words(job.log)}")
            time.sleep(0.005)

    try:
        pids = []
        for job, shares in zip(jobs, teams):
            wait(job.pids, "does not start")
            pids.append(job.pids())
            for pid, share in zip(pids[-1], shares):
                limits.limit(pid, share)
        limited = time.time()
        for job in jobs:
            wait(lambda: job.commits() and job.commits()[-1][0] > limited, "does not get going")
        time.sleep(settle)
        begin, before = time.time(), [[cpu_share.cpu_seconds(pid) for pid in team] for team in pids]
        time.sleep(args.seconds)
        wait(lambda: True, "ended early")
        end, after = time.time(), [[cpu_share.cpu_seconds(pid) for pid in team] for team in pids]
        results = []
        for i, (job, shares) in enumerate(zip(jobs, teams)):
            results.append(dict(shares=shares, rate=rate([c for c in job.commits() if begin <= c[0] <= end]),
                                used=[(a - b) / (end - begin) for a, b in zip(after[i], before[i])], **job.more()))
            say(f"  {kind.name}, shares {shares}: {results[-1]['rate']:.1f} samples/s,"
                f" used {', '.join(f'{u:.3f}' for u in results[-1]['used'])}")
        return results
    finally:
        limits.lift()
        processes.end_all()
        limits.close()


def measure_alone(kind, args, shares, folder):
    if args.one_by_one:
        own = {s: measure(kind, args, [[s]], args.settle / 4, folder)[0] for s in sorted(set(shares))}
        return [own[share] for share in shares]
    return measure(kind, args, [[share] for share in shares], args.settle / 4, folder)


def contest(kind, args, shares, folder):
    # Before and after: the machine's own speed drifts by a tenth within minutes.
    before = measure_alone(kind, args, shares, folder)
    together = measure(kind, args, [shares], args.settle, folder)[0]
    alone = before + measure_alone(kind, args, shares, folder)
    for run in alone[1:] + [together]:
        if any(a != b for a, b in zip(alone[0].get("losses", []), run.get("losses", []))):
            sys.exit("unequal: the losses depend on who computed them")
    for run in alone + [together]:
        run.pop("losses", None)
    total = sum(run["rate"] for run in alone) / 2
    busy = sum(together["used"]) / (sum(run["used"][0] for run in alone) / 2)
    return dict(who=kind.name, limit=cpu_share.make(args.weight, args.limit).name, alone=alone, together=together,
                sum=total, reached=together["rate"] / total, busy=busy, work=together["rate"] / total / busy)


def count_lanes(lanes):
    return len(lanes) if isinstance(lanes, list) else lanes


def table(rows):
    print("| | alone, samples/s | sum | together | reached | busy | work | core used, alone | core used, together | lanes |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    for r in rows:
        if "skipped" in r:
            print(f"| {r['who']} | skipped: {r['skipped']} | | | | | | | | |")
            continue
        lanes = ", ".join(f"{w['id']}: {count_lanes(w['lanes'])}" for w in r["together"].get("workers", []))
        alone = ", ".join(f"{a['rate']:.0f}" for a in r["alone"])
        used = [", ".join(f"{u:.3f}" for u in used)
                for used in ([a["used"][0] for a in r["alone"]], r["together"]["used"])]
        print(f"| {r['who']} | {alone} | {r['sum']:.0f} |"
              f" {r['together']['rate']:.0f} | {r['reached']:.2f} | {r['busy']:.2f} | {r['work']:.2f} |"
              f" {used[0]} | {used[1]} | {lanes or '-'} |")
    for move in (m for r in rows for m in r.get("together", {}).get("moves", [])):
        print("  " + move)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", default=os.path.join(SOURCE, "build/release/bin"))
    parser.add_argument("--python", default="", help="a Python that has torch; without it DDP is left out")
    parser.add_argument("--shares", default="0.4,0.4,0.4,0.1", help="of a core, by worker")
    parser.add_argument("--model", default="lenet")
    parser.add_argument("--lanes", type=int, default=52)
    parser.add_argument("--batch", type=int, default=1664, help="of all workers together")
    parser.add_argument("--settle", type=float, default=40)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--weight", type=int, default=1024, help="cpu.shares of each worker against other load")
    parser.add_argument("--limit", choices=("quota", "stop"), default="quota")
    parser.add_argument("--one-by-one", action="store_true")
    parser.add_argument("--only", default="ours,ddp")
    parser.add_argument("-o", "--output", help="json: instead of the table; or a file for it")
    args = parser.parse_args()
    shares = [float(s) for s in args.shares.split(",")]
    processes.own_all()
    rows = []
    with tempfile.TemporaryDirectory(prefix="muster-unequal-", ignore_cleanup_errors=True) as folder:
        args.job = job_file(args.model, args.lanes, folder)
        for name in args.only.split(","):
            if name == "ddp" and not args.python:
                rows.append(dict(who="DDP", skipped="no --python"))
                continue
            rows.append(contest({"ours": Muster, "ddp": Ddp}[name], args, shares, folder))
    put_out(rows, args.output, table)


if __name__ == "__main__":
    main()
