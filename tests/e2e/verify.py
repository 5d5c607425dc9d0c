#!/usr/bin/env python3
"""The promise under faults, as CI asks for it every time: `muster verify` on a small job with at least sixty faults
of every kind says "equal"; and on a job whose sums depend on the order, it says that it is not.

    tests/e2e/verify.py [--bin build/release/bin] [--seed N] [--all]

Of the rows below for other strategies, only the first two and the first with sites, unless --all is given: the others take as
long as all the rest.

Larger: tests/e2e/campaign.py, and what it printed in docs/determinism.md.
"""
import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile

SOURCE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
JOB = os.path.join(SOURCE, "examples/lenet-sample.yaml")
# Data that is read by blocks, while it is used.
STREAMED = os.path.join(SOURCE, "examples/mnist-tfrecord.yaml")
STREAMED_FAULTS = "kill:4,kill@before-commit:1,kill@recovery:1,suspend:1,leave:1,join:2"
# Under `muster train`.
FAULTS = ("kill:12,kill@before-commit:2,kill@after-commit:2,kill@checkpoint:2,kill@transfer:2,kill@forming:2,"
          "kill@recovery:2,kill@evaluation:1,pair:2,most:1,suspend:2,leave:4,join:5,hang:1,slow-disk:2,pause:2")
# With a coordinator that is killed there is no `muster train`.
RESTARTS = "restart:6,pause:1,hang:1,kill:5,leave:1,join:2"
# Workers that are faulty, found by audits.
AUDITS = "flip:1,lie:1,kill:1"
# Other strategies than lockstep with all bits: one of each way to commit. All of them: campaign.py --strategies.
STRATEGIES = [(["sync.bits=4", "sync.rotation=hadamard", "sync.lane_groups=4"], "kill:2,suspend:1,join:1"),
              (["sync.strategy=diloco", "sync.period=4", "sync.bits=4", "sync.merge=radial"],
               "kill:2,kill@before-commit:1,kill@after-commit:1,leave:1,flip:1"),
              (["sync.strategy=gossip", "sync.period=4", "sync.rounds=2"], "kill@round:1,kill@after-commit:1,pair:1"),
              (["sync.strategy=streaming", "sync.period=4", "sync.fragments=2", "sync.rounds=2"],
               "kill@round:1,kill@before-commit:1"),
              (["sync.strategy=desloc", "sync.period=4", "sync.rounds=4"], "kill@round:1"),
              (["sync.strategy=local-then-lockstep", "sync.period=4", "sync.local=0.5"],
               "kill@before-commit:1,kill@after-commit:1,kill@recovery:1"),
              (["sync.strategy=topk", "sync.rounds=5"], "kill@round:1,flip:1,leave:1")]
SITES = [(["sync.strategy=diloco", "sync.period=6", "sync.bits=4"], "kill:3,kill@round:1,leave:1,suspend:1"),
         (["sync.strategy=sparseloco", "sync.period=4", "sync.rounds=3"], "kill:2,kill@before-commit:1"),
         (["sync.strategy=streaming", "sync.period=4", "sync.fragments=2", "sync.rounds=2"], "kill:1,kill@round:1")]
LEAST = 60
KINDS = ("kill", "pair", "most", "suspend", "hang", "leave", "join", "slow-disk", "pause", "restart", "flip", "lie",
         *(f"kill@{point}" for point in ("before-commit", "after-commit", "checkpoint", "transfer", "forming",
                                         "recovery", "evaluation", "round")))


def verify(muster, *words, job=JOB):
    """The exit code and what it found."""
    with tempfile.TemporaryDirectory(prefix="muster-") as folder:
        done = subprocess.run([muster, "verify", job, "-o", "json", "--folder", folder, *words],
                              stdout=subprocess.PIPE, text=True)
        if done.returncode not in (0, 9):
            for root, _, names in os.walk(os.path.join(folder, "disturbed", "workers")):
                for name in names:
                    with open(os.path.join(root, name), errors="replace") as log:
                        print(f"--- {name}", *log.readlines()[-20:], sep="\n", file=sys.stderr)
            sys.exit(f"verify ended with {done.returncode}")
        return done.returncode, json.loads(done.stdout)


