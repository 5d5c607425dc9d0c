#!/usr/bin/env python3
"""Asynchronous training beside lockstep, with four workers of which one is four times slower.

    bench/asynchronous.py time [--job examples/dlrm-synthetic.yaml] [--metric auc] [--target 0.735]
                               [--settings lockstep,lockstep-moving,async,ssp,softsync] [--seeds 1,2,3] [-s KEY=VALUE ...]
    bench/asynchronous.py kills [--settings async,ssp,softsync] [--kills 20] [--seed N]

time: each setting trains the job, one after the other; the test metric at the end, the seconds until then, and until the target was
reached first. Evaluations count: all have as many.
lockstep keeps lanes where they are, lockstep-moving gives slow workers fewer, which is what Muster does by itself. scale and
compensate are async with that sync.late (set sync.compensation with -s); sync is in steps, with all of the model on the server.
easgd needs a job without tables, such as examples/lenet-mnist.yaml, without momentum or with Nesterov's.
kills: workers are killed at random moments, until that many have been; then the run is computed again (`muster replay`).

Each worker has a share of a core (cpu_share.py). Parameter servers and the launcher have no limit.
"""
import argparse
import contextlib
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time

import cpu_share
import processes
from step_time import SOURCE

ASYNC = ["sync.strategy=server"]
# One server: all of them are on this machine, and share its two cores with the workers.
SERVERS = ["tables.servers=1", "tables.copies=1", "tables.shards=16"]
SETTINGS = {
    "lockstep": ["workers.move_lanes=false"],
    "lockstep-moving": [],
    "async": [*ASYNC, "sync.mode=async"],
    "scale": [*ASYNC, "sync.mode=async", "sync.late=scale"],
    "compensate": [*ASYNC, "sync.mode=async", "sync.late=compensate"],
    "ssp": [*ASYNC, "sync.mode=ssp", "sync.staleness=16"],
    "softsync": [*ASYNC, "sync.mode=softsync", "sync.pushes=4"],
    "easgd": [*ASYNC, "sync.mode=easgd", "sync.fetch=4"],
    "sync": [*ASYNC, "sync.mode=sync"],
}


class Run:
    def __init__(self, args, setting, seed, folder, sets=()):
        self.args = args
        self.run = os.path.join(folder, f"{setting}-{seed}")
        self.limits = cpu_share.make()
        self.limited = {}
        with open(args.job) as file:
            has_tables = "\ntables:" in file.read()
        servers = SERVERS if has_tables or ASYNC[0] in SETTINGS[setting] else []
        words = [*SETTINGS[setting], *servers, f"seed={seed}", "threads=1", "track.tensorboard=false", *sets, *args.sets]
        self.process = processes.start(
            [os.path.join(args.bin, "muster"), "train", args.job, "--quiet", "--run-dir", self.run, "--workers",
             str(len(args.shares)), *(word for one in words for word in ("-s", one))], self.run + ".log")

    def look(self):
        """Limits who is new. The processes of workers, by number."""
        pids = {}
        with contextlib.suppress(FileNotFoundError), open(os.path.join(self.run, "launch.log")) as log:
            for line in log:
                if found := re.search(r"worker (\d+) is started: process (\d+)", line):
                    pids[int(found[1])] = int(found[2])
        for number, pid in pids.items():
            if self.limited.get(number) != pid:
                with contextlib.suppress(ProcessLookupError):
                    self.limits.limit(pid, self.args.shares[number])
                self.limited[number] = pid
        return pids

    def finish(self, each=lambda pids: None):
        try:
            while self.process.poll() is None:
                each(self.look())
                time.sleep(0.01)
        finally:
            self.limits.lift()
            processes.end_all()
            self.limits.close()
        if self.process.returncode != 0:
            sys.exit(f"{self.run}: {processes.last_words(self.run + '.log')}")
        with open(os.path.join(self.run, "result.json")) as file:
            return json.load(file)

    def curve(self, metric):
        """(seconds since the beginning, metric) of each evaluation."""
        with open(os.path.join(self.run, "metrics.jsonl")) as file:
            records = [json.loads(line) for line in file]
        begin = next(r["time"] for r in records if "time" in r)
        # An evaluation has no time of its own: that of the last step before it.
        curve, last = [], begin
        for record in records:
            last = record.get("time", last)
            if "test" in record:
                curve.append((last - begin, record["test"][metric]))
        return curve


def measure_time(args):
    for setting in args.settings:
        rows = []
        for seed in args.seeds:
            with tempfile.TemporaryDirectory(prefix="muster-", ignore_cleanup_errors=True) as folder:
                run = Run(args, setting, seed, folder)
                result = run.finish()
                curve = run.curve(args.metric)
                reached = next((seconds for seconds, value in curve if value >= args.target), None)
                rows.append((result["test"][args.metric], curve[-1][0] if curve else result["seconds"], reached))
        values = ", ".join(f"{value:.4f}" for value, _, _ in rows)
        seconds = ", ".join(f"{total:.1f}" for _, total, _ in rows)
        reached = ", ".join("never" if when is None else f"{when:.1f}" for _, _, when in rows)
        print(f"{setting:14} {args.metric} {values}  seconds {seconds}  to {args.target}: {reached}", flush=True)


def measure_kills(args):
    draw = random.Random(args.seed)
    for setting in args.settings:
        with tempfile.TemporaryDirectory(prefix="muster-", ignore_cleanup_errors=True) as folder:
            run = Run(args, setting, 1, folder, ["workers.restarts=100000"])
            killed = [0]
            due = [time.time() + 5]

            def kill_one(pids):
                if killed[0] == args.kills or time.time() < due[0] or not pids:
                    return
                due[0] = time.time() + draw.uniform(0.3, 1.2)
                with contextlib.suppress(ProcessLookupError):
                    os.kill(draw.choice(list(pids.values())), signal.SIGKILL)
                    killed[0] += 1

            result = run.finish(kill_one)
            done = subprocess.run([os.path.join(args.bin, "muster"), "replay", run.run + "/", "-o", "json"],
                                  stdout=subprocess.PIPE, text=True)
            replay = json.loads(done.stdout)
            print(f"{setting:14} {killed[0]} kills, {replay['pushes']} pushes, {replay['record_bytes'] / replay['pushes']:.1f} bytes "
                  f"each, late {replay['mean_staleness']:.1f} on average, {replay['most_staleness']} at most: "
                  f"{'equal' if replay['equal'] else 'NOT equal'} {result['weights_hash']} {replay['replayed']}", flush=True)
            if not replay["equal"] or killed[0] < args.kills:
                sys.exit(1)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["time", "kills"])
    parser.add_argument("--job", default=os.path.join(SOURCE, "examples/dlrm-synthetic.yaml"))
    parser.add_argument("--bin", default=os.path.join(SOURCE, "build/release/bin"))
    parser.add_argument("--settings", default=["async", "ssp", "softsync"], type=lambda text: text.split(","))
    parser.add_argument("--seeds", default=["1"], type=lambda text: text.split(","))
    parser.add_argument("--metric", default="auc")
    parser.add_argument("--target", default=0.735, type=float)
    parser.add_argument("--shares", default="0.4,0.4,0.4,0.1", help="of a core, by worker")
    parser.add_argument("--kills", default=20, type=int)
    parser.add_argument("--seed", default=1, type=int)
    parser.add_argument("-s", "--set", dest="sets", action="append", default=[])
    args = parser.parse_args()
    args.shares = [float(share) for share in args.shares.split(",")]
    processes.own_all()
    if args.what == "time":
        measure_time(args)
    else:
        measure_kills(args)


if __name__ == "__main__":
    main()
