#!/usr/bin/env python3
"""Three hundred faults of every kind on three models, by `muster verify`: each run must be equal, bit for bit, to the
undisturbed one. Takes half an hour; CI runs verify.py, with sixty.

    tests/e2e/campaign.py [--bin build/release/bin] [--models lenet,resnet,gpt] [--seed N] [--calm]

With --calm each fault waits until all workers are members again, so that its stall is its own. Prints how long the
others stalled, by kind of fault. `cut` needs root; ResNet and GPT use the samples in examples/data.
"""
import argparse
import os
import statistics
import sys

from verify import SOURCE, disturb

# By model: the job, its options, and how many steps it takes until a faulty worker may come back five times.
FASHION = os.path.join(SOURCE, "examples/data/fashion-mnist")
TEXT = os.path.join(SOURCE, "examples/data/tinyshakespeare/input.txt")
MODELS = {
    "lenet": ("lenet-sample.yaml", ["eval.every=100 steps", "checkpoint.every=50 steps"], 2000),
    "resnet": ("resnet-fashion.yaml",
               ["batch=32", "eval.every=100 steps", "checkpoint.every=50 steps",
                *(f"data.{part}.{what}={FASHION}/{file}-{what}-{form}-ubyte.gz"
                  for part, file in (("train", "train"), ("test", "t10k"))
                  for what, form in (("images", "idx3"), ("labels", "idx1")))], 600),
    "gpt": ("gpt-shakespeare.yaml",
            [f"data.train.path={TEXT}", f"data.test.path={TEXT}", "eval.samples=256", "eval.every=100 steps",
             "checkpoint.every=50 steps"], 1500),
}
# A hundred for each model: under `muster train`, with a coordinator of its own, and faulty workers.
ROUNDS = (
    ("kill:16,kill@before-commit:4,kill@after-commit:4,kill@checkpoint:4,kill@transfer:4,kill@forming:4,"
     "kill@recovery:4,kill@evaluation:3,pair:4,most:3,suspend:4,leave:6,join:7,hang:3,slow-disk:3,pause:4,cut:2", 900),
    ("restart:6,kill:3,hang:1,join:1,leave:1", 200),
    ("flip:2,lie:2,kill:1", None),
)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", default=os.environ.get("MUSTER_BIN_DIR", os.path.join(SOURCE, "build/release/bin")))
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--seed", default="1")
    parser.add_argument("--calm", action="store_true")
    args = parser.parse_args()
    muster = os.path.join(args.bin, "muster")
    happened = []
    for model in args.models.split(","):
        job, options, long = MODELS[model]
        for faults, steps in ROUNDS:
            print(f"--- {model}, {faults}", flush=True)
            sets = [word for option in [*options, f"steps={steps or long}", "passes=0"] for word in ("-s", option)]
            happened += disturb(muster, "--faults", faults, "--seed", args.seed, *sets,
                                *(["--calm"] if args.calm else []), job=os.path.join(SOURCE, "examples", job))
    kinds = sorted({what["fault"] for what in happened})
    print(f"\n{len(happened)} faults of {len(kinds)} kinds, all runs equal; how long the others stalled:")
    print(f"{'fault':20} {'times':>6} {'median':>9} {'longest':>9}")
    for kind in kinds:
        stalls = [what["stalled"] for what in happened if what["fault"] == kind and what["stalled"] is not None]
        count = sum(what["fault"] == kind for what in happened)
        if stalls:
            print(f"{kind:20} {count:6} {statistics.median(stalls):8.3f}s {max(stalls):8.3f}s")
        else:
            print(f"{kind:20} {count:6} {'-':>9} {'-':>9}")


if __name__ == "__main__":
    sys.exit(main())
