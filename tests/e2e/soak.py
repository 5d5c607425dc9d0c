#!/usr/bin/env python3
"""Does a job that goes through faults for a long time keep its size? `muster verify` on a small job with four workers
and a fault about every two seconds; meanwhile memory, threads and open files of every process of the job are looked
at. Says whether something grew, and leaves with 1 if so; also if a process of the job is left over at the end, or if
the bits are not equal.

    tests/e2e/soak.py --minutes 10 [--also cut] [--bin build/release/bin] [--seed N] [--csv FILE]
    tests/e2e/soak.py --minutes 20 --servers 3 [--turns 4]   a job with parameter servers (docs/servers.md), in lockstep and
                                                             asynchronous by turns; the latter is replayed at its end

CI runs a short one: the same with --passes and --faults instead of --minutes, so that it does the same everywhere.

Faults of two kinds change what runs, so they must be asked for: --also cut (needs root: workers are in network
namespaces and share no memory), --also restart (the coordinator is killed again and again; verify starts the workers
itself, so there is no launcher to look at).

What is compared:
- the launcher, which has the coordinator in it and lives from beginning to end: the median of its second quarter with
  that of its last;
- any worker, at its highest, with the one of the undisturbed run, which has all lanes and to which nothing happens;
- generations of workers: the earlier half of those that came to a certain age with the later half, at that age. Of each
  half the lowest: workers with equal lanes and without faults are at 80 or at 115 MB, because the heap, which a worker
  never gives back, keeps its highest point, and that depends on whether the test data were read during the first step or
  before it. A median says how many are on which level, not whether there is growth. With few workers nothing is said;
- threads and open files of those that lived long: their second quarter with their last. (The memory of the worst of them
  is shown, but judged only by the second rule.)
- memory of those that lived long: their third quarter with their last, of the typical one among them. They go through a
  recovery every two seconds, so what leaks there shows in all of them;
- parameter servers, which are killed and get copies all the time: the highest of any in the second quarter of the run with the
  highest in its last. All rows are there after the first pass, and in any quarter there is one who has them all.
"Memory" is what a process has for itself or shares with others (RssAnon + RssShmem), without pages of files: what is
leaked can only be there, and how many pages of libtorch a process has touched is of no interest.
"""
import argparse
import collections
import ctypes
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

SOURCE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
JOB = os.path.join(SOURCE, "examples/lenet-sample.yaml")
SERVER_JOB = os.path.join(SOURCE, "examples/dlrm-synthetic.yaml")
# A pass of 50 steps, as the other job has about.
SERVER_SETS = ("data.train.args.samples=12800", "data.test.args.samples=1000", "eval.every=1 passes", "checkpoint.every=40 steps")
SERVER_TURNS = (("lockstep", ()), ("asynchronous", ("sync.strategy=server", "sync.mode=async")))
SERVER_WEIGHTS = {"kill": 6, "suspend": 1, "leave": 2, "join": 2, "kill-server": 4, "kill-server@ack": 2, "kill-server@confirm": 2,
                  "kill-server@copy": 1, "kill-server@join": 1, "kill-server@save": 1, "suspend-server": 1}
WEIGHTS = {"kill": 10, "suspend": 2, "leave": 4, "join": 4, "hang": 1, "slow-disk": 1, "pause": 2}
ALSO = {"cut": 1, "restart": 2}
EVERY = 2.0  # seconds between two faults
MB = 1024 * 1024

