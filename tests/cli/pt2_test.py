"""model.file: a model that was exported from PyTorch, with the real programs. What needs PyTorch is skipped without
it."""

import gzip
import importlib.util
import json
import shutil
import unittest
import zipfile
from pathlib import Path

from harness import CHECKPOINT, JOB, CommandTest, main, needs_worker

ROOT = Path(__file__).resolve().parents[2]
TESTDATA = ROOT / "muster/pt2/testdata"

try:
    import torch
except ImportError:
    torch = None


class Pt2Test(CommandTest):
    def setUp(self):
        super().setUp()
        example = ROOT / "examples/pytorch"
        self.file = self.folder / "lenet.pt2"
        shutil.copy(example / "lenet.pt2", self.file)
        text = (example / "lenet-pt2.yaml").read_text().replace("../data", str(ROOT / "examples/data"))
        self.job = self.write("job.yaml", text)

    def train(self, run, *words):
        return self.assert_ok(self.muster("train", self.job, "-q", "--run-dir", run, "-s", "steps=20", "-s",
                                          "checkpoint.every=10 steps", "-s", "data.test.limit=200", *words))

    def change(self):
        """Another weight."""
        with zipfile.ZipFile(self.file) as archive:
            entries = {name: archive.read(name) for name in archive.namelist()}
        with zipfile.ZipFile(self.file, "w") as archive:
            for name, data in entries.items():
                if name.endswith("weight_6"):
                    data = bytes([data[0] ^ 1]) + data[1:]
                archive.writestr(name, data)


@needs_worker
class Files(Pt2Test):
    def test_check_says_what_is_replaced(self):
        outcome = self.assert_ok(self.muster("config", "check", self.job))
        self.assertIn("replaced 1 dropout (dropout): masks are a function of seed, step, lane", outcome.out)
        self.assertIn("replaced 1 batch normalization (bn1): running statistics are reduced", outcome.out)
        facts = self.assert_ok(self.muster("config", "check", self.job, "-o", "json")).json["facts"]
        self.assertEqual(len(facts["replaced"]), 2, facts)

    def test_check_names_what_is_not_trained(self):
        self.assertNotIn("not trained", self.assert_ok(self.muster("config", "check", self.job)).out)
        outcome = self.assert_ok(self.muster("config", "check", self.job, "-s", "model.freeze=['fc2.*']"))
        self.assertIn("model.file: 2 tensors not trained (fc2.weight, fc2.bias): frozen, or not used", outcome.out)

    def test_check_names_the_line_of_python_that_is_refused(self):
        self.job.write_text(self.job.read_text().replace("lenet.pt2 }", f"{TESTDATA}/random.pt2 }}"))
        self.assert_mistake(self.muster("config", "check", self.job), JOB, "torch.ops.aten.randn_like.default",
                            "tests/pt2/make_testdata.py, line ", "`return self.fc(x + torch.randn_like(x))`")

    def test_the_number_of_workers_and_threads_does_not_matter(self):
        self.train("one", "-s", "threads=1")
        self.train("two", "--workers", "2")
        self.train("lanes", "-s", "threads=3")
        for other in "two", "lanes":
            self.assert_ok(self.muster("runs", "compare", "./one", f"./{other}"))

    def test_a_changed_file_is_refused(self):
        self.train("run")
        fingerprint = json.loads((self.folder / "run/result.json").read_text())["fingerprint"]
        self.assertEqual(len(fingerprint["model_file"]), 32, fingerprint)
        shutil.copy(self.file, self.folder / "before.pt2")
        self.change()
        for words in [], ["--workers", "2"], ["-s", "numerics=tolerant", "--accept-other-data"]:
            outcome = self.muster("resume", "./run", "-q", "-s", "steps=30", *words)
            self.assertEqual(outcome.code, CHECKPOINT, outcome)
            self.assertIn("differs from its checkpoint in model.file (", outcome.err, outcome)
        self.assertIn("model.file (", self.muster("predict", "./run").err)
        out = self.muster("export", "./run", "--pt2", "--out", "trained.pt2")
        self.assert_mistake(out, CHECKPOINT, "is not the file that this run was begun with")
        shutil.copy(self.folder / "before.pt2", self.file)
        self.assert_ok(self.muster("resume", "./run", "-q", "-s", "steps=30"))

    def test_trained_weights_go_back_into_a_copy(self):
        self.train("run")
        self.assert_ok(self.muster("export", "./run", "--pt2", "--checkpoint", "newest", "--out", "trained.pt2"))
        self.assert_ok(self.muster("export", "./run", "--checkpoint", "newest", "--out", "trained.safetensors"))
        with zipfile.ZipFile(self.folder / "trained.pt2") as copy, zipfile.ZipFile(self.file) as original:
            self.assertIsNone(copy.testzip())
            self.assertEqual(copy.namelist(), original.namelist())
            changed = [name for name in copy.namelist() if copy.read(name) != original.read(name)]
        # All parameters and statistics, but the counter of batches.
        self.assertEqual(len(changed), 14, changed)
        # It is a model to start from.
        self.job.write_text(self.job.read_text().replace("lenet.pt2 }", "trained.pt2 }"))
        self.train("again")

    def test_a_model_without_a_file_has_no_copy(self):
        self.job.write_text(self.job.read_text().replace("{ file: lenet.pt2 }", "{ zoo: lenet }"))
        self.train("run")
        outcome = self.muster("export", "./run", "--pt2", "--out", "trained.pt2")
        self.assertIn("is not from a .pt2 file", outcome.err)


@needs_worker
@unittest.skipIf(torch is None, "needs PyTorch")
class InPython(Pt2Test):
    def test_the_copy_computes_what_the_run_predicts(self):
        self.train("run")
        self.assert_ok(self.muster("export", "./run", "--pt2", "--checkpoint", "newest", "--out", "trained.pt2"))
        outcome = self.muster("predict", "./run", "--checkpoint", "newest", "--samples", "0-7", "--raw", "-o", "json")
        found = torch.tensor([sample["output"] for sample in self.assert_ok(outcome).json])
        spec = importlib.util.spec_from_file_location("export_lenet", ROOT / "examples/pytorch/export_lenet.py")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        model = module.LeNet()
        model.load_state_dict(torch.export.load(str(self.folder / "trained.pt2")).state_dict)
        pixels = gzip.open(ROOT / "examples/data/mnist/t10k-images-idx3-ubyte.gz").read()[16:16 + 8 * 784]
        images = (torch.tensor(list(pixels)).view(8, 1, 28, 28) / 255.0 - 0.1307) / 0.3081
        with torch.no_grad():
            expected = model.eval()(images)
        self.assertTrue(torch.allclose(found, expected, atol=1e-4), (found, expected))


if __name__ == "__main__":
    main()
