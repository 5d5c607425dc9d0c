#!/usr/bin/env python3
"""Data that is streamed from a real S3 server (MinIO): the same bits as from local files, with any number of workers, through
faults of workers, of connections (Toxiproxy), and while the store is away. And data that is damaged, in local files.

    tests/e2e/streams.py [--bin build/release/bin] [--formats tfrecord,webdataset.png] [--workers 2] [--passes 6]
                         [--faults kill:2,...] [--toxicity 0.05] [--outage 3] [--only workers|faults|outage|damage] [--seed 1]

For each format, LeNet on the sample of MNIST:

workers   trained from MinIO with so many workers: the weights are those of one worker with local files
faults    `muster verify` with four workers, from MinIO through Toxiproxy, which lets a share of the connections (--toxicity, of
          each kind) stall, end with a reset, be cut in the middle of an answer, or close late; they are drawn again every half a
          second. MinIO counts answers that it could not send; what the proxy lost after that is not among them. Both runs of verify have the weights of one worker with
          local files
outage    two workers; the store refuses connections, or (every other format) is suspended, for so many seconds while they train.
          It costs about as long, no worker is removed, and the weights are the same. workers.hang_timeout is shorter than the
          outage: waiting for data is no hang
damage    local files, of which a byte is changed after they were indexed, while their time stays the same. With data.on_damage
          replace: 1, 2 and 4 workers, a run that is killed and resumed, one that had stopped, and `muster verify` with kills come to the same weights,
          and the log and `muster runs show` say so. With stop, or if much is damaged, the job ends with exit code 4 and names the
          file. Needs no MinIO

CI runs it as it is. Long, as in docs/data.md:

    tests/e2e/streams.py --workers 1,2,4,8 --passes 40 --outage 60 \\
        --faults kill:12,kill@before-commit:2,kill@after-commit:2,kill@recovery:2,suspend:2,leave:3,join:4

Needs MinIO (scripts/fetch_minio.sh), but for damage, which comes first; without it, exits with 77 after that, which ctest counts as
skipped. Without Toxiproxy
(scripts/fetch_toxiproxy.sh) connections are not disturbed, and that is said.
"""
import argparse
import contextlib
import datetime
import glob
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

import stores
from kill_resume import worker_of
from stream_data import FORMATS, SOURCE, mnist, shares
from verify import disturbed

JOB = """\
muster: 1
name: streamed
seed: 7
model: {{ zoo: lenet }}
data:
  train: {train}
  test: {test}
  block: 16KiB
  memory: 256KiB
batch: 64
lanes: 8
passes: {passes}
optimizer: {{ kind: sgd, lr: 0.02, momentum: 0.9, schedule: {{ kind: cosine, warmup: 30 }} }}
checkpoint: {{ every: 50 steps }}
track: {{ every: 1 steps }}
"""
SCALING = ", classes: 10, mean: 0.1307, deviation: 0.3081"
SHAPE = (1, 28, 28)
DEFAULT = "tfrecord,webdataset.png"
FAULTS = "kill:2,kill@before-commit:1,leave:1,join:1"
# Kind of toxic, and its attributes. Times are in milliseconds. Blocks have 16 KiB.
TOXICS = {"timeout": dict(timeout=2000),   # nothing comes, then the connection ends
          "reset_peer": dict(timeout=0),   # a reset
          "limit_data": dict(bytes=6000),  # the connection ends in the middle of the answer
          "slow_close": dict(delay=300)}
LATE = 8  # seconds: what an outage may cost more than its length, because of pauses between attempts (store/backoff.h)
HANG_TIMEOUT = 2  # seconds
KILLS = "kill:1,kill@before-commit:1,kill@after-commit:1"  # while data is damaged
DAMAGED = 4  # the exit code


def train(muster, job, run, sets=(), words=(), env=None):
    """Its result."""
    done = subprocess.run([muster, "train", job, "-q", "--run-dir", run, *(w for s in sets for w in ("-s", s)), *words],
                          stdout=subprocess.DEVNULL, env={**os.environ, **(env or {})})
    if done.returncode != 0:
        sys.exit(f"{run}: muster train ended with {done.returncode}")
    with open(os.path.join(run, "result.json")) as f:
        return json.load(f)