Sample = collections.namedtuple("Sample", "age memory threads files sockets")
WHAT = ("memory", "threads", "files", "sockets")
# How much more is not called growth: (absolute, share of what it was). Each member of a group costs three sockets.
SLACK = {"memory": (6 * MB, 0.05), "threads": (4, 0.0), "files": (14, 0.0), "sockets": (14, 0.0)}
LAUNCHER_SLACK = {**SLACK, "memory": (1 * MB, 0.1)}
LONG_SLACK = {**SLACK, "memory": (float("inf"), 0.0)}
NOT_JUDGED = dict.fromkeys(SLACK, (float("inf"), 0.0))
# Of a worker's highest, over that of the one that is alone: besides all lanes it may have a checkpoint under way, and what
# a group needs, and state for others. (Seen: 153 MB alone, and 180 MB, reached in steps, when all of this came together.)
ALONE_SLACK = (6 * MB, 0.35)
# What half of those that lived long may grow by from the third quarter of their lives to the last. They take part in a
# recovery every two seconds: a leak in one shows in all of them, while steps like those above come to some.
LATE_SLACK = {**NOT_JUDGED, "memory": (3 * MB, 0.0)}
LATE = 8  # so many of them must be there for that
# Copies that are on their way come and go.
SERVER_SLACK = {**SLACK, "memory": (8 * MB, 0.2)}
CEILING = {"threads": 100, "files": 200}
LEAST = 16  # samples, for quarters to mean something
LONG = 12.0  # seconds: a worker that lived longer is looked at by itself
AGES = (12.0, 8.0, 4.0, 2.0)  # at which generations are compared: the first that enough of them came to
ZOMBIE = 4.0  # seconds for which a process that has ended may be there: a machine with much else to do is slow to take note
GENERATIONS = 24  # so many must have come to that age


class Life:
    """One process from its first sample to its last."""

    def __init__(self, role, name, born):
        self.role, self.name, self.born, self.samples = role, name, born, []

    def at(self, age):
        """The first sample of this age or more, or None."""
        return next((sample for sample in self.samples if sample.age >= age), None)


# Judging: pure functions, tested by soak_test.py.

def middle(samples):
    return Sample(*(statistics.median(column) for column in zip(*samples)))


def quarters(samples):
    """The medians of the second quarter and of the last."""
    quarter = len(samples) // 4
    return middle(samples[quarter:2 * quarter]), middle(samples[-quarter:])


def late_quarters(samples):
    """The medians of the third quarter and of the last."""
    quarter = len(samples) // 4
    return middle(samples[2 * quarter:3 * quarter]), middle(samples[-quarter:])


def lowest(samples):
    return Sample(*map(min, zip(*samples)))


def highest(samples):
    return Sample(*map(max, zip(*samples)))


def spans(lives):
    """The highest of these in the second quarter of all their time and in the last; None if too little was seen."""
    samples = sorted(((life.born + sample.age, sample) for life in lives for sample in life.samples), key=lambda pair: pair[0])
    if len(samples) < 4 * LEAST:
        return None
    begin, quarter = samples[0][0], (samples[-1][0] - samples[0][0]) / 4
    early = [sample for time, sample in samples if quarter <= time - begin < 2 * quarter]
    late = [sample for time, sample in samples if time - begin >= 3 * quarter]
    return (highest(early), highest(late)) if early and late else None


def grown(row):
    """[(what, before, after)] for whatever grew by more than its slack."""
    found = []
    for what in WHAT:
        absolute, share = row.slack[what]
        early, late = getattr(row.before, what), getattr(row.after, what)
        if late - early > max(absolute, share * early):
            found.append((what, early, late))
    return found


def shown(what, value):
    return f"{value / MB:.1f} MB" if what == "memory" else f"{value:g}"


Row = collections.namedtuple("Row", "name lives slack before after")


