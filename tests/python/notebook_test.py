"""Runs the cells of examples/pytorch-loop/notebook.ipynb one after the other, as Jupyter does."""

import importlib.util
import json
import os
import shutil
import subprocess
import sys
import unittest
from pathlib import Path

from harness import BIN, ProgramTest, main

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"

# Executes the cells; prints what each shows, its last expression, as a line of JSON.
RUN = """
import ast, json, os, sys
sys.path.insert(0, os.getcwd())  # as a notebook's kernel does
names = {"__name__": "__main__"}
for cell in json.load(open("notebook.ipynb"))["cells"]:
    if cell["cell_type"] != "code":
        continue
    body = ast.parse("".join(cell["source"])).body
    last = body.pop() if isinstance(body[-1], ast.Expr) else None
    exec(compile(ast.Module(body, []), "cell", "exec"), names)
    shown = eval(compile(ast.Expression(last.value), "cell", "eval"), names) if last else None
    print("shown", json.dumps(shown, default=str), flush=True)
"""


@unittest.skipUnless(importlib.util.find_spec("pandas") and importlib.util.find_spec("matplotlib"),
                     "the notebook needs pandas and matplotlib")
class Notebook(ProgramTest):
    def test_its_cells_run_and_show_what_they_say(self):
        shutil.copytree(EXAMPLES / "pytorch-loop", self.path("examples", "pytorch-loop"))
        shutil.copytree(EXAMPLES / "data" / "mnist", self.path("examples", "data", "mnist"))
        environment = {**os.environ, "MPLBACKEND": "Agg", "PATH": BIN + os.pathsep + os.environ["PATH"]}
        done = self.assert_ok(subprocess.run([sys.executable, self.write(RUN, name="run.py")], capture_output=True, text=True,
                                             cwd=self.path("examples", "pytorch-loop"), timeout=600, env=environment))
        shown = [json.loads(line.removeprefix("shown ")) for line in done.stdout.splitlines() if line.startswith("shown ")]
        _, _, accuracy, (name, state, weights), rows, _, same, shapes, (equal, faults, _) = shown
        self.assertGreater(accuracy, 0.8)
        self.assertEqual(state, "finished", name)
        self.assertTrue(weights)
        self.assertIn("loss", rows)
        self.assertIs(same, True)
        self.assertEqual(shapes["0.weight"], [20, 1, 5, 5])
        self.assertIs(equal, True)
        self.assertEqual(faults, 1)


if __name__ == "__main__":
    main()
