#!/usr/bin/env python3
"""What a strategy costs and saves on a slow network: time, bytes and accuracy of a job, setting by setting.

    bench/strategies.py time [--job examples/mlp-fashion.yaml] [--hosts 4] [--rate 100mbit] [--delay 1ms] [--steps 48]
                             [--settings lockstep,bits4,...] [--bin build/release/bin]
    bench/strategies.py busy [the same as time] [--rates 50mbit,200mbit,1gbit] [-s KEY=VALUE]...
    bench/strategies.py accuracy [--job JOB] [--settings ...] [--seeds 1,2,3] [--table FILE.json] [-s KEY=VALUE]...

`time` needs root: it trains with one worker on each host of a laboratory (tests/lab/lab.py), with links of this rate and
delay, and reports the median time of a step and the bytes that a host sends for it, measured at its interface, commits and
heartbeats included. A second run with twice the steps is subtracted from, so that start, rendezvous and end do not count.
`busy` trains one commit and reports the part of its time in which a worker did not wait for others, rate by rate.
`accuracy` trains alone, without a network: bits do not depend on it. Results are kept in FILE.json as they come, with those of
each evaluation (-s eval.every="39 steps").
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

SOURCE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.append(os.path.join(SOURCE, "tests/lab"))

PERIOD = 48
SETTINGS = {
    "lockstep": [],
    "bits16": ["sync.bits=16"],
    "bits8": ["sync.bits=8"],
    "bits4": ["sync.bits=4"],
    "bits4-hadamard": ["sync.bits=4", "sync.rotation=hadamard"],
    "bits2": ["sync.bits=2"],
    "bits2-hadamard": ["sync.bits=2", "sync.rotation=hadamard"],
    "average": ["sync.strategy=average", f"sync.period={PERIOD}"],
    "bmuf": ["sync.strategy=bmuf", f"sync.period={PERIOD}"],
    "diloco": ["sync.strategy=diloco", f"sync.period={PERIOD}"],
    "diloco4": ["sync.strategy=diloco", f"sync.period={PERIOD}", "sync.bits=4"],
    "diloco4-hadamard": ["sync.strategy=diloco", f"sync.period={PERIOD}", "sync.bits=4", "sync.rotation=hadamard"],
    "gossip": ["sync.strategy=gossip", f"sync.period={PERIOD}", "sync.rounds=4"],
    # What replicas have not sent yet is committed once in a while: every 100 rounds.
    "sparseloco": ["sync.strategy=sparseloco", "sync.period=15", "sync.rounds=100"],
    "sparseloco-often": ["sync.strategy=sparseloco", "sync.period=15", "sync.rounds=8"],
    "sparseloco30": ["sync.strategy=sparseloco", "sync.period=30", "sync.rounds=50"],
    "streaming": ["sync.strategy=streaming", f"sync.period={PERIOD}", "sync.rounds=8"],
    "streaming4-hadamard": ["sync.strategy=streaming", f"sync.period={PERIOD}", "sync.bits=4", "sync.rotation=hadamard",
                            "sync.rounds=16"],
    "desloc4-hadamard": ["sync.strategy=desloc", f"sync.period={PERIOD}", "sync.bits=4", "sync.rotation=hadamard",
                         "sync.rounds=6"],
    "sparta": ["sync.strategy=sparta", "sync.period=16", "sync.rounds=16"],
    "local-then-lockstep": ["sync.strategy=local-then-lockstep", f"sync.period={PERIOD}"],
    "diloco-radial": ["sync.strategy=diloco", f"sync.period={PERIOD}", "sync.merge=radial"],
    "muloco": ["sync.strategy=muloco", f"sync.period={PERIOD}", "optimizer.kind=muon", "optimizer.lr=0.02"],
    "easgd": ["sync.strategy=easgd", f"sync.period={PERIOD}"],
    "topk": ["sync.strategy=topk", "sync.rounds=100"],
    "threshold": ["sync.strategy=threshold", "sync.rounds=100"],
    "onebit": ["sync.strategy=onebit", "sync.rounds=100"],
    "powersgd": ["sync.strategy=powersgd", "sync.rounds=100"],
    "powersgd4": ["sync.strategy=powersgd", "sync.rank=4", "sync.rounds=100"],
    "diloco2-hadamard": ["sync.strategy=diloco", f"sync.period={PERIOD}", "sync.bits=2", "sync.rotation=hadamard"],
}


def words(sets):
    return [word for s in sets for word in ("-s", s)]


def run_in_lab(args, setting, steps, folder):
    """(the metrics of each commit, bytes that a host sent)."""
    from lab import Lab  # needs no root until it is used
    names = [f"host{i}" for i in range(args.hosts)]
    muster = os.path.join(args.bin, "muster")
    sets = [*SETTINGS[setting], f"steps={steps}", "passes=0", "eval.every=never", "checkpoint.every=0", "threads=1",
            f"workers.min={args.hosts}", "track.every=1 steps", *args.sets]
    with Lab(f"rate: {args.rate}\ndelay: {args.delay}\nhosts: [{', '.join(names)}]", bin_dir=args.bin) as lab:
        run = os.path.join(folder, f"{setting}-{steps}")
        coordinator = lab.run("hub", [muster, "coordinator", os.path.abspath(args.job), *words(sets), "--run-dir", run,
                                      "--listen", lab.address("hub") + ":7000"],
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while not os.path.exists(os.path.join(run, "coordinator.json")):
            if coordinator.poll() is not None:
                sys.exit(f"{setting}: the coordinator has ended")
        workers = [lab.run(name, [muster, "join", run, "--id", name, "--host", lab.address(name)],
                           stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) for name in names]
        for worker in workers:
            if worker.wait(1800) != 0:
                sys.exit(f"{setting}: {worker.stderr.read()}")
        sent = statistics.median(lab.bytes(name)["sent"] for name in names)
    with open(os.path.join(run, "metrics.jsonl")) as file:
        lines = [json.loads(line) for line in file]
    return [line for line in lines if "loss" in line], sent


def per_step(commits):
    """The median time of a step, from the metrics of each commit. The first one measures magnitudes, too, and the next one still
    warms up: both are left out, if there are enough."""
    kept = commits[max(0, min(2, len(commits) - 2)):]
    times = [(b["time"] - a["time"]) / (b["step"] - a["step"]) for a, b in zip(kept, kept[1:])]
    return statistics.median(times)


def steps_of_a_commit(sets):
    """How many steps are committed together."""
    values = dict(s.split("=") for s in sets)
    return int(values.get("sync.period", 1)) * int(values.get("sync.rounds", 1))


def measure_time(args):
    rows = []
    with tempfile.TemporaryDirectory(prefix="muster-") as folder:
        for setting in args.settings:
            commit = steps_of_a_commit(SETTINGS[setting])
            few, many = (args.steps // 2, args.steps) if commit == 1 else (commit, commit * (2 if commit > 500 else 4))
            _, less = run_in_lab(args, setting, few, folder)
            commits, more = run_in_lab(args, setting, many, folder)
            rows.append((setting, per_step(commits), (more - less) / (many - few)))
            base = rows[0]
            print(f"{setting:18} {rows[-1][1] * 1e3:9.1f} ms a step {rows[-1][1] / base[1]:7.4f}   "
                  f"{rows[-1][2] / 1e3:11.1f} kB a step {base[2] / max(rows[-1][2], 1):8.1f} times less", flush=True)


def measure_busy(args):
    for setting in args.settings:
        for args.rate in args.rates:
            with tempfile.TemporaryDirectory(prefix="muster-") as folder:
                commits, sent = run_in_lab(args, setting, steps_of_a_commit([*SETTINGS[setting], *args.sets]), folder)
            last = commits[-1]
            print(f"{setting:18} {args.rate:8} {1 - last['waited'] / last['seconds']:7.1%} of {last['seconds']:.1f} s"
                  f"   {sent / 1e6:.1f} MB sent", flush=True)


def measure_accuracy(args):
    table = {}
    if args.table and os.path.exists(args.table):
        with open(args.table) as file:
            table = json.load(file)
    for setting in args.settings:
        results = []
        for seed in args.seeds:
            key = f"{setting} {seed} {' '.join(args.sets)}"
            if key not in table:
                with tempfile.TemporaryDirectory(prefix="muster-") as folder:
                    out = subprocess.run(
                        [os.path.join(args.bin, "muster"), "train", args.job, "--json", "--run-dir",
                         os.path.join(folder, "run"),
                         *words([*SETTINGS[setting], f"seed={seed}", "checkpoint.every=0", *args.sets])],
                        check=True, text=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout
                    with open(os.path.join(folder, "run", "metrics.jsonl")) as file:
                        lines = [json.loads(line) for line in file]
                result = json.loads(out.splitlines()[-1])
                table[key] = {"test": result["test"], "redone": result["redone_steps"],
                              "curve": [[line["step"], line["test"]] for line in lines if "test" in line]}
                if args.table:
                    with open(args.table, "w") as file:
                        json.dump(table, file, indent=1)
            results.append(table[key])
        figures = [r["test"].get(args.metric) for r in results]
        print(f"{setting:18} {args.metric} {statistics.mean(figures):.4f}  ({', '.join(f'{f:.4f}' for f in figures)})  "
              f"redone {sum(r['redone'] for r in results)}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["time", "busy", "accuracy"])
    parser.add_argument("--job", default=os.path.join(SOURCE, "examples/mlp-fashion.yaml"))
    parser.add_argument("--bin", default=os.path.join(SOURCE, "build/release/bin"))
    parser.add_argument("--settings", default=list(SETTINGS), type=lambda text: text.split(","))
    parser.add_argument("--hosts", default=4, type=int)
    parser.add_argument("--rate", default="100mbit")
    parser.add_argument("--rates", default=["50mbit", "200mbit", "1gbit"], type=lambda text: text.split(","))
    parser.add_argument("--delay", default="0ms")
    parser.add_argument("--steps", default=16, type=int)
    parser.add_argument("--seeds", default=[1], type=lambda text: text.split(","))
    parser.add_argument("--metric", default="accuracy")
    parser.add_argument("--table")
    parser.add_argument("-s", "--set", dest="sets", action="append", default=[])
    args = parser.parse_args()
    for setting in args.settings:
        if setting not in SETTINGS:
            sys.exit(f"there is no setting '{setting}'; there are {', '.join(SETTINGS)}")
    if args.what == "time":
        measure_time(args)
    elif args.what == "busy":
        measure_busy(args)
    else:
        measure_accuracy(args)


if __name__ == "__main__":
    main()