class Case:
    """One format: its job, its data in files and in a store, and what one worker with files comes to."""

    def __init__(self, args, name, folder, store):
        self.name, self.muster = name, os.path.join(args.bin, "muster")
        self.folder = os.path.join(folder, name)
        kind = FORMATS[name]
        local = {}
        for stem, part, files in (("train", "train", 4), ("test", "t10k", 1)):
            samples = mnist(part)
            if not kind.scaled:
                raise ValueError(f"{name} does not scale pixels as the others do")
            local[stem] = kind.write_files(os.path.join(self.folder, "data"), stem, samples, shares(len(samples), files))
        self.local = local
        self.job = os.path.join(self.folder, "job.yaml")
        with open(self.job, "w") as f:
            f.write(JOB.format(passes=args.passes, **{stem: kind.source(path, SHAPE, SCALING) for stem, path in local.items()}))
        if store:
            address = store.upload(os.path.join(self.folder, "data"), name)
            self.remote = [f"data.{stem}.path={address}/{os.path.basename(path)}" for stem, path in local.items()]
        self.expected = train(self.muster, self.job, os.path.join(self.folder, "local"))
        print(f"{name}: one worker, local files: {self.expected['weights_hash']}, {self.expected['steps']} steps", flush=True)

    def check(self, what, result):
        for key in ("weights_hash", "ledger"):
            if key in result and result[key] != self.expected[key]:
                sys.exit(f"{self.name}, {what}: {key} {result[key]}, not {self.expected[key]}")
        print(f"{self.name}, {what}: equal", flush=True)


def check_workers(args, case, env):
    for workers in map(int, args.workers.split(",")):
        words = ["--workers", str(workers)] if workers > 1 else []
        result = train(case.muster, case.job, os.path.join(case.folder, f"workers-{workers}"), case.remote, words, env)
        case.check(f"{workers} workers, from MinIO", result)


def check_faults(args, case, minio, proxy):
    """Both runs of verify read through the proxy."""
    os.environ.update(minio.environment(proxy.port if proxy else None))
    before = minio.answers()
    begin = time.monotonic()
    with stores.Weather(proxy, TOXICS, args.toxicity) if proxy else contextlib.nullcontext():
        found = disturbed(case.muster, "--faults", args.faults, "--seed", args.seed,
                          *(word for one in case.remote for word in ("-s", one)), job=case.job)
    took = time.monotonic() - begin
    asked, lost = (b - a for a, b in zip(before, minio.answers()))
    left_out = {part.split(":")[0] for part in args.faults.split(",")} - {what["fault"] for what in found["timeline"]}
    if left_out:
        sys.exit(f"{case.name}: none of the kinds {sorted(left_out)}")
    case.check(f"{found['faults']} faults of workers in {took:.1f} s, at least {lost} of {asked} answers ({lost / asked:.1%}) not received",
               found)


def wait_for_steps(run, steps, process):
    """Until the run has committed so many."""
    path = os.path.join(run, "metrics.jsonl")
    end = time.monotonic() + 120
    while time.monotonic() < end and process.poll() is None:
        try:
            with open(path) as f:
                if sum(1 for _ in f) >= steps:
                    return
        except FileNotFoundError:
            pass
        time.sleep(0.02)
    sys.exit(f"{run}: did not come to step {steps}; exit code {process.poll()}")


def commit_times(run):
    with open(os.path.join(run, "metrics.jsonl")) as f:
        return [record["time"] for record in map(json.loads, f) if "time" in record and "loss" in record]


def moment_of(line):
    """Seconds since 1970 of a line of a worker's log; 0 if it does not begin with a time."""
    try:
        return datetime.datetime.fromisoformat(line.split(" ", 1)[0].rstrip("Z")).replace(tzinfo=datetime.timezone.utc).timestamp()
    except ValueError:
        return 0


def check_secrets(case):
    """Neither run directories nor logs have the password."""
    for root, _, names in os.walk(case.folder):
        for name in names:
            path = os.path.join(root, name)
            if os.path.islink(path) or not os.path.isfile(path):
                continue
            with open(path, "rb") as f:
                if stores.PASSWORD.encode() in f.read():
                    sys.exit(f"{path} has the password of the store")


