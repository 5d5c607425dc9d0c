#!/usr/bin/env python3
"""Parameter servers, with real processes: the same bits with the rows in a worker's own memory and on any number of servers, after
a resumption, and through SIGKILL and SIGSTOP of workers and servers; and the same with all of the model on servers (sync.mode: sync).
And asynchronous training: what was trained, whatever happened to workers and servers, is computed again with the same bits.

    tests/e2e/servers.py [--bin build/release/bin] [--only sync|steps|async] [--steps 60] [--faults kill:2,kill-server:3,...] [--seed N]

The job is examples/dlrm-synthetic.yaml; with all of the model on servers, examples/lenet-sample.yaml and a small GPT. CI runs it as it
is; a hundred faults take some minutes.
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
MODES = {"async": ["sync.late=compensate"], "ssp": ["sync.staleness=6"], "softsync": ["sync.pushes=2", "sync.late=scale"]}
LATE_FAULTS = {"async": "kill:1,kill@round:1,kill-server:1,hang:1,flip:1", "ssp": "kill@before-commit:1,kill-server:1,suspend:1,join:1",
               "softsync": "kill:1,kill@checkpoint:2,kill@after-commit:1,leave:1"}
IN_STEPS = ["sync.strategy=server", "sync.mode=sync", "passes=0", "optimizer.momentum=0", "optimizer.weight_decay=0",
            "optimizer.decay_on=all", "optimizer.clip.norm=0"]
# Of steps with all of the model on servers: a job, what is set in it, and how many steps there are with faults.
STEPS = {"lenet": ("examples/lenet-sample.yaml", ["eval.every=20 steps"], 160),
         "gpt": ("examples/gpt-shakespeare.yaml",
                 ["data.train.path=TEXT", "data.test.path=TEXT", "model.args={ layers: 2, heads: 2, width: 32, dropout: 0.1 }",
                  "optimizer.kind=adam", "eval.samples=64", "checkpoint.every=40 steps"], 200)}
STEP_FAULTS = "kill:2,kill@before-commit:1,kill@after-commit:2,kill@checkpoint:1,kill-server:2,flip:1,leave:1,join:1"
LAYOUTS = ((0, 0), (1, 1), (2, 2), (4, 3))  # workers, servers; 0: one worker with its own rows


def words_of(sets):
    return [word for one in sets for word in ("-s", one)]


def train(muster, job, run, sets, workers, servers):
    """Its result."""
    words = ["--workers", str(workers), "-s", f"tables.servers={servers}"] if workers else []
    subprocess.run([muster, "train", job, "-q", "--run-dir", run, *words_of(sets), *words], check=True, stdout=subprocess.DEVNULL)
    with open(os.path.join(run, "result.json")) as file:
        return json.load(file)


def check_layouts(muster, job, sets, steps):
    """The same bits with any workers and servers, and resumed from a checkpoint, once with servers and once without."""
    with tempfile.TemporaryDirectory(prefix="muster-") as folder:
        hashes = {}
        for workers, servers in LAYOUTS:
            name = f"{workers}-{servers}"
            result = train(muster, job, os.path.join(folder, name), [*sets, f"steps={steps}"], workers, servers)
            hashes[name] = result["weights_hash"]
            test = "  ".join(f"{metric} {value:.4f}" for metric, value in result["test"].items())
            print(f"{workers} workers, {servers} servers: {hashes[name]}  {test}", flush=True)
        for workers, servers in LAYOUTS[:3:2]:
            run = os.path.join(folder, f"resumed-{workers}-{servers}")
            train(muster, job, run, [*sets, f"steps={steps // 2}"], workers, servers)
            words = ["--workers", str(workers)] if workers else []
            subprocess.run([muster, "resume", run + "/", "-q", "-s", f"steps={steps}", *words], check=True, stdout=subprocess.DEVNULL)
            with open(os.path.join(run, "result.json")) as file:
                hashes[os.path.basename(run)] = json.load(file)["weights_hash"]
        if len(set(hashes.values())) != 1:
            sys.exit(f"the bits differ: {hashes}")
        print(f"equal: {len(hashes)} runs")


def check_sync(args, muster):
    check_layouts(muster, JOB, ["passes=0"], args.steps)
    happened = disturb(muster, "--servers", "3", "--faults", args.faults, "--seed", args.seed, "-s", "passes=0", "-s",
                       f"steps={args.faulty_steps}", job=JOB)
    check_kinds(args.faults, happened)


def check_steps(args, muster):
    text = os.path.join(SOURCE, "examples/data/tinyshakespeare/input.txt")
    for name, (job, sets, steps) in STEPS.items():
        print(f"{name}, all of it on servers:")
        job = os.path.join(SOURCE, job)
        sets = [*IN_STEPS, *(one.replace("TEXT", text) for one in sets)]
        check_layouts(muster, job, sets, args.steps)
        happened = disturb(muster, "--servers", "3", "--faults", STEP_FAULTS, "--seed", args.seed,
                           *words_of([*sets, f"steps={steps}"]), job=job)
        check_kinds(STEP_FAULTS, happened)


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
                                    *words_of(sets), job=JOB))


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
    parser.add_argument("--only", choices=("sync", "steps", "async"))
    args = parser.parse_args()
    muster = os.path.join(args.bin, "muster")
    if args.only in (None, "sync"):
        check_sync(args, muster)
    if args.only in (None, "steps"):
        check_steps(args, muster)
    if args.only in (None, "async"):
        with tempfile.TemporaryDirectory(prefix="muster-") as folder:
            check_resumed(args, muster, folder)
        check_modes(args, muster)


if __name__ == "__main__":
    main()
