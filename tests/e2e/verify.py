#!/usr/bin/env python3
"""The promise under faults, as CI asks for it every time: `muster verify` on a small job with more than thirty
faults of every kind says "equal"; and on a job whose sums depend on the order, it says that it is not.

    tests/e2e/verify.py [--bin build/release/bin] [--seed N]

docs/determinism.md has the larger campaigns: the same command with more faults.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile

SOURCE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
JOB = os.path.join(SOURCE, "examples/lenet-sample.yaml")
FAULTS = ("kill:10,kill@before-commit:2,kill@after-commit:2,kill@checkpoint:2,kill@transfer:2,kill@forming:2,"
          "kill@recovery:2,kill@evaluation:1,pair:1,most:1,stop:2,leave:3,join:4")


def verify(muster, *words):
    """The exit code and what it found."""
    with tempfile.TemporaryDirectory(prefix="muster-") as folder:
        done = subprocess.run([muster, "verify", JOB, "-o", "json", "--folder", folder, *words],
                              stdout=subprocess.PIPE, text=True)
        if done.returncode not in (0, 9):
            for root, _, names in os.walk(os.path.join(folder, "disturbed", "workers")):
                for name in names:
                    with open(os.path.join(root, name), errors="replace") as log:
                        print(f"--- {name}", *log.readlines()[-20:], sep="\n", file=sys.stderr)
            sys.exit(f"verify ended with {done.returncode}")
        return done.returncode, json.loads(done.stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", default=os.environ.get("MUSTER_BIN_DIR", os.path.join(SOURCE, "build/release/bin")))
    parser.add_argument("--seed", default="1")
    args = parser.parse_args()
    muster = os.path.join(args.bin, "muster")

    code, found = verify(muster, "--workers", "4", "--faults", FAULTS, "--seed", args.seed, "-s", "passes=12")
    for what in found["timeline"]:
        print(f"step {what['step']:>4}  {what['fault']:<20} worker {what['worker']:<10} "
              f"held up {1000 * what['held_up']:.0f} ms"
              + (f", in again after {what['in_again'] - what['time']:.2f} s" if what["in_again"] else ""))
    if code != 0 or not found["equal"] or found["faults"] < 30:
        sys.exit(f"exit code {code}, {found['faults']} faults, differences: {found['differences']}")
    if not any(what["in_again"] for what in found["timeline"]):
        sys.exit("none of those that were hit was seen to come in again")
    print(f"equal after {found['faults']} faults: weights {found['weights_hash']}")

    # The comparison can fail: sums of floats depend on who adds what to what.
    code, found = verify(muster, "--workers", "3", "--faults", "kill:1", "-s", "sync.reduction=native",
                         "-s", "passes=2")
    if code != 9 or found["equal"]:
        sys.exit(f"reduction: native gave equal bits (exit code {code}); then equality proves little")
    print(f"native sums differ, as they must: {found['differences'][0]}")


if __name__ == "__main__":
    main()
