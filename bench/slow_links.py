#!/usr/bin/env python3
"""A step on slow links: Muster's strategies and what a PyTorch user would run, in one run, in turns, with the time of the
computation alone.

    bench/slow_links.py --python /path/with/torch/bin/python [--hosts 4] [--rate 100mbit] [--delay 0ms] [--rounds 3]
                        [--ours sparseloco,...] [--torch ddp,...] [--bin build/release/bin] [--table FILE]
                        [--job examples/mlp-fashion.yaml] [-s KEY=VALUE]... [--commits N]

Needs root: one process of one thread on each host of a laboratory (tests/lab/lab.py), on the mlp of
examples/mlp-fashion.yaml; for other jobs there is no PyTorch to compare with. The computation alone is `average` with a long period and links of 10 Gbit/s. Prints the median
over the rounds of the time of a step, and how it compares with the computation alone. On a virtual machine whose processors
were taken away for more than --steal of the time of a run, that run is made again, up to five times.
"""
import argparse
import json
import os
import statistics
import sys
import tempfile

import strategies
import torch_strategies

SOURCE = strategies.SOURCE
FAST = "10gbit"
# Setting: (options, commits of a run).
OURS = {
    "compute": (["sync.strategy=average", "sync.period=100"], 4),
    "lockstep": ([], 8),
    **{name: (strategies.SETTINGS[name], commits) for name, commits in (
        ("bits4-hadamard", 30), ("average", 6), ("bmuf", 6), ("diloco4-hadamard", 6), ("desloc4-hadamard", 3))},
    "streaming4-hadamard": (["sync.strategy=streaming", "sync.period=48", "sync.bits=4", "sync.rotation=hadamard",
                             "sync.rounds=4"], 3),
    "gossip": (["sync.strategy=gossip", "sync.period=48", "sync.rounds=4"], 3),
    "sparseloco": (["sync.strategy=sparseloco", "sync.period=15", "sync.rounds=20"], 2),
    "sparseloco30": (["sync.strategy=sparseloco", "sync.period=30", "sync.rounds=20"], 2),
    "sparseloco30-50": (["sync.strategy=sparseloco", "sync.period=30", "sync.rounds=50"], 2),
    "sparta": (["sync.strategy=sparta", "sync.period=16", "sync.rounds=16"], 3),
    "powersgd": (strategies.SETTINGS["powersgd"], 3),
    "topk": (strategies.SETTINGS["topk"], 3),
}
TORCH = {"ddp": 6, "fp16": 10, "bf16": 10, "powersgd1": 60, "powersgd2": 60, "powersgd4": 60, "powersgd2-fp16": 60,
         "local48": 96, "local100": 200, "torchft48": 96, "torchft100": 200}


def measure_ours(args, setting, folder):
    options, commits = OURS[setting]
    if args.replicas and any("strategy" in option for option in options):
        options = [*options, f"sync.replicas={args.replicas}"]
    together = strategies.steps_of_a_commit([*options, *args.sets])
    steps = together * (min(commits, args.commits) if together > 1 else commits)
    strategies.SETTINGS[setting] = options
    lab = argparse.Namespace(hosts=args.hosts, rate=FAST if setting == "compute" else args.rate,
                             delay="0ms" if setting == "compute" else args.delay, bin=args.bin, job=args.job, sets=args.sets)
    done, sent = strategies.run_in_lab(lab, setting, steps, folder)
    return strategies.per_step(done), sent / steps


def cpu_times():
    """(all, stolen) so far, of all processors."""
    with open("/proc/stat") as file:
        times = [int(word) for word in file.readline().split()[1:9]]
    return sum(times), times[7]


def undisturbed(args, name, measure):
    """What measure() returns, of a run in which little was stolen; else of the one with the least."""
    best = None
    for _ in range(5):
        before = cpu_times()
        result = measure()
        after = cpu_times()
        stolen = (after[1] - before[1]) / (after[0] - before[0])
        if best is None or stolen < best[0]:
            best = (stolen, result)
        if stolen <= args.steal:
            break
        print(f"         {name:22} once more: {stolen:.0%} of the processors' time was stolen", file=sys.stderr, flush=True)
    return best[1]


def measure_torch(args, setting):
    result = torch_strategies.run_in_lab(
        argparse.Namespace(hosts=args.hosts, rate=args.rate, delay=args.delay, bin=args.bin, python=args.python,
                           steps=TORCH[setting], accuracy=False), setting)
    return result["seconds"], result["bytes"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", help="without it only Muster is measured")
    parser.add_argument("--job", default=os.path.join(SOURCE, "examples/mlp-fashion.yaml"))
    parser.add_argument("--bin", default=os.path.join(SOURCE, "build/release/bin"))
    parser.add_argument("--hosts", type=int, default=4)
    parser.add_argument("--rate", default="100mbit")
    parser.add_argument("--delay", default="0ms")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steal", type=float, default=0.02)
    parser.add_argument("--commits", type=int, default=30,
                        help="so many, at most, of ours that have several steps in each: for jobs whose steps take long")
    parser.add_argument("--replicas", type=int, help="of the model, in our strategies (4)")
    parser.add_argument("-s", "--set", dest="sets", action="append", default=[], help="an option of the job, for ours")
    parser.add_argument("--ours", default="lockstep,bits4-hadamard,diloco4-hadamard,streaming4-hadamard,sparseloco")
    parser.add_argument("--torch", default=",".join(TORCH), help="those with torchft need torchft-nightly")
    parser.add_argument("--table", help="where all measurements are written, as JSON")
    args = parser.parse_args()
    ours = ["compute", *filter(None, args.ours.split(","))]
    torch = list(filter(None, args.torch.split(","))) if args.python else []
    times = {name: [] for name in [*ours, *("torch " + name for name in torch)]}
    sent = {}
    for turn in range(args.rounds):
        for name in times:
            def measure(name=name):
                if name.startswith("torch "):
                    return measure_torch(args, name.removeprefix("torch "))
                with tempfile.TemporaryDirectory(prefix="muster-") as folder:
                    return measure_ours(args, name, folder)
            try:
                seconds, sent[name] = undisturbed(args, name, measure)
            except RuntimeError as failure:
                print(f"round {turn + 1}  {failure}", file=sys.stderr, flush=True)
                continue
            times[name].append(seconds)
            print(f"round {turn + 1}  {name:22} {seconds * 1e3:9.1f} ms", file=sys.stderr, flush=True)
            if args.table:
                with open(args.table, "w") as file:
                    json.dump({"hosts": args.hosts, "rate": args.rate, "delay": args.delay, "job": os.path.basename(args.job),
                               "replicas": args.replicas, "sets": args.sets, "seconds": times, "bytes": sent}, file, indent=1)
    alone = statistics.median(times["compute"])
    for name, seconds in times.items():
        if not seconds:
            print(f"{name:22} failed each time")
            continue
        step = statistics.median(seconds)
        print(f"{name:22} {step * 1e3:9.1f} ms a step  {step / alone:7.2f} of the computation   {sent[name] / 1e3:11.1f} kB")


if __name__ == "__main__":
    main()
