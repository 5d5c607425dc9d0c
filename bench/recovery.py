#!/usr/bin/env python3
"""How long training stands still when one of its processes is killed: Muster, torchrun and torchft.

    bench/recovery.py --python PYTHON [--torchft PYTHON]... [--bin build/release/bin] [--kills 30] [--seed 3]
                      [--only ours,torchrun,torchft] [-o json|FILE.json]

LeNet with a batch of 64 everywhere. The pause is the time between the last step before the fault and the first one after
it, less a usual step: the same for all. Faults come one at a time, when everybody has been a member again for a while.

ours      `muster verify --calm`, four workers: SIGKILL; SIGSTOP for longer than the lease; a worker that joins (as many
          leave, to make room). It also proves that the faults changed no bit. "rejoined" is the time from a kill until
          the first commit that the restarted worker took part in.
torchrun  DistributedDataParallel, Gloo, `--standalone --max-restarts=100`, four processes, a snapshot every 10 steps
          (ddp_resume.py). One process is killed; torchrun starts all of them again. What was computed since the snapshot
          and is computed again is not counted against it. With its defaults, and with a store of its own for each start.
torchft   Two replica groups of one process, Gloo, a lighthouse (ft_loop.py); one is killed, and started again at once.
          With the default heartbeat timeout (5 s) and with 500 ms. "rejoined": the first step both took part in.

Who has not come back 60 s after a kill never recovers: that is counted, and everything is started anew.

Each Python of --torchft (default: that of --python) needs torch and torchft, for example, beside a venv V with torch:
    python -m venv F && echo V/lib/python3.*/site-packages > F/lib/python3.*/site-packages/torch.pth
    F/bin/pip install torchft==0.2.0        or, for another F: --pre torchft-nightly
"""
import argparse
import datetime
import json
import math
import os
import random
import re
import statistics
import subprocess
import sys
import tempfile
import time

import processes
from step_time import HERE, SOURCE, put_out

LIMIT = 60  # seconds until a kill counts as never recovered
BATCH = 64
SAMPLES = 2000  # of the sample that comes with the repository
ONE_THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


def say(text):
    print(text, file=sys.stderr, flush=True)


def spread(values):
    """Median, 99th percentile and longest; None without values."""
    if not values:
        return None
    values = sorted(values)
    at = [values[math.ceil(share * (len(values) - 1))] for share in (0.5, 0.99)]
    return dict(median=at[0], p99=at[1], longest=values[-1])


def row(who, fault, pauses, again=(), step=None, lost=0, goal="", **more):
    return dict(who=who, fault=fault, count=len(pauses) + lost, pause=spread(pauses), again=spread(again), step=step,
                lost=lost, goal=goal, **more)


def wait_for(condition, limit=LIMIT):
    """What `condition` returns as soon as that is true, or None after `limit` seconds."""
    end = time.time() + limit
    while time.time() < end:
        result = condition()
        if result:
            return result
        time.sleep(0.01)
    return None


# ours

def rejoined(run, worker, since):
    """Seconds from `since` until the first commit with `worker`, which was not in; None: it did not come."""
    with open(os.path.join(run, "metrics.jsonl")) as f:
        commits = {r["step"]: r["time"] for r in map(json.loads, f) if "time" in r}
    log = os.path.join(run, "workers", f"{worker}.log")
    if not os.path.exists(log):
        return None
    with open(log) as f:
        for line in f:
            found = re.match(r"(\S+)Z info +roster \d+: rank .* go on from step (\d+)", line)
            if not found:
                continue
            when = datetime.datetime.fromisoformat(found[1]).replace(tzinfo=datetime.timezone.utc).timestamp()
            commit = commits.get(int(found[2]) + 1)
            if when > since and commit:
                return commit - since
    return None


def verify(args, faults, steps, folder):
    """The report of `muster verify`, and the run's directory."""
    passes = math.ceil(steps * BATCH / SAMPLES)
    command = [os.path.join(args.bin, "muster"), "verify", os.path.join(SOURCE, "examples/lenet-sample.yaml"), "--calm",
               "--workers", str(args.workers), "-s", f"passes={passes}", "--faults", faults, "--seed", str(args.seed),
               "--folder", folder, "-o", "json"]
    say(" ".join(command))
    with open(folder + ".err", "w") as errors:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors, text=True)
    report = next((r for r in map(json.loads, done.stdout.splitlines()) if "equal" in r), None)
    if report is None:
        sys.exit(f"recovery: muster verify failed: {processes.last_words(folder + '.err')}")
    if not report["equal"]:
        sys.exit(f"recovery: the faults changed the result: {report['differences']}")
    if report["faults_left"]:
        say(f"  the job ended with {report['faults_left']} faults left")
    return report, os.path.join(folder, "disturbed")


