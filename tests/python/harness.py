"""Programs that train with the package muster, run as a user would run them."""

import json
import os
import subprocess
import sys
import tempfile
import textwrap
import unittest

BIN = os.environ["MUSTER_BIN_DIR"]
MUSTER = os.path.join(BIN, "muster")

# A net with batch normalization and dropout; every word of it counts for the hash.
PROGRAM = """
    import torch
    from torch import nn
    from torch.nn import functional as F
    import muster

    run = muster.join(lanes=4, seed=3, options={options})
    x = torch.linspace(-1, 1, 1200).reshape(300, 4)
    y = x.sum(dim=1, keepdim=True).sin()
    net = nn.Sequential(nn.Linear(4, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Dropout(0.25), nn.Linear(32, 1))
    model = run.attach(net, muster.AdamW(lr=3e-3))
    for step in run.steps((x, y), batch=30, steps={steps}):
        for inputs, targets in step:
            {before}
            step.backward(F.mse_loss(model(inputs), targets))
        {after}
    {end}
"""


class ProgramTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory(prefix="muster-python-")
        self.addCleanup(self.folder.cleanup)

    def path(self, *parts):
        return os.path.join(self.folder.name, *parts)

    def write(self, text=None, name="train.py", options=None, steps=40, before="pass", after="pass", end="pass"):
        if text is None:
            text = PROGRAM.format(options=options or {}, steps=steps, before=before, after=after, end=end)
        with open(self.path(name), "w") as file:
            file.write(textwrap.dedent(text))
        return self.path(name)

    def call(self, *words, **environment):
        return subprocess.run(list(words), capture_output=True, text=True, cwd=self.folder.name, timeout=600,
                              env={**os.environ, **environment})

    def python(self, program):
        return self.call(sys.executable, program)

    def muster(self, *words):
        return self.call(MUSTER, *words)

    def assert_ok(self, done):
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done

    def result(self, run):
        with open(self.path(run, "result.json")) as file:
            return json.load(file)

    def train(self, program, run, *words):
        """Trains with `muster train --program`; the result."""
        self.assert_ok(self.muster("train", "--program", program, "--quiet", "--run-dir", run, *words))
        return self.result(run)


def main():
    unittest.main()
