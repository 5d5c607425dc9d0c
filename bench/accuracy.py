#!/usr/bin/env python3
"""Sums in fixed point against native sums: does fixed point cost accuracy, and does stochastic rounding help?

Trains each example with several seeds, with exact sums (rounded to nearest), with exact sums that are rounded
stochastically (sync.rounding) and with native reduction, at several numbers of lanes, and compares the final test
results with the spread that seeds alone make.

    bench/accuracy.py [--bin build/release/bin] [--examples lenet,gpt,resnet] [--lanes 8,64,512,4096] [--seeds 1,2,3]
                      [--sums exact,stochastic,native] [--table FILE.json] [-s KEY=VALUE]...

Long: 108 runs; those of 512 and 4,096 lanes compute one or two samples per lane and take longest. Results are kept
in FILE.json as they come, and runs that are in it are not repeated. `bits` is the fewest bits that the largest
gradient of a block had above the rounding unit in any step (fewest_gradient_bits of the result).
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile

SOURCE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
# Metric, and what differs from the example: every lane needs a sample (with BatchNorm two), and a large batch fewer
# steps, a shorter warm-up and a higher learning rate.
EXAMPLES = {
    "lenet": ("examples/lenet-mnist.yaml", "accuracy", {
        512: ["batch=512", "optimizer.lr=0.1", "optimizer.schedule.warmup=30"],
        4096: ["batch=4096", "passes=10", "optimizer.lr=0.2", "optimizer.schedule.warmup=20"]}),
    "gpt": ("examples/gpt-shakespeare.yaml", "loss", {
        64: ["batch=64", "steps=600"],
        512: ["batch=512", "steps=150", "optimizer.schedule.warmup=20"],
        4096: ["batch=4096", "steps=50", "optimizer.schedule.warmup=10"]}),
    "resnet": ("examples/resnet-fashion.yaml", "accuracy", {
        512: ["batch=1024"],
        4096: ["batch=8192"]}),
}
SUMS = {
    "exact": ["sync.reduction=exact"],
    "stochastic": ["sync.reduction=exact", "sync.rounding=stochastic"],
    "native": ["sync.reduction=native"],
}


def train(args, example, lanes, seed, sums):
    job, metric, changes = EXAMPLES[example]
    sets = [f"lanes={lanes}", f"seed={seed}", *SUMS[sums], "checkpoint.every=0", *changes.get(lanes, []), *args.sets]
    words = [word for s in sets for word in ("-s", s)]
    with tempfile.TemporaryDirectory(prefix="muster-") as folder:
        out = subprocess.run([os.path.join(args.bin, "muster"), "train", os.path.join(SOURCE, job), "--json",
                              "--run-dir", os.path.join(folder, "run"), *words],
                             check=True, capture_output=True, text=True).stdout
    result = json.loads(out.strip().splitlines()[-1])
    return result["test"][metric], result["redone_steps"], result["fewest_gradient_bits"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", default=os.path.join(SOURCE, "build/release/bin"))
    parser.add_argument("--examples", default="lenet,gpt,resnet")
    parser.add_argument("--lanes", default="8,64,512,4096")
    parser.add_argument("--seeds", default="1,2,3")
    parser.add_argument("--sums", default="exact,stochastic,native", help="native is the reference and must be in it")
    parser.add_argument("--table", default="accuracy.json")
    parser.add_argument("-s", action="append", default=[], dest="sets")
    args = parser.parse_args()
    kinds = args.sums.split(",")
    if "native" not in kinds or not set(kinds) <= set(SUMS):
        parser.error(f"--sums takes {', '.join(SUMS)}, and needs native")
    done = {}
    if os.path.exists(args.table):
        with open(args.table) as f:
            done = json.load(f)
    failed = False
    for example in args.examples.split(","):
        for lanes in map(int, args.lanes.split(",")):
            runs = {}
            for kind in kinds:
                for seed in args.seeds.split(","):
                    key = " ".join([example, str(lanes), kind, seed, *args.sets])
                    if key not in done:
                        done[key] = train(args, example, lanes, seed, kind)
                        with open(args.table, "w") as f:
                            json.dump(done, f, indent=1)
                    runs.setdefault(kind, []).append(done[key])
            values = {kind: [run[0] for run in of_kind] for kind, of_kind in runs.items()}
            # The spread of seeds: from the lowest to the highest native run.
            low, high = min(values["native"]), max(values["native"])
            mean = {kind: sum(v) / len(v) for kind, v in values.items()}
            for kind in kinds:
                line = f"{example:6} {lanes:4} lanes {EXAMPLES[example][1]:8} {kind:10} "
                line += " ".join(f"{x:.4f}" for x in values[kind])
                if kind == "native":
                    print(f"{line}  seeds spread {high - low:.4f}", flush=True)
                    continue
                fits = abs(mean[kind] - mean["native"]) <= high - low
                failed |= not fits
                bits = [run[2] for run in runs[kind] if len(run) > 2]
                print(f"{line}  mean differs from native by {mean[kind] - mean['native']:+.4f}: "
                      f"{'within' if fits else 'OUTSIDE'} the spread; redone {sum(run[1] for run in runs[kind])}, "
                      f"bits {min(bits, default='unknown')}", flush=True)
    sys.exit(1 if failed else 0)


main()
