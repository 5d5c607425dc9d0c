#!/usr/bin/env python3
"""Parameter servers, with real processes: the same bits with the rows in a worker's own memory and on any number of servers, after
a resumption, and through SIGKILL and SIGSTOP of workers and servers. And asynchronous training: what was trained, whatever happened
to workers and servers, is computed again with the same bits.

    tests/e2e/servers.py [--bin build/release/bin] [--only sync|async] [--modes async,ssp,...] [--steps 60]
                         [--faults kill:2,kill-server:3,...] [--seed N]

The job is examples/dlrm-synthetic.yaml; for easgd, which has no rows of tables, examples/lenet-sample.yaml. CI runs it as it is; a
hundred faults take some minutes.
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
# Of asynchronous training.
MODES = {"async": [], "ssp": ["sync.staleness=6"], "softsync": ["sync.pushes=2", "sync.late=scale"],
         "easgd": ["sync.fetch=8", "lanes=4", "optimizer.nesterov=true"]}
JOBS = {"easgd": os.path.join(SOURCE, "examples/lenet-sample.yaml")}  # default: JOB
LATE_FAULTS = {"async": "kill:1,kill@round:1,kill-server:1,hang:1,flip:1", "ssp": "kill@before-commit:1,kill-server:1,suspend:1,join:1",
               "softsync": "kill:1,kill@checkpoint:2,kill@after-commit:1,leave:1",
               "easgd": "kill:1,kill@round:2,kill-server:1,join:1"}
LAYOUTS = ((0, 0), (1, 1), (2, 2), (4, 3))  # workers, servers; 0: one worker with its own rows


def train(muster, folder, name, steps, workers, servers):
    """Its result."""
    run = os.path.join(folder, name)
    words = ["--workers", str(workers), "-s", f"tables.servers={servers}"] if workers else []
    subprocess.run([muster, "train", JOB, "-q", "--run-dir", run, "-s", "passes=0", "-s", f"steps={steps}", *words],
                   check=True, stdout=subprocess.DEVNULL)
    with open(os.path.join(run, "result.json")) as file:
        return json.load(file)


def check_sync(args, muster):
    with tempfile.TemporaryDirectory(prefix="muster-") as folder:
        hashes = {}
        for workers, servers in LAYOUTS:
            name = f"{workers}-{servers}"
            result = train(muster, folder, name, args.steps, workers, servers)
            hashes[name] = result["weights_hash"]
            print(f"{workers} workers, {servers} servers: {hashes[name]}  auc {result['test']['auc']:.4f}", flush=True)
        # Resumed from a checkpoint, once with servers and once without.
        for workers, servers in LAYOUTS[:3:2]:
            name = f"resumed-{workers}-{servers}"
            train(muster, folder, name, args.steps // 2, workers, servers)
            words = ["--workers", str(workers)] if workers else []
            subprocess.run([muster, "resume", os.path.join(folder, name) + "/", "-q", "-s", f"steps={args.steps}", *words],
                           check=True, stdout=subprocess.DEVNULL)
            with open(os.path.join(folder, name, "result.json")) as file:
                hashes[name] = json.load(file)["weights_hash"]
        if len(set(hashes.values())) != 1:
            sys.exit(f"the bits differ: {hashes}")
        print(f"equal: {len(hashes)} runs")
    happened = disturb(muster, "--servers", "3", "--faults", args.faults, "--seed", args.seed, "-s", "passes=0", "-s",
                       f"steps={args.faulty_steps}", job=JOB)
    check_kinds(args.faults, happened)


def check_kinds(faults, happened):
    left_out = {part.split(":")[0] for part in faults.split(",")} - {what["fault"] for what in happened}
    if left_out:
        sys.exit(f"none of the kinds {sorted(left_out)}")


def check_modes(args, muster):
    for mode in args.modes.split(","):
        sets = MODES[mode]
        print(f"{mode}:")
        sets = ["sync.strategy=server", f"sync.mode={mode}", "passes=0", f"steps={args.late_steps}", "eval.every=never",
                "checkpoint.every=32 steps", *sets]
        faults = args.late_faults or LATE_FAULTS[mode]
        check_kinds(faults, disturb(muster, "--servers", "2", "--faults", faults, "--seed", args.seed,
                                    *(word for one in sets for word in ("-s", one)), job=JOBS.get(mode, JOB)))


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
    parser.add_argument("--modes", default=",".join(MODES), help="of asynchronous runs")
    parser.add_argument("--only", choices=("sync", "async"))
    args = parser.parse_args()
    muster = os.path.join(args.bin, "muster")
    if args.only != "async":
        check_sync(args, muster)
    if args.only != "sync":
        with tempfile.TemporaryDirectory(prefix="muster-") as folder:
            check_resumed(args, muster, folder)
        check_modes(args, muster)


if __name__ == "__main__":
    main()