def ours(args, folder):
    rows = []
    # How many steps a fault needs, calm: the time until all have rejoined, and a second.
    for kind, faults, steps, goal in (
            ("kill", f"kill:{args.kills}", 90, "rejoined within 1.0 s"),
            ("suspend", f"suspend:{args.kills}", 150, "pause within lease + 0.5 s = 2.5 s"),
            ("join", f"join:{args.kills},leave:{args.kills}", 150, "")):
        report, run = verify(args, faults, steps * args.kills + 100, os.path.join(folder, kind))
        hits = [hit for hit in report["timeline"] if hit["fault"] == kind]
        again = [rejoined(run, hit["worker"], hit["time"]) for hit in hits] if kind != "suspend" else []
        name = {"kill": "SIGKILL", "suspend": "SIGSTOP", "join": "a worker joins"}[kind]
        rows.append(row(f"Muster, {args.workers} workers", name, [h["stalled"] for h in hits if h["stalled"] >= 0],
                        [a for a in again if a is not None], report["step_seconds"], goal=goal,
                        lost_again=sum(a is None for a in again), left=report["faults_left"]))
    return rows


# torchrun

class Torchrun:
    def __init__(self, args, env, folder):
        self.folder = tempfile.mkdtemp(dir=folder)
        self.log = os.path.join(self.folder, "torchrun.log")
        self.reader = processes.StepReader(self.folder)
        self.procs = args.workers
        self.process = processes.start(
            [args.python, "-m", "torch.distributed.run", "--standalone", "--max-restarts=100", "--nproc-per-node",
             str(args.workers), os.path.join(HERE, "ddp_resume.py"), "lenet", str(BATCH), "10", self.folder],
            self.log, {**ONE_THREAD, **env})

    def life(self):
        """The steps of the newest start."""
        steps = self.reader.look()
        newest = max((s["life"] for s in steps), default=0)
        return [s for s in steps if s["life"] == newest]

    def going(self):
        """Whether every process of the newest start has done some steps."""
        done = [s["rank"] for s in self.life()]
        return len(set(done)) == self.procs and min(done.count(r) for r in set(done)) >= 10

    def kill_one(self, chance):
        """Seconds between the last step and the first one after it, less a step; None: it did not recover."""
        life = self.life()
        victim = chance.choice(sorted({s["pid"] for s in life}))
        os.kill(victim, 9)
        killed = life[0]["life"]
        if not wait_for(lambda: self.process.poll() is not None or self.life()[0]["life"] > killed):
            return None
        after = self.life()[0]
        if after["life"] == killed:
            return None
        before = [s for s in self.reader.look() if s["life"] == killed]
        times = [s["time"] for s in before if s["pid"] == before[0]["pid"]]
        self.step = statistics.median(b - a for a, b in zip(times, times[1:]))
        return after["time"] - before[-1]["time"] - self.step


