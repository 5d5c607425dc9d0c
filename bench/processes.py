"""Processes that a benchmark starts, none of which outlives it, and the steps that they write down.

torchrun gives each of its processes a session of its own, so that killing its process group leaves them behind. Here
this process becomes the one that orphans are given to, and ends whatever descends from it.
"""
import atexit
import contextlib
import ctypes
import glob
import json
import os
import signal
import socket
import subprocess
import sys
import time

PR_SET_CHILD_SUBREAPER = 36


def descendants():
    """The processes that this one started, and those that they started."""
    children = {}
    for path in glob.glob("/proc/[0-9]*/stat"):
        with contextlib.suppress(OSError):
            with open(path) as f:
                text = f.read()
            pid, rest = int(text.split(" ", 1)[0]), text.rsplit(")", 1)[1].split()
            if rest[0] != "Z":
                children.setdefault(int(rest[1]), []).append(pid)
    found, waiting = [], [os.getpid()]
    while waiting:
        new = children.get(waiting.pop(), [])
        found += new
        waiting += new
    return found


def end_all():
    end = time.time() + 30
    while time.time() < end:  # who is killed may have started another meanwhile
        for pid in descendants():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        try:
            while os.waitpid(-1, os.WNOHANG)[0] > 0:
                pass
        except ChildProcessError:
            return
        time.sleep(0.02)


def own_all():
    """Nothing that is started from now on outlives this process, unless this process is killed by SIGKILL."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    atexit.register(end_all)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _: sys.exit(128 + number))


def start(command, log, env=None):
    """In a process group of its own; what it says goes to the file `log`."""
    with open(log, "ab") as f:
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=f, stderr=f, start_new_session=True,
                                env={**os.environ, **(env or {})})


def run(command, env=None, **options):
    """To its end, which must be a good one; what it printed."""
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True,
                          env={**os.environ, **(env or {})}, **options)
    if done.returncode != 0:
        sys.exit(f"exit code {done.returncode}: {' '.join(map(str, command))}")
    return done.stdout


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def last_words(log, lines=3):
    with open(log, errors="replace") as f:
        return " | ".join(f.read().strip().splitlines()[-lines:])


class StepWriter:
    """One file per process, one line per step: {"time": seconds since 1970, "step": number, ...}."""

    def __init__(self, folder, **about):
        self.about = dict(about, pid=os.getpid())
        self.file = open(os.path.join(folder, f"{time.time():.6f}-{os.getpid()}.jsonl"), "w", buffering=1)

    def note(self, step, **more):
        self.file.write(json.dumps({"time": time.time(), "step": step, **self.about, **more}) + "\n")


class StepReader:
    """What all StepWriters of a folder have written so far, oldest first. Reads only what is new."""

    def __init__(self, folder):
        self.folder = folder
        self.offsets = {}
        self.steps = []

    def look(self):
        new = []
        for path in glob.glob(os.path.join(self.folder, "*.jsonl")):
            with open(path) as f:
                f.seek(self.offsets.get(path, 0))
                text = f.read()
            text = text[:text.rfind("\n") + 1]  # the rest is not written yet
            self.offsets[path] = self.offsets.get(path, 0) + len(text)
            new += [json.loads(line) for line in text.splitlines()]
        self.steps = sorted(self.steps + new, key=lambda s: s["time"])
        return self.steps