def disturbed(muster, *words, job=JOB):
    """Four workers and these faults, shown; what was found. Ends everything unless the runs are equal."""
    code, found = verify(muster, "--workers", "4", *words, job=job)
    for what in found["timeline"]:
        print(f"step {what['step']:>4}  {what['fault']:<20} {what['worker']:<12} "
              f"stalled {1000 * (what['stalled'] or 0):.0f} ms"
              + (f", rejoined after {what['rejoined'] - what['time']:.2f} s" if what["rejoined"] else ""))
    if code != 0 or not found["equal"]:
        sys.exit(f"exit code {code}, {found['faults']} faults, differences: {found['differences']}")
    print(f"equal after {found['faults']} faults: weights {found['weights_hash']}", flush=True)
    return found


def disturb(muster, *words, job=JOB):
    """The same; what happened."""
    return disturbed(muster, *words, job=job)["timeline"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", default=os.environ.get("MUSTER_BIN_DIR", os.path.join(SOURCE, "build/release/bin")))
    parser.add_argument("--seed", default="1")
    parser.add_argument("--all", action="store_true", help="all rows of strategies and sites")
    args = parser.parse_args()
    muster = os.path.join(args.bin, "muster")

    faults, kinds = FAULTS, set(KINDS)
    if os.geteuid() == 0 and shutil.which("ip") and shutil.which("nsenter"):
        faults += ",cut:1"
        kinds.add("cut")
    else:
        print("cut is left out: networks that can be cut need root and iproute2")
    happened = disturb(muster, "--faults", faults, "--seed", args.seed, "-s", "passes=14")
    happened += disturb(muster, "--faults", RESTARTS, "--seed", args.seed, "-s", "passes=10")
    happened += disturb(muster, "--faults", AUDITS, "--seed", args.seed, "-s", "passes=8")
    with tempfile.TemporaryDirectory(prefix="muster-data-") as data:
        convert = os.path.join(SOURCE, "examples/data/convert.py")
        subprocess.run([sys.executable, "-B", convert, os.path.join(SOURCE, "examples/data/mnist"), data], check=True)
        happened += disturb(muster, "--faults", STREAMED_FAULTS, "--seed", args.seed,
                            "-s", f"data.train.path={data}/tfrecord/train-*.tfrecord",
                            "-s", f"data.test.path={data}/tfrecord/test.tfrecord", job=STREAMED)
    for sets, faults in STRATEGIES if args.all else STRATEGIES[:2]:
        options = [word for option in sets for word in ("-s", option)]
        happened += disturb(muster, "--faults", faults, "--seed", args.seed, "-s", "passes=6", *options)
    # Two workers compute a replica together.
    for sets, faults in SITES if args.all else SITES[:1]:
        options = [word for option in [*sets, "sync.replicas=2", "passes=6"] for word in ("-s", option)]
        happened += disturb(muster, "--sites", "2", "--faults", faults, "--seed", args.seed, *options)
    left_out = kinds - {what["fault"] for what in happened}
    if len(happened) < LEAST or left_out:
        sys.exit(f"{len(happened)} faults, of {LEAST}; none of the kinds {sorted(left_out)}")
    if not any(what["rejoined"] for what in happened):
        sys.exit("none of those that were hit was seen to rejoin")
    print(f"equal after {len(happened)} faults of {len(kinds)} kinds")

    # The comparison can fail: sums of floats depend on who adds what to what.
    code, found = verify(muster, "--workers", "3", "--faults", "kill:1", "-s", "sync.reduction=native",
                         "-s", "passes=2")
    if code != 9 or found["equal"]:
        sys.exit(f"reduction: native gave equal bits (exit code {code}); then equality proves little")
    print(f"native sums differ, as they must: {found['differences'][0]}")


if __name__ == "__main__":
    main()