def check_outage(args, case, env, what, stop, go_on):
    """The store is away in the middle of the run."""
    run = os.path.join(case.folder, what.replace(" ", "-"))
    sets = [*case.remote, f"workers.hang_timeout={HANG_TIMEOUT}s", "workers.move_lanes=false"]
    process = stores.start([case.muster, "train", case.job, "-q", "--run-dir", run, "--workers", "2",
                            *(w for s in sets for w in ("-s", s))], {**os.environ, **env}, stdout=subprocess.DEVNULL)
    try:
        wait_for_steps(run, case.expected["steps"] // 3, process)
        stop()
        begin = time.time()
        time.sleep(args.outage)
    finally:
        go_on()
    end = time.time()
    if process.wait(120 + 10 * args.outage) != 0:
        sys.exit(f"{case.name}, {what}: muster train ended with {process.returncode}")
    with open(os.path.join(run, "result.json")) as f:
        result = json.load(f)
    times = commit_times(run)
    pauses = [(b - a, a, b) for a, b in zip(times, times[1:])]
    step = statistics.median(pause for pause, _, _ in pauses)
    longest = max((pause for pause, a, b in pauses if b > begin and a < end), default=0)
    before = sum(t <= begin for t in times)
    lines = [line for path in glob.glob(os.path.join(run, "workers", "*.log")) for line in open(path, errors="replace")]
    rosters = [line for line in lines if ": rank " in line and moment_of(line) > begin]
    waited = sum("waiting for data" in line for line in lines)
    print(f"{case.name}, {what} for {end - begin:.1f} s after step {before}: the longest pause between commits is {longest:.1f} s, a "
          f"step takes {1000 * step:.0f} ms; {waited} lines 'waiting for data' in the logs", flush=True)
    if longest > end - begin + LATE + 10 * step:
        sys.exit(f"{case.name}, {what}: cost {longest:.1f} s")
    # What is read ahead lasts for some steps.
    if longest < (end - begin) / 2 and step < (end - begin) / 30:
        sys.exit(f"{case.name}, {what}: training did not stand still because of it")
    if rosters:
        sys.exit(f"{case.name}, {what}: the roster has changed, so a worker was removed:\n{''.join(rosters)}")
    case.check(f"{what} for {args.outage:g} s", result)


def change_bytes(path, places):
    """In the file itself, which stays as old as it is: as if the disk had done it."""
    before = os.stat(path)
    with open(path, "r+b") as f:
        for place in places:
            f.seek(place)
            byte = f.read(1)[0]
            f.seek(place)
            f.write(bytes([byte ^ 1]))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def expect_stopped(case, run, sets, *words):
    """The job ends because of damage, and says so with these words."""
    done = subprocess.run([case.muster, "train", case.job, "-q", "--run-dir", os.path.join(case.folder, run),
                           *(w for s in sets for w in ("-s", s))], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    missing = [word for word in words if word not in done.stderr]
    if done.returncode != DAMAGED or missing:
        sys.exit(f"{case.name}, {run}: exit code {done.returncode}, and {missing} is not in what it said:\n{done.stderr}")
    print(f"{case.name}, {run}: exit code {done.returncode}: {done.stderr.strip().splitlines()[-1]}", flush=True)


def killed_and_resumed(case, run, sets, steps):
    """The result of a run whose only worker was killed after so many steps."""
    process = stores.start([case.muster, "train", case.job, "-q", "--run-dir", run, *(w for s in sets for w in ("-s", s))],
                           stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wait_for_steps(run, steps, process)
    os.kill(worker_of(process), signal.SIGKILL)
    if process.wait(60) == 0:
        sys.exit(f"{run}: it was over before it was killed")
    subprocess.run([case.muster, "resume", run, "-q"], stdout=subprocess.DEVNULL, check=True)
    with open(os.path.join(run, "result.json")) as f:
        return json.load(f)


def check_damage(args, case):
    folder = os.path.join(case.folder, "damaged")
    shutil.copytree(os.path.join(case.folder, "data"), folder)
    indexes = os.path.join(case.folder, "indexes")
    sets = [f"data.train.path={os.path.join(folder, os.path.basename(case.local['train']))}", f"data.index={indexes}"]
    words = [word for one in sets for word in ("-s", one)]
    subprocess.run([case.muster, "data", "index", case.job, *words, "--out", indexes], check=True, stdout=subprocess.DEVNULL)
    files = sorted(glob.glob(os.path.join(folder, os.path.basename(case.local["train"]))))
    change_bytes(files[2], [os.path.getsize(files[2]) * 2 // 3])

    expect_stopped(case, "stop", sets, os.path.basename(files[2]), "damaged")
    sets.append("data.on_damage=replace")
    run = os.path.join(case.folder, "replace")
    expected = train(case.muster, case.job, run, sets)
    if expected["damaged_blocks"] != 1 or expected["replaced_samples"] == 0:
        sys.exit(f"{case.name}, damage: {expected['damaged_blocks']} blocks, {expected['replaced_samples']} samples replaced")
    if expected["weights_hash"] == case.expected["weights_hash"]:
        sys.exit(f"{case.name}, damage: the weights are those of data that is whole")
    with open(os.path.join(run, "log.txt"), errors="replace") as f:
        told = [line for line in f if "its samples are replaced" in line and os.path.basename(files[2]) in line]
    if len(told) != 1:
        sys.exit(f"{case.name}, damage: the log tells of it {len(told)} times")
    shown = subprocess.run([case.muster, "runs", "show", run], stdout=subprocess.PIPE, text=True, check=True).stdout
    if "damaged data" not in shown:
        sys.exit(f"{case.name}, damage: `muster runs show` does not tell of it:\n{shown}")
    print(f"{case.name}, damage: one worker: {expected['weights_hash']}, {expected['replaced_samples']} samples replaced", flush=True)

    def check(what, result):
        for key in ("weights_hash", "ledger", "damaged_blocks", "replaced_samples", "test"):
            if key in result and result[key] != expected[key]:
                sys.exit(f"{case.name}, damage, {what}: {key} {result[key]}, not {expected[key]}")
        print(f"{case.name}, damage, {what}: equal", flush=True)

    for workers in (2, 4):
        check(f"{workers} workers", train(case.muster, case.job, f"{run}-{workers}", sets, ["--workers", str(workers)]))
    stopped = os.path.join(case.folder, "stop")
    subprocess.run([case.muster, "resume", stopped, "-q", "-s", "data.on_damage=replace"], stdout=subprocess.DEVNULL, check=True)
    with open(os.path.join(stopped, "result.json")) as f:
        check("stopped, and resumed with replace", json.load(f))
    check("killed and resumed", killed_and_resumed(case, f"{run}-killed", sets, expected["steps"] * 2 // 3))
    found = disturbed(case.muster, "--faults", KILLS, "--seed", args.seed, *(word for one in sets for word in ("-s", one)),
                      job=case.job)
    check(f"{found['faults']} faults of workers", {"weights_hash": found["weights_hash"]})
    for path in files[1:]:
        change_bytes(path, range(1000, os.path.getsize(path), 8000))
    expect_stopped(case, "much", sets, "blocks are damaged", os.path.basename(files[1])[:5])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", default=os.environ.get("MUSTER_BIN_DIR", os.path.join(SOURCE, "build/release/bin")))
    parser.add_argument("--formats", default=DEFAULT, help=f"of {', '.join(n for n, f in FORMATS.items() if f.scaled)}")
    parser.add_argument("--workers", default="2", help="numbers of workers without faults")
    parser.add_argument("--passes", type=int, default=6)
    parser.add_argument("--faults", default=FAULTS)
    parser.add_argument("--toxicity", type=float, default=0.05, help="the share of the connections that each toxic is for, drawn every half a second")
    parser.add_argument("--outage", type=float, default=3, help="seconds")
    parser.add_argument("--only", choices=("workers", "faults", "outage", "damage"))
    parser.add_argument("--seed", default="1")
    args = parser.parse_args()
    if args.only in (None, "damage"):
        with tempfile.TemporaryDirectory(prefix="muster-") as folder:
            for name in args.formats.split(",") if args.only else args.formats.split(",")[:1]:
                check_damage(args, Case(args, name, folder, None))
        if args.only:
            print("all equal")
            return
    if not stores.minio():
        print(f"{'damage: all equal; the rest' if args.only is None else args.only} is skipped: MinIO is not there: "
              "scripts/fetch_minio.sh builds it")
        sys.exit(77)
    with tempfile.TemporaryDirectory(prefix="muster-") as folder:
        started = time.monotonic()
        server = os.path.join(folder, "minio")
        os.mkdir(server)
        with stores.Minio(server) as minio:
            proxy = stores.Toxiproxy(folder, minio.port) if stores.toxiproxy() else None
            if not proxy:
                print("Toxiproxy is not there (scripts/fetch_toxiproxy.sh builds it): connections are not disturbed")
            try:
                run_all(args, folder, minio, proxy)
            finally:
                if proxy:
                    proxy.__exit__()
        print(f"all equal, {time.monotonic() - started:.0f} s")


def run_all(args, folder, minio, proxy):
    away = [("suspended", minio.suspend, minio.resume)]
    if proxy:
        away.insert(0, ("refusing connections", lambda: proxy.accept(False), lambda: proxy.accept(True)))
    for number, name in enumerate(args.formats.split(",")):
        case = Case(args, name, folder, minio)
        if args.only in (None, "workers"):
            check_workers(args, case, minio.environment())
        if args.only in (None, "faults"):
            check_faults(args, case, minio, proxy)
        if args.only in (None, "outage"):
            check_outage(args, case, minio.environment(proxy.port if proxy else None), *away[number % len(away)])
        check_secrets(case)


if __name__ == "__main__":
    main()