def compare(lives):
    """The rows of the table, for what there was enough of."""
    rows = []
    for life in lives:
        if life.role == "launcher" and len(life.samples) >= LEAST:
            rows.append(Row("launcher and coordinator", 1, LAUNCHER_SLACK, *quarters(life.samples)))
    workers = [life for life in lives if life.role == "worker" and life.samples]
    alone = [sample for life in lives if life.role == "alone" for sample in life.samples]
    if alone and workers:
        everyone = [sample for life in workers for sample in life.samples]
        rows.append(Row("alone and any worker, highest", len(workers), NOT_JUDGED, highest(alone), highest(everyone)))
    old = [quarters(life.samples) for life in workers
           if life.samples[-1].age >= LONG and len(life.samples) >= LEAST]
    if old:
        # The worst by memory: a leak of one of them would drown in the median of all.
        worst = max(old, key=lambda pair: pair[1].memory - pair[0].memory)
        rows.append(Row("worker that lived long, worst", len(old), LONG_SLACK, *worst))
    late = [late_quarters(life.samples) for life in workers
            if life.samples[-1].age >= LONG and len(life.samples) >= LEAST]
    if len(late) >= LATE:
        typical = sorted(late, key=lambda pair: pair[1].memory - pair[0].memory)[len(late) // 2]
        rows.append(Row("the same, the typical one, late", len(late), LATE_SLACK, *typical))
    halves = spans([life for life in lives if life.role == "server"])
    if halves:
        rows.append(Row("servers, highest, early and late", sum(life.role == "server" for life in lives), SERVER_SLACK, *halves))
    for age in AGES:
        there = [life.at(age) for life in sorted(workers, key=lambda life: life.born) if life.at(age)]
        if len(there) >= GENERATIONS:
            half = len(there) // 2
            rows.append(Row(f"workers at {age:g} s, early and late", len(there), SLACK, lowest(there[:half]),
                            lowest(there[-half:])))
            break
    return rows


def judge(lives, rows, launched=True):
    """What is wrong, a sentence each. `launched`: there was a launcher."""
    wrong = []
    for row in rows:
        for what, before, after in grown(row):
            wrong.append(f"{row.name}: {what} grew from {shown(what, before)} to {shown(what, after)}")
    for life in lives:
        for what, most in CEILING.items():
            seen = max((getattr(sample, what) for sample in life.samples), default=0)
            if seen > most:
                wrong.append(f"{life.name}: {seen:g} {what} at once, more than {most}")
    alone = [sample.memory for life in lives if life.role == "alone" for sample in life.samples]
    if not alone:
        wrong.append("the undisturbed worker was not seen, so nothing can be said about the others' memory")
    limit = max(alone, default=float("inf"))
    limit += max(ALONE_SLACK[0], ALONE_SLACK[1] * limit)
    for life in lives:
        most = max((sample.memory for sample in life.samples), default=0)
        if life.role == "worker" and most > limit:
            wrong.append(f"{life.name}: {shown('memory', most)}, more than {shown('memory', limit)}, which is that of "
                         "a worker with all lanes and some slack")
    if launched and not any(row.name.startswith("launcher") for row in rows):
        wrong.append("the launcher was not seen often enough to say anything")
    return wrong


def fault_counts(faults, also=(), usual=None):
    """{kind: how many} of so many faults, each kind at least once. `usual`: weights other than WEIGHTS."""
    weights = {**(usual or WEIGHTS), **{kind: ALSO[kind] for kind in also}}
    return {kind: max(1, round(faults * weight / sum(weights.values()))) for kind, weight in weights.items()}


def plan(seconds, pass_alone, pass_together, stalled=0.6):
    """(passes, faults) that take about so long, both runs together. A fault holds the others up for a while, on
    average over WEIGHTS; with one fault every EVERY seconds that stretches the disturbed run."""
    stretched = pass_together / (1 - stalled / EVERY)
    passes = max(6, int(seconds / (pass_alone + stretched)))
    return passes, max(4, int(passes * stretched / EVERY))


# Looking.

def stat_of(pid):
    """(state, parent, start in seconds since the machine's), or None if it is gone."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            fields = file.read().rsplit(")", 1)[1].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return fields[0], int(fields[1]), int(fields[19]) / os.sysconf("SC_CLK_TCK")


def descendants(root):
    """{pid: stat_of} of all that come from `root`, itself not among them."""
    stats = {int(name): stat_of(name) for name in os.listdir("/proc") if name.isdigit()}
    children = collections.defaultdict(list)
    for pid, stat in stats.items():
        if stat:
            children[stat[1]].append(pid)
    found, open_ends = {}, [root]
    while open_ends:
        for pid in children[open_ends.pop()]:
            found[pid] = stats[pid]
            open_ends.append(pid)
    return found


def role_of(pid):
    """("launcher", "coordinator", "server" or "worker" of the disturbed run, "alone" for the undisturbed worker, or None;
    a name)."""
    with open(f"/proc/{pid}/cmdline") as file:
        words = file.read().split("\0")
    if words[0].endswith("muster-server"):
        return "server", f"{words[words.index('--id') + 1]} (process {pid})"
    if "--coordinator" in words:
        return "worker", f"worker {words[words.index('--id') + 1]} (process {pid})"
    if "coordinator" in words:
        return "coordinator", f"coordinator (process {pid})"
    if "train" in words and "--workers" in words:
        return "launcher", f"launcher (process {pid})"
    if words[0].endswith("muster-worker") and "train" in words:
        return "alone", f"undisturbed worker (process {pid})"
    return None, f"process {pid}: {' '.join(words).strip()[:60]}"


def sample_of(pid, age):
    with open(f"/proc/{pid}/status") as file:
        status = dict(line.split(":", 1) for line in file)
    targets = []
    for name in os.listdir(f"/proc/{pid}/fd"):
        try:
            targets.append(os.readlink(f"/proc/{pid}/fd/{name}"))
        except FileNotFoundError:
            pass  # closed meanwhile
    memory = sum(int(status[key].split()[0]) * 1024 for key in ("RssAnon", "RssShmem"))
    return Sample(age, memory, int(status["Threads"]), len(targets),
                  sum(target.startswith("socket:") for target in targets))


class Watcher:
    """Samples everybody who comes from this process."""

    def __init__(self):
        self.lives, self.wrong, self.zombies = {}, [], {}

    def look(self):
        with open("/proc/uptime") as file:
            now = float(file.read().split()[0])
        zombies = {}
        found = descendants(os.getpid())
        for pid, (state, parent, born) in found.items():
            if state == "Z":
                # A launcher that is suspended (pause) cannot take note. One that has ended need not: it leaves those
                # whom it killed to init, here to us.
                if found.get(parent, ("",))[0] not in ("T", "t") and parent != os.getpid():
                    zombies[pid, born] = self.zombies.get((pid, born), now)
                continue
            try:
                role, name = role_of(pid)
                if role:
                    life = self.lives.setdefault((pid, born), Life(role, name, born))
                    life.samples.append(sample_of(pid, now - born))
            except (FileNotFoundError, ProcessLookupError, KeyError, ValueError):
                pass  # it has just ended, or is between fork and exec
        for (pid, _), since in zombies.items():
            if now - since >= ZOMBIE:  # the clock has steps of 10 ms
                self.wrong.append(f"process {pid} has ended, and nobody took note for {now - since:.0f} s")
        self.zombies = zombies


def leftovers():
    """Who still comes from this process: {pid: state}. Orphans do too (adopt_orphans()), unless they have ended: of those
    init would take note."""
    return {pid: state for pid, (state, parent, _) in descendants(os.getpid()).items()
            if state != "Z" or parent != os.getpid()}


def adopt_orphans():
    ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER


def end_leftovers():
    for pid in leftovers():
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass  # its parent took note of its end
    try:
        while True:
            os.waitpid(-1, 0)
    except ChildProcessError:
        pass


# Running.

def seconds_per_pass(muster, folder, job, *words):
    """Of a short run, from its metrics, without its start."""
    run = os.path.join(folder, "short")
    subprocess.run([muster, "train", job, "--quiet", "--run-dir", run, "-s", "passes=4", "-s", "track.every=1 steps",
                    *words], check=True, stdout=subprocess.DEVNULL)
    with open(os.path.join(run, "metrics.jsonl")) as file:
        times = [record["time"] for record in map(json.loads, file) if "time" in record]
    shutil.rmtree(run)
    return (times[-1] - times[0]) / (len(times) - 1) * len(times) / 4


def verify(muster, folder, args, job, passes, faults, sets, watcher):
    """Its exit code, what it said, and for how long it ran."""
    words = ",".join(f"{kind}:{count}" for kind, count in faults.items())
    with open(os.path.join(folder, "out"), "w+") as out:
        begin = time.monotonic()
        process = subprocess.Popen([muster, "verify", job, "-o", "json", "--folder", os.path.join(folder, "runs"),
                                    "--workers", str(args.workers), "--faults", words, "--seed", str(args.seed),
                                    "-s", f"passes={passes}", *sets], stdout=out)
        try:
            while True:
                try:
                    process.wait(args.interval)
                    break
                except subprocess.TimeoutExpired:
                    watcher.look()
        except BaseException:
            process.terminate()
            process.wait()
            raise
        took = time.monotonic() - begin
        out.seek(0)
        text = out.read()
    return process.returncode, json.loads(text) if text else {}, took


def print_table(rows):
    print(f"{'':<34} {'lives':>5} {'memory':>20} {'threads':>10} {'files':>10} {'sockets':>10}")
    for row in rows:
        cells = [f"{getattr(row.before, what):g} > {getattr(row.after, what):g}" for what in WHAT[1:]]
        memory = f"{row.before.memory / MB:.1f} > {row.after.memory / MB:.1f} MB"
        print(f"{row.name:<34} {row.lives:>5} {memory:>20} {cells[0]:>10} {cells[1]:>10} {cells[2]:>10}")


def write_csv(path, lives):
    with open(path, "w") as file:
        print("process,born", *Sample._fields, sep=",", file=file)
        for life in lives:
            for sample in life.samples:
                print(life.name, life.born, *sample, sep=",", file=file)


def soak(muster, args, minutes, job, usual, sets):
    """One verification, watched. What is wrong, a sentence each; the directory is left if there is something."""
    watcher = Watcher()
    folder = tempfile.mkdtemp(prefix="muster-soak-")
    try:
        passes, faults = args.passes, args.faults
        if passes is None:
            begin = time.monotonic()
            alone = seconds_per_pass(muster, folder, job, *sets)
            together = seconds_per_pass(muster, folder, job, "--workers", str(args.workers), *sets)
            passes, faults = plan(60 * minutes - (time.monotonic() - begin), alone, together)
        counts = fault_counts(faults, args.also, usual)
        print(f"{passes} passes, {sum(counts.values())} faults: {counts}", flush=True)
        code, found, took = verify(muster, folder, args, job, passes, counts, sets, watcher)
        # A launcher does not wait long for those whom it killed.
        ended = time.monotonic()
        left = leftovers()
        while left and time.monotonic() - ended < ZOMBIE:
            time.sleep(0.1)
            left = leftovers()
    finally:
        end_leftovers()
    lives = list(watcher.lives.values())
    if args.csv:
        write_csv(args.csv, lives)
    rows = compare(lives)
    wrong = judge(lives, rows, launched="restart" not in args.also) + watcher.wrong
    wrong += [f"process {pid} of the job was left over (state {state})" for pid, state in left.items()]
    if code != 0 or not found.get("equal"):
        wrong.append(f"verify ended with {code}: {found.get('differences', 'it said nothing')}")
    happened = found.get("timeline", [])
    between = (happened[-1]["time"] - happened[0]["time"]) / (len(happened) - 1) if len(happened) > 1 else 0
    print(f"{took:.0f} s, {len(happened)} faults, one every {between:.1f} s; "
          f"{sum(life.role == 'worker' for life in lives)} worker processes were seen")
    print_table(rows)
    if wrong:
        wrong.append(f"both runs, and what verify said (out), are in {folder}")
    else:
        shutil.rmtree(folder)
    return wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10, help="about how long it takes, all in all (10)")
    parser.add_argument("--passes", type=int, help="instead of --minutes: so many passes over the data")
    parser.add_argument("--faults", type=int, default=10, help="with --passes: about so many faults (10)")
    parser.add_argument("--interval", type=float, default=1, help="seconds between two looks (1)")
    parser.add_argument("--also", action="append", default=[], choices=sorted(ALSO), help="faults of this kind too")
    parser.add_argument("--servers", type=int, default=0, help="a job with so many parameter servers, three or more (0: none)")
    parser.add_argument("--turns", type=int, default=2, help="with --servers: so many runs, in lockstep and asynchronous by turns (2)")
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--csv", help="write all samples there (with --servers: of the last turn)")
    parser.add_argument("--bin", default=os.environ.get("MUSTER_BIN_DIR", os.path.join(SOURCE, "build/release/bin")))
    args = parser.parse_args()
    if 0 < args.servers < 3 or (args.servers and args.also):
        parser.error("--servers: three or more, and without --also")
    muster = os.path.join(args.bin, "muster")
    adopt_orphans()
    if not args.servers:
        wrong = soak(muster, args, args.minutes, JOB, WEIGHTS, [])
    else:
        wrong = []
        for turn in range(args.turns):
            name, sets = SERVER_TURNS[turn % len(SERVER_TURNS)]
            print(f"--- {name}", flush=True)
            options = [word for one in (*SERVER_SETS, f"tables.servers={args.servers}", *sets) for word in ("-s", one)]
            wrong += soak(muster, args, args.minutes / args.turns, SERVER_JOB, SERVER_WEIGHTS, options)
            args.seed += 1
    for sentence in wrong:
        print(f"WRONG: {sentence}", file=sys.stderr)
    if wrong:
        sys.exit(1)
    print("nothing grew, nobody is left over, the bits are equal")


if __name__ == "__main__":
    main()
