#!/usr/bin/env python3
"""Parameter servers, with real processes: the same bits with the rows in a worker's own memory and on any number of servers, after
a resumption, with most of them on disk, with rows that are admitted late and evicted, and through SIGKILL and SIGSTOP of workers and
servers; and the same with all of the model on servers (sync.mode: sync). And asynchronous training: what was trained, whatever happened
to workers and servers, is computed again with the same bits. With --only ends: a launcher that is killed leaves no process behind, and
Ctrl-C in the middle of a round that would take minutes ends the job with what is trained; and a job whose rows are lost ends with one
sentence and is resumed, as does one whose servers have no memory for its rows; takes minutes.

    tests/e2e/servers.py [--bin build/release/bin] [--only sync|evict|steps|async|ends] [--modes async,ssp,...] [--steps 60]
                         [--faults kill:2,kill-server:3,...] [--seed N]

The job is examples/dlrm-synthetic.yaml. For easgd, which has no rows of tables, it is examples/lenet-sample.yaml; for steps with all of
the model on servers, that and a small GPT. CI runs it as it is. A hundred faults aimed at servers take some minutes:

    tests/e2e/servers.py --only sync --faulty-steps 11000 --seed 2 \\
        --faults kill-server@ack:30,kill-server@confirm:30,kill-server@copy:15,kill-server@join:10,kill-server@save:20
"""
import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time

from soak import descendants, stat_of
from verify import SOURCE, disturb

JOB = os.path.join(SOURCE, "examples/dlrm-synthetic.yaml")
FAULTS = ("kill:1,kill@before-commit:1,kill@after-commit:1,suspend:1,leave:1,join:1,flip:1,lie:1,kill-server:1,kill-server@ack:1,"
          "kill-server@confirm:1,kill-server@save:1,suspend-server:1")
STALE_FAULTS = "kill:1,kill@after-commit:2,kill-server:2,suspend-server:1"
# Rows are admitted late, and evicted: in 60 steps nearly every shard evicts some.
COME_AND_GO = ["tables.admit_after=2", "tables.evict_after=15", "tables.most_rows=3000"]
EVICT_FAULTS = "kill:1,kill@after-commit:1,kill-server:2"
# Of steps with all of the model on servers: a job, what is set in it, and faults.
IN_STEPS = ["sync.strategy=server", "sync.mode=sync", "optimizer.momentum=0", "optimizer.weight_decay=0", "optimizer.decay_on=all",
            "optimizer.clip.norm=0"]
STEPS = {"lenet": ("examples/lenet-sample.yaml", ["eval.every=20 steps"],
                   "kill:1,kill@before-commit:1,kill@after-commit:2,kill@checkpoint:1,kill-server:2,flip:1,leave:1,join:1"),
         "dlrm": ("examples/dlrm-synthetic.yaml", [], "kill:1,kill@after-commit:2,kill-server:1"),
         "gpt": ("examples/gpt-shakespeare.yaml",
                 ["data.train.path=TEXT", "data.test.path=TEXT", "model.args={ layers: 2, heads: 2, width: 32, dropout: 0.1 }",
                  "optimizer.kind=adam", "eval.samples=64"],
                 "kill@after-commit:1,kill-server:1")}
# Of asynchronous training.
MODES = {"async": ["sync.late=compensate"], "ssp": ["sync.staleness=6", *COME_AND_GO], "softsync": ["sync.pushes=2", "sync.late=scale"],
         "easgd": ["sync.fetch=8", "lanes=4", "optimizer.nesterov=true"]}
JOBS = {"easgd": os.path.join(SOURCE, "examples/lenet-sample.yaml")}  # default: JOB
LATE_FAULTS = {"async": "kill:1,kill@round:1,kill-server@ack:1,hang:1,flip:1",
               "ssp": "kill@before-commit:1,kill-server@confirm:1,suspend:1,join:1",
               "softsync": "kill:1,kill@checkpoint:2,kill@after-commit:1,leave:1,kill-server@save:1",
               "easgd": "kill:1,kill@round:2,kill-server:1,join:1"}
LAYOUTS = ((0, 0), (1, 1), (2, 2), (4, 3))  # workers, servers; 0: one worker with its own rows
FEW_LAYOUTS = ((0, 0), (4, 3))
LITTLE = "tables.memory=4MiB"  # so little that most rows of a server are on its disk
DISK_FAULTS = "kill:1,kill-server:2"


def words_of(sets):
    return [word for one in sets for word in ("-s", one)]


