"""The package itself: which libraries it uses, runs as objects, verify()."""

import contextlib
import importlib.util
import io
import json
import os
import pathlib
import subprocess
import sys
import time
import types
import unittest
import unittest.mock

from harness import BIN, MUSTER, ProgramTest, main

sys.dont_write_bytecode = True
import kills  # noqa: E402
import muster  # noqa: E402


class Libraries(unittest.TestCase):
    def in_python(self, text):
        return subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True).stdout

    def test_one_libtorch_and_our_gloo(self):
        maps = self.in_python("import muster.loop; print(open('/proc/self/maps').read())")
        torch = {line.split()[-1] for line in maps.splitlines() if "libtorch_cpu" in line}
        self.assertEqual(len(torch), 1, torch)
        core = next(line.split()[-1] for line in maps.splitlines() if "/_core." in line)
        dynamic = subprocess.run(["readelf", "-d", core], capture_output=True, text=True, check=True).stdout
        self.assertLess(dynamic.index("[libgloo"), dynamic.index("[libtorch_cpu"))

    def test_its_kernels_are_those_of_the_worker(self):
        text = "from muster import _native; core = _native.load(); core.prepare(1, 1); print(core.numerics())"
        doctor = subprocess.run([os.path.join(BIN, "muster-worker"), "probe"], capture_output=True, text=True, check=True)
        self.assertEqual(self.in_python(text).strip(), json.loads(doctor.stdout)["fingerprint"])

    def test_looking_at_runs_needs_no_torch(self):
        modules = self.in_python("import sys, muster; muster.runs('nowhere'); print('torch' in sys.modules)")
        self.assertEqual(modules.strip(), "False")

    def test_another_version_of_torch_is_refused_with_a_sentence(self):
        text = ("import torch, muster._native as n; torch.__version__ = '2.6.0+cpu'\n"
                "try: n.load()\nexcept ImportError as error: print(error)")
        self.assertRegex(self.in_python(text), r"was built for torch \S+, and this environment has 2\.6\.0: pip install")


class Optimizers(unittest.TestCase):
    def test_defaults_are_those_of_torch_as_the_docstrings_say(self):
        import torch

        def differences(name):
            theirs = getattr(torch.optim, name)([torch.nn.Parameter(torch.zeros(2, 2))], lr=0.1).defaults
            ours = getattr(muster, name)(lr=0.1)
            return {key: (getattr(ours, key), value) for key, value in theirs.items()
                    if hasattr(ours, key) and getattr(ours, key) != value}

        for name in ("SGD", "Adam", "AdamW", "Adagrad", "RMSprop"):
            self.assertEqual(differences(name), {}, name)
        self.assertEqual(differences("Muon"), {"weight_decay": (0.0, 0.1)})
        self.assertIn("``weight_decay`` is 0 by default; torch's is 0.1", muster.Muon.__doc__)


class Documentation(unittest.TestCase):
    def test_the_lines_that_change_are_counted(self):
        root = pathlib.Path(__file__).resolve().parents[2]
        others = root / "examples" / "pytorch-loop" / "others"
        text = (root / "docs" / "python.md").read_text()

        def changed(old, new):
            lines = subprocess.run(["diff", str(others / old), str(others / new)], capture_output=True,
                                   text=True).stdout.splitlines()
            return tuple(sum(line.startswith(sign) for line in lines) for sign in "><")

        for name, script in (("DistributedDataParallel", "with_ddp.py"), ("accelerate", "with_accelerate.py"),
                             ("torchft", "with_torchft.py"), ("Horovod elastic", "with_horovod.py")):
            new, gone = changed("plain.py", script)
            self.assertIn(f"| [{name}](../examples/pytorch-loop/others/{script}) | {new} | {gone} |", text)
            new, gone = changed(script, "with_muster.py")
            self.assertIn(f"| {name} | {new} | {gone} |", text)
        new, gone = changed("plain.py", "with_muster.py")
        self.assertIn(f"| [Muster](../examples/pytorch-loop/others/with_muster.py) | {new} | {gone} |", text)


class Types(unittest.TestCase):
    def test_mypy_finds_nothing(self):
        if importlib.util.find_spec("mypy") is None:
            self.skipTest("mypy is not installed")
        source = os.path.join(os.path.dirname(__file__), "..", "..", "python", "pyproject.toml")
        done = subprocess.run([sys.executable, "-m", "mypy", "--config-file", source, "--cache-dir", os.devnull,
                               os.path.dirname(muster.__file__)], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)


