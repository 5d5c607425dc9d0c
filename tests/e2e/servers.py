#!/usr/bin/env python3
"""Parameter servers, with real processes: the same bits with the rows in a worker's own memory and on any number of servers, after
a resumption, and through SIGKILL and SIGSTOP of workers and servers; with rows that stay, and with rows that come and go. And asynchronous training: what was trained, whatever happened
to workers and servers, is computed again with the same bits.

    tests/e2e/servers.py [--bin build/release/bin] [--only sync|evict|async] [--steps 60] [--faults kill:2,kill-server:3,...] [--seed N]

The job is examples/dlrm-synthetic.yaml. CI runs it as it is; a hundred faults take some minutes.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile

from verify import SOURCE, disturb

JOB = os.path.join(SOURCE, "examples/dlrm-synthetic.yaml")
FAULTS = "kill:2,kill@before-commit:1,kill@after-commit:1,kill-server:3,suspend-server:1,leave:1,join:1"
# Rows come and go: in 60 steps nearly every shard evicts some.
COME_AND_GO = ["tables.admit_after=2", "tables.evict_after=15", "tables.most_rows=3000"]
EVICT_FAULTS = "kill:1,kill@after-commit:1,kill-server:2"
# Of asynchronous training.
MODES = {"async": [], "ssp": ["sync.staleness=6", *COME_AND_GO], "softsync": ["sync.pushes=2", "sync.late=scale"]}
LATE_FAULTS = {"async": "kill:1,kill@round:1,kill-server:1,hang:1,flip:1", "ssp": "kill@before-commit:1,kill-server:1,suspend:1,join:1",
               "softsync": "kill:1,kill@checkpoint:2,kill@after-commit:1,leave:1"}
LAYOUTS = ((0, 0), (1, 1), (2, 2), (4, 3))  # workers, servers; 0: one worker with its own rows


def options(sets):
    return [word for one in sets for word in ("-s", one)]


def train(muster, folder, name, steps, workers, servers, sets):
    """Its result."""
    run = os.path.join(folder, name)
    words = ["--workers", str(workers), "-s", f"tables.servers={servers}"] if workers else []
    words += options(sets)
    subprocess.run([muster, "train", JOB, "-q", "--run-dir", run, "-s", "passes=0", "-s", f"steps={steps}", *words],
                   check=True, stdout=subprocess.DEVNULL)
    with open(os.path.join(run, "result.json")) as file:
        return json.load(file)


def check_sync(args, muster, layouts, sets, faults, faulty_steps):
    with tempfile.TemporaryDirectory(prefix="muster-") as folder:
        hashes = {}
        for workers, servers in layouts:
            name = f"{workers}-{servers}"
            result = train(muster, folder, name, args.steps, workers, servers, sets)
            hashes[name] = result["weights_hash"]
            print(f"{workers} workers, {servers} servers: {hashes[name]}  auc {result['test']['auc']:.4f}", flush=True)
        # Resumed from a checkpoint, once with servers and once without.
        for workers, servers in LAYOUTS[:3:2]:
            name = f"resumed-{workers}-{servers}"
            train(muster, folder, name, args.steps // 2, workers, servers, sets)
            words = ["--workers", str(workers)] if workers else []
            subprocess.run([muster, "resume", os.path.join(folder, name) + "/", "-q", "-s", f"steps={args.steps}", *words],
                           check=True, stdout=subprocess.DEVNULL)
            with open(os.path.join(folder, name, "result.json")) as file:
                hashes[name] = json.load(file)["weights_hash"]
        if len(set(hashes.values())) != 1:
            sys.exit(f"the bits differ: {hashes}")
        print(f"equal: {len(hashes)} runs")
    happened = disturb(muster, "--servers", "3", "--faults", faults, "--seed", args.seed, "-s", "passes=0", "-s",
                       f"steps={faulty_steps}", *options(sets), job=JOB)
    check_kinds(faults, happened)


def check_kinds(faults, happened):
    left_out = {part.split(":")[0] for part in faults.split(",")} - {what["fault"] for what in happened}
    if left_out:
        sys.exit(f"none of the kinds {sorted(left_out)}")


def check_modes(args, muster):
    for mode, sets in MODES.items():
        print(f"{mode}:")
        sets = ["sync.strategy=server", f"sync.mode={mode}", "passes=0", f"steps={args.late_steps}", "eval.every=never",
                "checkpoint.every=32 steps", *sets]
        faults = args.late_faults or LATE_FAULTS[mode]
        check_kinds(faults, disturb(muster, "--servers", "2", "--faults", faults, "--seed", args.seed,
                                    *options(sets), job=JOB))


def check_resumed(args, muster, folder):
    """A run that was stopped, and went on with other servers."""
    run = os.path.join(folder, "late")
    words = ["--workers", "2", "-s", "sync.strategy=server", "-s", "passes=0"]
    subprocess.run([muster, "train", JOB, "-q", "--run-dir", run, "-s", "steps=40", *words], check=True, stdout=subprocess.DEVNULL)
    subprocess.run([muster, "resume", run + "/", "-q", "-s", "steps=70", "--workers", "3"], check=True, stdout=subprocess.DEVNULL)
    done = subprocess.run([muster, "replay", run + "/", "-o", "json"], check=True, stdout=subprocess.PIPE, text=True)
    replay = json.loads(done.stdout)
    print(f"resumed, then replayed: {replay['replayed']}, {replay['record_bytes'] / replay['pushes']:.1f} bytes a push")
    if not replay["equal"] or replay["pushes"] != 70 * 4:
        sys.exit(f"the replay of a resumed run: {replay}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", default=os.environ.get("MUSTER_BIN_DIR", os.path.join(SOURCE, "build/release/bin")))
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--faulty-steps", type=int, default=400, help="of the run with faults")
    parser.add_argument("--faults", default=FAULTS)
    parser.add_argument("--seed", default="1")
    parser.add_argument("--late-steps", type=int, default=320, help="of asynchronous runs")
    parser.add_argument("--late-faults", help="of asynchronous runs; default: others for each mode")
    parser.add_argument("--only", choices=("sync", "evict", "async"))
    args = parser.parse_args()
    muster = os.path.join(args.bin, "muster")
    if args.only in (None, "sync"):
        check_sync(args, muster, LAYOUTS, [], args.faults, args.faulty_steps)
    if args.only in (None, "evict"):
        print("rows come and go:")
        check_sync(args, muster, LAYOUTS[::2] + LAYOUTS[3:], COME_AND_GO, EVICT_FAULTS, args.faulty_steps // 2)
    if args.only in (None, "async"):
        with tempfile.TemporaryDirectory(prefix="muster-") as folder:
            check_resumed(args, muster, folder)
        check_modes(args, muster)


if __name__ == "__main__":
    main()