def train(muster, job, run, sets, workers, servers):
    """Its result."""
    words = ["--workers", str(workers), "-s", f"tables.servers={servers}"] if workers else []
    subprocess.run([muster, "train", job, "-q", "--run-dir", run, *words_of(["passes=0", *sets]), *words], check=True,
                   stdout=subprocess.DEVNULL)
    with open(os.path.join(run, "result.json")) as file:
        return json.load(file)


def check_layouts(muster, job, sets, steps, layouts):
    """The same bits with any workers and servers, and resumed from a checkpoint: with servers, and if there are many layouts once
    without."""
    with tempfile.TemporaryDirectory(prefix="muster-") as folder:
        hashes = {}
        for workers, servers in layouts:
            name = f"{workers}-{servers}"
            result = train(muster, job, os.path.join(folder, name), [*sets, f"steps={steps}"], workers, servers)
            hashes[name] = result["weights_hash"]
            test = "  ".join(f"{metric} {value:.4f}" for metric, value in result["test"].items())
            print(f"{workers} workers, {servers} servers: {hashes[name]}  {test}", flush=True)
        for workers, servers in LAYOUTS[:3:2] if layouts == LAYOUTS else LAYOUTS[2:3]:
            run = os.path.join(folder, f"resumed-{workers}-{servers}")
            train(muster, job, run, [*sets, f"steps={steps // 2}"], workers, servers)
            words = ["--workers", str(workers)] if workers else []
            subprocess.run([muster, "resume", run + "/", "-q", "-s", f"steps={steps}", *words], check=True, stdout=subprocess.DEVNULL)
            with open(os.path.join(run, "result.json")) as file:
                hashes[os.path.basename(run)] = json.load(file)["weights_hash"]
        if len(set(hashes.values())) != 1:
            sys.exit(f"the bits differ: {hashes}")
        print(f"equal: {len(hashes)} runs")


def check_faults(args, muster, job, sets, faults, steps):
    """The same bits with these faults, and three servers."""
    check_kinds(faults, disturb(muster, "--servers", "3", "--faults", faults, "--seed", args.seed,
                                *words_of(["passes=0", f"steps={steps}", "checkpoint.every=40 steps", "workers.move_lanes=false",
                                           *sets]), job=job))


def check_sync(args, muster, layouts, sets, faults, steps):
    print(f"in lockstep{''.join(', ' + one for one in sets)}:")
    check_layouts(muster, JOB, sets, args.steps, layouts)
    check_faults(args, muster, JOB, sets, faults, steps)


def check_steps(args, muster):
    text = os.path.join(SOURCE, "examples/data/tinyshakespeare/input.txt")
    for name, (job, sets, faults) in STEPS.items():
        print(f"{name}, all of it on servers:")
        job = os.path.join(SOURCE, job)
        sets = [*IN_STEPS, *(one.replace("TEXT", text) for one in sets)]
        check_layouts(muster, job, sets, args.steps, FEW_LAYOUTS)
        check_faults(args, muster, job, sets, faults, args.faulty_steps // 4)


def check_disk(args, muster):
    with tempfile.TemporaryDirectory(prefix="muster-") as folder:
        disk = f"tables.disk={os.path.join(folder, 'disk')}"
        hashes = [train(muster, JOB, os.path.join(folder, name), [*sets, f"steps={args.steps}"], 2, 2)["weights_hash"]
                  for name, sets in (("memory", []), ("on-disk", [LITTLE, disk]))]
        print(f"2 workers, 2 servers without and with a disk: {hashes}", flush=True)
        if hashes[0] != hashes[1]:
            sys.exit("the bits differ")
        check_kinds(DISK_FAULTS, disturb(muster, "--servers", "2", "--faults", DISK_FAULTS, "--seed", args.seed, "-s", "passes=0",
                                         "-s", f"steps={args.faulty_steps // 4}", "-s", LITTLE, "-s", disk, job=JOB))
        left = os.listdir(os.path.join(folder, "disk"))
        if left:
            sys.exit(f"servers have left rows behind: {left}")


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
                                    *words_of(sets), job=JOBS.get(mode, JOB)))


def check_resumed(args, muster, folder):
    """A run that was stopped, and went on with other servers."""
    run = os.path.join(folder, "late")
    words = ["--workers", "2", "-s", "sync.strategy=server", "-s", "passes=0"]
    subprocess.run([muster, "train", JOB, "-q", "--run-dir", run, "-s", "steps=40", *words], check=True, stdout=subprocess.DEVNULL)
    subprocess.run([muster, "resume", run + "/", "-q", "-s", "steps=70", "--workers", "3"], check=True, stdout=subprocess.DEVNULL)
    replay = check_replay(muster, run, 70 * 4)
    print(f"resumed, then replayed: {replay['replayed']}, {replay['record_bytes'] / replay['pushes']:.1f} bytes a push")