class Runs(ProgramTest):
    def test_runs_as_objects(self):
        program = self.write(options={"runs": self.path("runs"), "track": {"every": "1 steps"}})
        self.assert_ok(self.python(program))
        time.sleep(1.1)  # names have seconds
        self.assert_ok(self.python(program))
        found = muster.runs(self.path("runs"))
        self.assertEqual(len(found), 2)
        self.assertEqual([run.state for run in found], ["finished", "finished"])
        self.assertEqual(found[0].weights_hash, found[1].weights_hash)
        steps, losses = found[0].curve("loss")
        self.assertEqual(steps[-1], 40)
        self.assertLess(losses[-1], losses[0])
        self.assertEqual(muster.RunRecord(found[0].path / "nothing").metrics(), [])

    def write_run(self):
        """The metrics of several workers: a line that another one repeats, a rollback to step 3, a step that was
        skipped because it was not finite, a line that is being written."""
        run = pathlib.Path(self.path("run"))
        run.mkdir()
        (run / "job.yaml").write_text("muster: 1\n")
        records = [{"step": 1, "loss": 5.0}, {"step": 2, "loss": 4.0}, {"step": 2, "loss": 4.0},
                   {"step": 2, "test": {"accuracy": 0.5, "loss": 4.5}}, {"step": 3, "loss": None},
                   {"step": 4, "loss": 77.0}, {"step": 4, "loss": 3.0, "rollback": 1}, {"step": 5, "loss": 88.0},
                   {"step": 5, "loss": 2.0, "rollback": 1}]
        lines = [json.dumps(record) for record in records]
        (run / "metrics.jsonl").write_text("\n".join([*lines[:3], "no record", "[3]", *lines[3:], '{"step": 6, "lo']))
        return muster.RunRecord(run)

    def test_metrics_are_read_as_muster_reads_them(self):
        run = self.write_run()
        self.assertEqual([(record["step"], record.get("loss")) for record in run.metrics()],
                         [(1, 5.0), (2, 4.0), (2, None), (3, None), (4, 3.0), (5, 2.0)])
        self.assertEqual(run.curve("accuracy"), ([2], [0.5]))
        self.assertEqual(run.curve("test/loss"), ([2], [4.5]))
        self.assertEqual(run.curve("nothing"), ([], []))
        for metric in ("loss", "accuracy"):
            done = self.assert_ok(self.muster("runs", "plot", str(run.path), "--metric", metric, "-o", "json"))
            steps, values = run.curve(metric)
            self.assertEqual([list(point) for point in zip(steps, values)], json.loads(done.stdout)[0]["points"])

    def test_a_run_that_was_killed_has_died(self):
        program = self.write(after="import time; time.sleep(600 * (step.number > 0))", options={"runs": self.path("runs")})
        with subprocess.Popen([sys.executable, program], cwd=self.folder.name, stdout=subprocess.DEVNULL) as process:
            deadline = time.monotonic() + 60
            while not (found := muster.runs(self.path("runs"))) or found[0].state == "unknown":
                self.assertLess(time.monotonic(), deadline)
                time.sleep(0.1)
            self.assertEqual(found[0].state, "running")
            process.kill()
        self.assertEqual(found[0].state, "died")
        listed = json.loads(self.muster("runs", "list", "--runs", self.path("runs"), "-o", "json").stdout)
        self.assertEqual(listed[0]["state"], "died")

    def test_metrics_as_a_data_frame(self):
        class Pandas:  # which is not a dependency of the package
            DataFrame = staticmethod(lambda rows: rows)

        run = self.write_run()
        with unittest.mock.patch.dict(sys.modules, pandas=Pandas):
            rows = run.to_pandas()
        self.assertEqual(rows[2], {"step": 2, "test/accuracy": 0.5, "test/loss": 4.5})
        self.assertEqual(rows[4], {"step": 4, "loss": 3.0, "rollback": 1})
        if importlib.util.find_spec("pandas") is not None:
            self.assertEqual(list(run.to_pandas()["step"]), [1, 2, 2, 3, 4, 5])

    def test_plots(self):
        class Axes:  # as matplotlib's
            def __init__(self):
                self.drawn = {}

            def plot(self, steps, values, label):
                self.drawn[label] = (steps, values)

            def set_xlabel(self, label):
                self.drawn["x"] = label

            def legend(self):
                pass

        run = self.write_run()
        pyplot = types.SimpleNamespace(gca=Axes)
        with unittest.mock.patch.dict(sys.modules, {"matplotlib": types.SimpleNamespace(pyplot=pyplot)}):
            drawn = run.plot("loss", "accuracy").drawn
        self.assertEqual(drawn, {"run loss": ([1, 2, 4, 5], [5.0, 4.0, 3.0, 2.0]), "run accuracy": ([2], [0.5]), "x": "step"})
        os.environ["PATH"] = os.path.dirname(MUSTER) + os.pathsep + os.environ["PATH"]
        printed = io.StringIO()
        with unittest.mock.patch.dict(sys.modules, matplotlib=None), contextlib.redirect_stdout(printed):
            self.assertIsNone(run.plot("loss"))
        self.assertEqual(printed.getvalue(), self.muster("runs", "plot", str(run.path), "--metric", "loss").stdout)
        self.assertIn("loss", printed.getvalue())

    def test_the_script_that_kills(self):
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            code = kills.main(["--kills", "2", "--each", "1", "--workers", "2", "--steps", "150", "--pause", "20"])
        self.assertEqual(code, 0, printed.getvalue())
        self.assertIn("2 kills, 1 different weights", printed.getvalue())

    def test_verify(self):
        program = self.write(steps=300, after="import time; time.sleep(0.01)")
        os.environ["PATH"] = os.path.dirname(MUSTER) + os.pathsep + os.environ["PATH"]
        found = muster.verify(program, workers=2, faults="kill:1", seed=2)
        self.assertTrue(found, found.differences)
        self.assertEqual(found.faults, 1)
        with self.assertRaisesRegex(RuntimeError, "there is no file"):
            muster.verify("nothing.py")


if __name__ == "__main__":
    main()
