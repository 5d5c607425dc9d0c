"""What the end-to-end tests of the command share: the programs, a folder of its own for each test,
small data sets, and a stand-in for the worker.

The programs are found in MUSTER_BIN_DIR. Tests that need muster-worker are skipped, saying so, where
it was not built. Only Python's standard library is used.
"""

import ctypes
import json
import os
import random
import shutil
import signal
import stat
import struct
import subprocess
import sys
import tempfile
import textwrap
import time
import unittest
from pathlib import Path

BIN_DIR = Path(os.environ.get("MUSTER_BIN_DIR", "build/release/bin")).resolve()
MUSTER = BIN_DIR / "muster"
WORKER = BIN_DIR / "muster-worker"
ARROW = BIN_DIR.parent / "lib/muster/libmuster_arrow.so"

# docs/exit-codes.md
INTERNAL, USAGE, JOB, DATA, IO, CHECKPOINT, NUMERICS, MACHINE = range(1, 9)
DIFFERS, REFUSED = 9, 10
INTERRUPTED, TERMINATED = 130, 143

needs_worker = unittest.skipUnless(WORKER.exists(), "muster-worker was not built")
needs_arrow = unittest.skipUnless(ARROW.exists(), "libmuster_arrow.so was not built: scripts/fetch_arrow.sh")


def wait_until(condition, what):
    """For something that will happen; the limit only ends a test that is broken. `what` may be a
    function that tells it as it is at the end."""
    for _ in range(6000):
        if condition():
            return
        time.sleep(0.01)
    raise AssertionError(f"waited a minute for {what() if callable(what) else what}")


def networks():
    """Of all processes, as far as we may see them."""
    found = set()
    for path in Path("/proc").glob("[0-9]*/ns/net"):
        try:
            found.add(os.readlink(path))
        except OSError:
            pass
    return found


LIBC = ctypes.CDLL(None)
PR_SET_PDEATHSIG = 1


class Program(subprocess.Popen):
    """A program that dies with the tests, also if these are killed and clean up nothing. Start it in the main
    thread: the kernel looks at the thread's end."""

    def __init__(self, words, preexec_fn=lambda: None, **options):
        parent = os.getpid()

        def before():
            LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != parent:
                os._exit(1)
            preexec_fn()

        super().__init__(words, preexec_fn=before, **options)


class Outcome:
    """How a command ended."""

    def __init__(self, code, out, err):
        self.code, self.out, self.err = code, out, err

    @property
    def json(self):
        return json.loads(self.out)

    @property
    def last_json(self):
        """The last line, as --json prints the result."""
        return json.loads(self.out.strip().splitlines()[-1])

    def __str__(self):
        return f"exit code {self.code}\n--- stdout\n{self.out}\n--- stderr\n{self.err}"


class CommandTest(unittest.TestCase):
    """Each test runs in an empty folder of its own, without the user's MUSTER_ variables."""

    def setUp(self):
        self.folder = Path(tempfile.mkdtemp(prefix="muster-cli-")).resolve()
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.env = {k: v for k, v in os.environ.items() if not k.startswith("MUSTER_")}
        self.env.pop("NO_COLOR", None)

    def muster(self, *words, env=None, before=(), **options):
        """Runs muster with these words; `before` stands in front of it (setpriv, unshare)."""
        with Program(
            [*map(str, before), str(MUSTER), *map(str, words)],
            cwd=options.pop("cwd", self.folder),
            env={**self.env, **(env or {})},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            **options,
        ) as process:
            try:
                out, err = process.communicate(timeout=300)
            except BaseException:
                process.kill()
                raise
            return Outcome(process.returncode, out, err)

    def assert_ok(self, outcome):
        self.assertEqual(outcome.code, 0, outcome)
        return outcome

    def assert_mistake(self, outcome, code, *mentions):
        """One sentence on standard error that mentions all of these, and this exit code."""
        self.assertEqual(outcome.code, code, outcome)
        lines = outcome.err.strip().splitlines()
        self.assertEqual(len(lines), 1, f"one sentence is expected: {outcome}")
        for mention in mentions:
            self.assertIn(mention, lines[0], outcome)
        return outcome

    # Files

    def write(self, name, text):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))
        return path

    def write_program(self, name, body):
        """An executable Python script."""
        path = self.write(name, f"#!{sys.executable}\nimport os, signal, sys, time, json\n"
                          + textwrap.dedent(body))
        path.chmod(path.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)
        return path

    def write_images(self, count=64, size=8, classes=3, name="train", wrong_label=None):
        """An IDX data set that a model can learn: each class lights a band of its own."""
        noise = random.Random(7)
        images, labels = bytearray(), bytearray()
        for sample in range(count):
            label = sample % classes
            labels.append(label)
            for row in range(size):
                lit = row * classes // size == label
                images.extend(min(255, (200 if lit else 0) + noise.randrange(50))
                              for _ in range(size))
        if wrong_label is not None:
            labels[count // 2] = wrong_label
        (self.folder / f"{name}-images").write_bytes(
            struct.pack(">IIII", 0x803, count, size, size) + images)
        (self.folder / f"{name}-labels").write_bytes(struct.pack(">II", 0x801, count) + labels)

    JOB = """\
        muster: 1
        name: tiny
        seed: 5
        model:
          layers:
            - flatten
            - linear: { out: 16 }
            - relu
            - linear: { out: 3 }
        data:
          train: { format: idx, images: train-images, labels: train-labels, mean: 0.3, deviation: 0.3 }
          test: { format: idx, images: test-images, labels: test-labels, mean: 0.3, deviation: 0.3 }
        batch: 16
        lanes: 4
        passes: 2
        optimizer: { kind: sgd, lr: 0.1, momentum: 0.9 }
        """

    def write_job(self, **data):
        """A job that trains in well under a second, and its data."""
        self.write_images(**data)
        self.write_images(count=32, name="test")
        return self.write("job.yaml", self.JOB)

    def only_run(self):
        runs = [path for path in (self.folder / "runs").iterdir() if path.name != "latest"]
        self.assertEqual(len(runs), 1, runs)
        return runs[0]


def main():
    if not MUSTER.exists():
        sys.exit(f"{MUSTER} is not there: build it, and set MUSTER_BIN_DIR to its folder")
    unittest.main()
