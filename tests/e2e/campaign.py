#!/usr/bin/env python3
"""Three hundred faults of every kind on three models, by `muster verify`: each run must be equal, bit for bit, to the
undisturbed one. Takes half an hour; CI runs verify.py, with sixty.

    tests/e2e/campaign.py [--bin build/release/bin] [--models lenet,resnet,gpt] [--seed N] [--calm]
    tests/e2e/campaign.py --strategies [all, or diloco,topk,...]   twelve faults for each way to send less, on LeNet

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
# Ways to send less: options, without those that say how long a commit is.
ONE_ROUND = ["sync.period=4"]
SEVERAL_ROUNDS = ["sync.period=2", "sync.rounds=3"]
MUON = ["optimizer.kind=muon", "optimizer.momentum=0.95", "optimizer.lr=0.002", "optimizer.adamw_on=['fc*']"]
STRATEGIES = {
    "bits16": ["sync.bits=16"], "bits8": ["sync.bits=8"], "bits4": ["sync.bits=4", "sync.rotation=hadamard"],
    "bits2": ["sync.bits=2", "sync.rotation=hadamard", "sync.lane_groups=4"],
    **{name: [f"sync.strategy={name}", *ONE_ROUND] for name in ("average", "bmuf", "diloco", "easgd")},
    "radial": ["sync.strategy=diloco", "sync.merge=radial", "sync.bits=4", *ONE_ROUND],
    "muloco": ["sync.strategy=muloco", *MUON, *ONE_ROUND],
    "local-then-lockstep": ["sync.strategy=local-then-lockstep", "sync.local=0.5", *ONE_ROUND],
    **{name: [f"sync.strategy={name}", *SEVERAL_ROUNDS] for name in ("gossip", "sparseloco", "desloc", "sparta")},
    "streaming": ["sync.strategy=streaming", "sync.fragments=2", *SEVERAL_ROUNDS],
    "diloco-sites": ["sync.strategy=diloco", "sync.replicas=2", *ONE_ROUND],
    "sparseloco-sites": ["sync.strategy=sparseloco", "sync.replicas=2", *SEVERAL_ROUNDS],
    "streaming-sites": ["sync.strategy=streaming", "sync.replicas=2", "sync.fragments=2", *SEVERAL_ROUNDS],
    **{name: [f"sync.strategy={name}", "sync.rounds=6"] for name in ("topk", "threshold", "onebit", "powersgd")},
}
FAULTS = "kill:5,leave:2,join:2,hang:1,cut:1,suspend:1"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", default=os.environ.get("MUSTER_BIN_DIR", os.path.join(SOURCE, "build/release/bin")))
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--seed", default="1")
    parser.add_argument("--calm", action="store_true")
    parser.add_argument("--strategies", nargs="?", const="all", help="instead of models")
    args = parser.parse_args()
    muster = os.path.join(args.bin, "muster")
    happened = []
    strategies = [] if args.strategies is None else list(STRATEGIES) if args.strategies == "all" else \
        args.strategies.split(",")
    for name in strategies:
        print(f"--- {name}", flush=True)
        sets = [word for option in [*STRATEGIES[name], "steps=600", "passes=0"] for word in ("-s", option)]
        sites = ["--sites", "2"] if name.endswith("-sites") else []
        happened += disturb(muster, "--faults", FAULTS, "--seed", args.seed, *sites, *sets)

    for model in [] if strategies else args.models.split(","):
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
