#!/usr/bin/env python3
"""Kills workers of a Python loop, and compares the end with an undisturbed run, bit for bit.

    kills.py [--kills 50] [--each 10] [--workers 4] [--steps 800] [--pause 50] [--seed 1]

Runs `muster verify --program` with --each kills at a time, and the next seed each time, until there were
--kills of them. The program is harness.py's: batch normalization and dropout, with a pause of so many
milliseconds in each step, so that kills fall into it. Needs the package and the programs, which it takes
from build/release unless PYTHONPATH and MUSTER_BIN_DIR say otherwise:

    $ ~/.cache/muster/python3.11-*/bin/python tests/python/kills.py
"""

import argparse
import os
import pathlib
import sys
import tempfile
import textwrap

BUILD = pathlib.Path(__file__).resolve().parents[2] / "build" / "release"
os.environ.setdefault("MUSTER_BIN_DIR", str(BUILD / "bin"))
os.environ.setdefault("PYTHONPATH", str(BUILD / "python"))
sys.path.append(os.environ["PYTHONPATH"])

import harness  # noqa: E402
import muster  # noqa: E402


def main(words=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("kills", 50), ("each", 10), ("workers", 4), ("steps", 800), ("pause", 50), ("seed", 1)):
        parser.add_argument(f"--{name}", type=int, default=default)
    args = parser.parse_args(words)
    os.environ["PATH"] = harness.BIN + os.pathsep + os.environ["PATH"]
    done = 0
    hashes = set()
    with tempfile.TemporaryDirectory(prefix="muster-kills-") as folder:
        program = pathlib.Path(folder, "train.py")
        program.write_text(textwrap.dedent(harness.PROGRAM.format(
            options={"checkpoint": {"every": "100 steps"}}, steps=args.steps, before="pass",
            after=f"import time; time.sleep({args.pause / 1000})", end="pass")))
        seed = args.seed
        while done < args.kills:
            kills = min(args.each, args.kills - done)
            found = muster.verify(program, workers=args.workers, faults=f"kill:{kills}", seed=seed)
            print(f"seed {seed}: {found.faults} kills, weights {found.weights_hash}, "
                  f"{'equal, bit for bit' if found else 'DIFFERENT: ' + '; '.join(found.differences)}", flush=True)
            if not found or found.faults != kills:
                return 1
            hashes.add(found.weights_hash)
            done += kills
            seed += 1
    print(f"{done} kills, {len(hashes)} different weights")
    return 0 if len(hashes) == 1 else 1


if __name__ == "__main__":
    sys.exit(main())