def start(muster, run, steps, *sets, stderr=None):
    """`muster train` with two workers and two servers, after its first checkpoint: the process, and those that it has started."""
    sets = ["passes=0", f"steps={steps}", "eval.every=never", *sets]
    process = subprocess.Popen([muster, "train", JOB, "-q", "--run-dir", run, "--workers", "2",
                                *words_of(sets)], stdout=subprocess.DEVNULL, stderr=stderr, text=True)
    checkpoints = os.path.join(run, "checkpoints")
    until = time.monotonic() + 60
    while not (os.path.isdir(checkpoints) and any(name.startswith("step-") for name in os.listdir(checkpoints))):
        if process.poll() is not None or time.monotonic() > until:
            process.kill()
            sys.exit(f"no checkpoint in {run}; exit code {process.poll()}")
        time.sleep(0.02)
    return process, {pid: born for pid, (state, _, born) in descendants(process.pid).items() if state != "Z"}


def await_end(processes, seconds):
    """Those that are still there after so long."""
    until = time.monotonic() + seconds
    while True:
        stats = {pid: stat_of(pid) for pid in processes}
        left = {pid for pid, stat in stats.items() if stat and stat[0] != "Z" and stat[2] == processes[pid]}
        if not left or time.monotonic() > until:
            return left
        time.sleep(0.05)


def resumed(muster, run):
    """The result."""
    subprocess.run([muster, "resume", run + "/", "-q", "--workers", "2"], check=True, stdout=subprocess.DEVNULL)
    with open(os.path.join(run, "result.json")) as file:
        return json.load(file)


def check_replay(muster, run, pushes=None):
    done = subprocess.run([muster, "replay", run + "/", "-o", "json"], stdout=subprocess.PIPE, text=True)
    replay = json.loads(done.stdout)
    if done.returncode != 0 or not replay["equal"] or pushes not in (None, replay["pushes"]):
        sys.exit(f"the replay of {run}: {replay}")
    return replay


def check_killed_launcher(muster, folder):
    """Nothing is left of its job, which can be resumed."""
    steps = 400
    expected = train(muster, JOB, os.path.join(folder, "whole"), [f"steps={steps}"], 0, 0)["weights_hash"]
    for name, sets in (("lockstep", []), ("async", ["sync.strategy=server"])):
        run = os.path.join(folder, f"killed-{name}")
        process, others = start(muster, run, steps, "checkpoint.every=16 steps", *sets)
        process.kill()
        process.wait()
        if len(others) < 4:
            sys.exit(f"two workers and two servers were expected, not {len(others)} processes")
        left = await_end(others, 45)  # workers look for their servers for half a minute
        for pid in left:
            os.kill(pid, signal.SIGKILL)
        if left:
            sys.exit(f"{len(left)} of {len(others)} processes are left of a launcher that was killed ({name})")
        result = resumed(muster, run)
        if name == "async":
            check_replay(muster, run, steps * 4)
        elif result["weights_hash"] != expected:
            sys.exit(f"after the launcher was killed: {result['weights_hash']}, not {expected}")
        print(f"{name}: the launcher was killed, its {len(others)} processes ended, and the job was resumed", flush=True)


def name_of(pid):
    try:
        with open(f"/proc/{pid}/comm") as file:
            return file.read().strip()
    except OSError:
        return ""


def check_lost_rows(muster, folder):
    """All servers are killed at once: the job ends at once, and says what to do."""
    steps = 400
    expected = train(muster, JOB, os.path.join(folder, "not-lost"), [f"steps={steps}"], 0, 0)["weights_hash"]
    run = os.path.join(folder, "lost")
    process, others = start(muster, run, steps, "checkpoint.every=16 steps", stderr=subprocess.PIPE)
    servers = [pid for pid in others if name_of(pid) == "muster-server"]
    for pid in servers:
        os.kill(pid, signal.SIGKILL)
    try:
        said = process.communicate(timeout=60)[1]
    except subprocess.TimeoutExpired:
        process.kill()
        sys.exit("the rows are lost, and the job goes on for a minute")
    if len(servers) != 2 or process.returncode != 6 or "are lost" not in said or "muster resume" not in said:
        sys.exit(f"{len(servers)} servers were killed: exit code {process.returncode}, {said}")
    result = resumed(muster, run)
    if result["weights_hash"] != expected:
        sys.exit(f"after rows were lost: {result['weights_hash']}, not {expected}")
    print("all servers were killed: the job ended with exit code 6, and was resumed", flush=True)


