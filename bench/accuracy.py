#!/usr/bin/env python3
"""Exact against native sums: does fixed point cost accuracy?

Trains each example with several seeds, with exact and with native reduction, at 8 and at 64 lanes, and compares
the final test results with the spread that seeds alone make.

    bench/accuracy.py [--bin build/release/bin] [--examples lenet,gpt,resnet] [--lanes 8,64] [--seeds 1,2,3]
                      [--table FILE.json] [-s KEY=VALUE]...

Long: 36 runs. Results are kept in FILE.json as they come, and runs that are in it are not repeated.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile

SOURCE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
# Metric, and what differs from the example: gpt's batch of 12 has no room for 64 lanes.
EXAMPLES = {
    "lenet": ("examples/lenet-mnist.yaml", "accuracy", {}),
    "gpt": ("examples/gpt-shakespeare.yaml", "loss", {64: ["batch=64", "steps=600"]}),
    "resnet": ("examples/resnet-fashion.yaml", "accuracy", {}),
}


def train(args, example, lanes, seed, reduction):
    job, metric, changes = EXAMPLES[example]
    sets = [f"lanes={lanes}", f"seed={seed}", f"sync.reduction={reduction}", "checkpoint.every=0",
            *changes.get(lanes, []), *args.sets]
    words = [word for s in sets for word in ("-s", s)]
    with tempfile.TemporaryDirectory(prefix="muster-") as folder:
        out = subprocess.run([os.path.join(args.bin, "muster"), "train", os.path.join(SOURCE, job), "--json",
                              "--run-dir", os.path.join(folder, "run"), *words],
                             check=True, capture_output=True, text=True).stdout
    result = json.loads(out.strip().splitlines()[-1])
    return result["test"][metric], result["redone_steps"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", default=os.path.join(SOURCE, "build/release/bin"))
    parser.add_argument("--examples", default="lenet,gpt,resnet")
    parser.add_argument("--lanes", default="8,64")
    parser.add_argument("--seeds", default="1,2,3")
    parser.add_argument("--table", default="accuracy.json")
    parser.add_argument("-s", action="append", default=[], dest="sets")
    args = parser.parse_args()
    done = {}
    if os.path.exists(args.table):
        with open(args.table) as f:
            done = json.load(f)
    failed = False
    for example in args.examples.split(","):
        for lanes in map(int, args.lanes.split(",")):
            values = {}
            redone = 0
            for reduction in ("exact", "native"):
                for seed in args.seeds.split(","):
                    key = " ".join([example, str(lanes), reduction, seed, *args.sets])
                    if key not in done:
                        done[key] = train(args, example, lanes, seed, reduction)
                        with open(args.table, "w") as f:
                            json.dump(done, f, indent=1)
                    values.setdefault(reduction, []).append(done[key][0])
                    redone += done[key][1]
            # The spread of seeds: from the lowest to the highest native run.
            low, high = min(values["native"]), max(values["native"])
            mean = {r: sum(v) / len(v) for r, v in values.items()}
            fits = abs(mean["exact"] - mean["native"]) <= high - low
            failed |= not fits
            shown = {r: " ".join(f"{x:.4f}" for x in v) for r, v in values.items()}
            print(f"{example:6} {lanes:3} lanes {EXAMPLES[example][1]:8}  exact {shown['exact']}  native "
                  f"{shown['native']}  means differ by {mean['exact'] - mean['native']:+.4f}, seeds spread "
                  f"{high - low:.4f}: {'within' if fits else 'OUTSIDE'}; redone {redone}", flush=True)
    sys.exit(1 if failed else 0)


main()