def torchrun(args, folder):
    rows = []
    for name, env in (("defaults", {}), ("TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1",
                                         {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"})):
        chance, job, pauses, steps, lost = random.Random(args.seed), None, [], [], 0
        while len(pauses) + lost < args.kills:
            if job is None:
                job = Torchrun(args, env, folder)
            if not wait_for(job.going, 2 * LIMIT):
                sys.exit(f"recovery: torchrun does not get going: {processes.last_words(job.log)}")
            time.sleep(chance.uniform(0.5, 1.5))
            pause = job.kill_one(chance)
            if pause is None:
                lost += 1
                say(f"  torchrun, {name}: kill {len(pauses) + lost} never recovered")
                processes.end_all()
                job = None
            else:
                pauses.append(pause)
                steps.append(job.step)
                say(f"  torchrun, {name}: kill {len(pauses) + lost}, {pause:.2f} s")
        processes.end_all()
        # All processes start again, so the pause is also the time until the killed one has rejoined.
        rows.append(row(f"torchrun, {args.workers} processes, {name}", "SIGKILL", pauses, pauses,
                        statistics.median(steps) if steps else None, lost))
    return rows


# torchft

class Torchft:
    def __init__(self, python, heartbeat, folder):
        self.folder = tempfile.mkdtemp(dir=folder)
        self.log = os.path.join(self.folder, "replicas.log")
        self.reader = processes.StepReader(self.folder)
        self.python = python
        port = processes.free_port()
        self.env = {**ONE_THREAD, "TORCHFT_LIGHTHOUSE": f"http://127.0.0.1:{port}"}
        options = ["--heartbeat_timeout_ms", str(heartbeat)] if heartbeat else []
        processes.start([os.path.join(os.path.dirname(python), "torchft_lighthouse"), "--bind", f"127.0.0.1:{port}",
                         "--min_replicas", "1", "--quorum_tick_ms", "100", "--join_timeout_ms", "10000", *options],
                        os.path.join(self.folder, "lighthouse.log"), {"RUST_BACKTRACE": "1"})
        self.replicas = [self.start(0), self.start(1)]

    def start(self, number):
        return processes.start([self.python, os.path.join(HERE, "ft_loop.py"), "lenet", str(BATCH // 2), self.folder,
                                f"replica_{number}"], self.log, self.env)

    def of(self, process):
        return [s for s in self.reader.look() if s["pid"] == process.pid]

    def going(self):
        return all(sum(s["replicas"] == 2 for s in self.of(r)) >= 10 for r in self.replicas)

    def kill_one(self, chance):
        """(the survivor's pause, seconds until the other one has rejoined); None for what never came."""
        number = chance.randrange(2)
        survivor = self.replicas[1 - number]
        times = [s["time"] for s in self.of(survivor)]
        self.step = statistics.median(b - a for a, b in zip(times, times[1:]))
        when = time.time()
        self.replicas[number].kill()
        self.replicas[number].wait()
        self.replicas[number] = self.start(number)

        def after():
            return [s["time"] for s in self.of(survivor) if s["time"] > when]

        # Two, as in `muster verify`: the step under way may still succeed.
        wait_for(lambda: len(after()) >= 2 or survivor.poll() is not None)
        if len(after()) < 2:
            return None, None
        around = [t for t in (s["time"] for s in self.of(survivor)) if t <= when][-1:] + after()[:2]
        pause = max(b - a for a, b in zip(around, around[1:])) - self.step
        both = wait_for(lambda: [s for s in self.of(self.replicas[number]) if s["replicas"] == 2],
                        LIMIT - (time.time() - when))
        return max(0.0, pause), both[0]["time"] - when if both else None


def version_of(python):
    """That of torchft; raises with the reason if it cannot be used."""
    look = ("import importlib.metadata as m, torchft\n"
            "print(next(n + ' ' + m.version(n) for n in ('torchft-nightly', 'torchft')"
            " if any(d.metadata['Name'] == n for d in m.distributions())))")
    done = subprocess.run([python, "-c", look], capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(done.stderr.strip().splitlines()[-1])
    return done.stdout.strip()


def torchft_with(args, python, version, heartbeat, folder):
    name = f"{version}, heartbeat timeout {heartbeat / 1000 if heartbeat else 5:g} s"
    chance, job, pauses, again, steps, lost, never = random.Random(args.seed), None, [], [], [], 0, 0
    while len(pauses) + lost < args.kills:
        if job is None:
            job = Torchft(python, heartbeat, folder)
        if not wait_for(job.going, 2 * LIMIT):
            return dict(who=name, skipped="it does not get going: " + processes.last_words(job.log))
        time.sleep(chance.uniform(0.5, 1.5))
        pause, back = job.kill_one(chance)
        steps.append(job.step)
        say(f"  {name}: kill {len(steps)}, survivor {'lost' if pause is None else f'{pause:.2f} s'},"
            f" rejoined {'never' if back is None else f'{back:.2f} s'}")
        if pause is None:
            lost += 1
        else:
            pauses.append(pause)
            never += back is None
        if back is not None:
            again.append(back)
        else:
            processes.end_all()
            job = None
    processes.end_all()
    return row(name + ", 2 replicas", "SIGKILL", pauses, again, statistics.median(steps), lost, lost_again=never)


def torchft(args, folder):
    rows = []
    for python in args.torchft or [args.python]:
        try:
            version = version_of(python)
        except (OSError, RuntimeError) as e:
            rows.append(dict(who=f"torchft of {python}", skipped=str(e)))
            continue
        rows += [torchft_with(args, python, version, heartbeat, folder) for heartbeat in (None, 500)]
    return rows


def table(rows):
    def seconds(values, *names):
        return ", ".join(f"{values[n]:.2f}" for n in names) + " s" if values else "-"

    print("| who | fault | times | pause: median, 99 %, longest | rejoined: median, longest | never recovered | wanted |")
    print("|---|---|---|---|---|---|---|")
    for r in rows:
        if "skipped" in r:
            print(f"| {r['who']} | skipped: {r['skipped']} | | | | | |")
            continue
        never = str(r["lost"]) + (f", not rejoined {r['lost_again']}" if r.get("lost_again") else "")
        print(f"| {r['who']} | {r['fault']} | {r['count']} | {seconds(r['pause'], 'median', 'p99', 'longest')} |"
              f" {seconds(r['again'], 'median', 'longest')} | {never} | {r['goal']} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", default=os.path.join(SOURCE, "build/release/bin"))
    parser.add_argument("--python", default="", help="a Python that has torch; without it only ours is measured")
    parser.add_argument("--torchft", action="append", help="a Python that has torchft; may be repeated")
    parser.add_argument("--kills", type=int, default=30)
    parser.add_argument("--workers", type=int, default=4, help="of Muster, and processes of torchrun")
    parser.add_argument("--seed", type=int, default=3)
    parser.add_argument("--only", default="ours,torchrun,torchft")
    parser.add_argument("-o", "--output", help="json: instead of the table; or a file for it")
    args = parser.parse_args()
    processes.own_all()
    rows = []
    with tempfile.TemporaryDirectory(prefix="muster-recovery-", ignore_cleanup_errors=True) as folder:
        try:
            for name in args.only.split(","):
                if name == "ours":
                    rows += ours(args, folder)
                elif not args.python and not (name == "torchft" and args.torchft):
                    rows.append(dict(who=name, skipped="no --python"))
                else:
                    rows += {"torchrun": torchrun, "torchft": torchft}[name](args, folder)
        finally:
            processes.end_all()  # before their folder goes
    put_out(rows, args.output, table)


if __name__ == "__main__":
    main()