def check_suspended(muster, folder):
    """Ctrl-Z and fg."""
    steps = 400
    expected = train(muster, JOB, os.path.join(folder, "not-suspended"), [f"steps={steps}"], 0, 0)["weights_hash"]
    run = os.path.join(folder, "suspended")
    process, others = start(muster, run, steps, "checkpoint.every=16 steps")
    process.send_signal(signal.SIGTSTP)
    until = time.monotonic() + 10
    while any((stat_of(pid) or "T")[0] != "T" for pid in (process.pid, *others)):
        if time.monotonic() > until:
            sys.exit("Ctrl-Z does not suspend all processes of a job with servers")
        time.sleep(0.02)
    time.sleep(3)  # longer than a lease
    process.send_signal(signal.SIGCONT)
    process.wait()
    with open(os.path.join(run, "result.json")) as file:
        found = json.load(file)["weights_hash"]
    if process.returncode != 0 or found != expected:
        sys.exit(f"suspended and continued: exit code {process.returncode}, {found}, not {expected}")
    print(f"{1 + len(others)} processes were suspended by Ctrl-Z and continued: the same bits", flush=True)


def check_full_memory(muster, folder):
    """The first server without memory for a row ends the job, and what it says is shown."""
    run = os.path.join(folder, "full")
    done = subprocess.run([muster, "train", JOB, "-q", "--run-dir", run, "--workers", "2", *words_of(
        ["passes=0", "steps=400", "eval.every=never", "tables.servers=2", LITTLE])], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
        text=True, timeout=120)
    if done.returncode != 8 or "has no memory for another row" not in done.stderr or "tables.memory" not in done.stderr:
        sys.exit(f"the memory of servers is full: exit code {done.returncode}, {done.stderr}")
    print("the memory of servers was full: the job ended with what they said", flush=True)


def check_interrupted_round(muster, folder):
    """Ctrl-C, as launchers get it."""
    run = os.path.join(folder, "interrupted")
    steps = 20000
    process = subprocess.Popen([muster, "train", JOB, "--run-dir", run, "--workers", "2", "-s", "sync.strategy=server", "-s", "passes=0",
                                "-s", f"steps={steps}", "-s", f"sync.period={steps}", "-s", "eval.every=never"],
                               stdout=subprocess.PIPE, text=True)
    said = next((line for line in process.stdout if "2 workers" in line), None)
    time.sleep(3)  # all of it is one round, of minutes
    process.send_signal(signal.SIGINT)
    process.communicate()
    step = check_replay(muster, run)["pushes"] // 4
    if not said or process.returncode != 130 or not 0 < step < steps:
        sys.exit(f"Ctrl-C in the middle of a round: exit code {process.returncode}, step {step}")
    print(f"Ctrl-C in the middle of a round of {steps} steps: ended after step {step}, and replayed", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", default=os.environ.get("MUSTER_BIN_DIR", os.path.join(SOURCE, "build/release/bin")))
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--faulty-steps", type=int, default=600, help="of the run with faults")
    parser.add_argument("--faults", help="of runs in lockstep; default: others for each")
    parser.add_argument("--seed", default="1")
    parser.add_argument("--late-steps", type=int, default=320, help="of asynchronous runs")
    parser.add_argument("--late-faults", help="of asynchronous runs; default: others for each mode")
    parser.add_argument("--modes", default=",".join(MODES), help="of asynchronous runs")
    parser.add_argument("--only", choices=("sync", "evict", "steps", "async", "ends"))
    args = parser.parse_args()
    muster = os.path.join(args.bin, "muster")
    if args.only == "ends":
        with tempfile.TemporaryDirectory(prefix="muster-") as folder:
            check_killed_launcher(muster, folder)
            check_suspended(muster, folder)
            check_interrupted_round(muster, folder)
            check_lost_rows(muster, folder)
            check_full_memory(muster, folder)
    if args.only in (None, "sync"):
        check_sync(args, muster, LAYOUTS, [], args.faults or FAULTS, args.faulty_steps)
        check_sync(args, muster, FEW_LAYOUTS, ["tables.staleness=2"], args.faults or STALE_FAULTS, args.faulty_steps // 2)
        check_disk(args, muster)
    if args.only in (None, "evict"):
        check_sync(args, muster, FEW_LAYOUTS, [*COME_AND_GO, "tables.staleness=1"], args.faults or EVICT_FAULTS, args.faulty_steps // 2)
    if args.only in (None, "steps"):
        check_steps(args, muster)
    if args.only in (None, "async"):
        with tempfile.TemporaryDirectory(prefix="muster-") as folder:
            check_resumed(args, muster, folder)
        check_modes(args, muster)


if __name__ == "__main__":
    main()
