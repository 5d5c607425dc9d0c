"""muster predict --out: every sample once and in order, whatever is killed; features of a layer; eval on other data."""

import importlib.util
import json
import os
import random
import shutil
import signal
import struct
import subprocess
import unittest
from pathlib import Path

from harness import (CHECKPOINT, DATA, INTERRUPTED, JOB, MACHINE, MUSTER, USAGE, WORKER, CommandTest, Program, main, needs_arrow, needs_worker,
                     wait_until)

JOB_FILE = """\
    muster: 1
    name: rows
    seed: 5
    model: { layers: [ linear: { out: 16 }, relu, linear: { out: 3 } ] }
    data:
      train: { format: csv, path: "train-*.csv", classes: 3 }
      block: 4KiB
    batch: 16
    lanes: 4
    passes: 5
    checkpoint: { keep: 20 }
    optimizer: { kind: sgd, lr: 0.1, momentum: 0.9 }
    """
SAMPLES = 20_000
# One sample at a time: slow enough to be hit in the middle.
SLOW = ("-s", "eval.batch=1")


def children(pid):
    """The processes that this one has started."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == pid and fields[0] != "Z":
            found.append(int(path.parent.name))
    return found


@needs_worker
class Predict(CommandTest):
    def setUp(self):
        super().setUp()
        random.seed(3)
        self.write_rows("train-0.csv", 500)
        self.rows = self.write_rows("new.csv", SAMPLES)
        self.write("job.yaml", JOB_FILE)
        self.assert_ok(self.muster("train", "job.yaml", "--quiet"))

    def write_rows(self, name, count):
        rows = [[random.gauss(0, 1) for _ in range(3)] for _ in range(count)]
        lines = [",".join([f"{x:.6f}" for x in row] + [str(row.index(max(row)))]) for row in rows]
        self.write(name, "\n".join(["a,b,c,class", *lines]) + "\n")
        return rows

    def words(self, out, *more):
        return ["predict", "latest", "--data", "new.csv", "--out", out, *SLOW, *more]

    def start(self, out, *more):
        process = Program([MUSTER, *self.words(out, *more)], cwd=self.folder, env=self.env, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True)
        self.addCleanup(process.kill)
        return process

    def done(self, out):
        folder = self.folder / f"{out}.parts" / "done"
        return sum(path.name.isdigit() for path in folder.glob("*"))

    def alone(self):
        """What one worker writes that nothing happens to."""
        self.assert_ok(self.muster(*self.words("alone.csv")))
        return (self.folder / "alone.csv").read_bytes()

    def assert_complete(self, out, expected):
        self.assertEqual((self.folder / out).read_bytes(), expected)
        self.assertFalse((self.folder / f"{out}.parts").exists())

    def test_the_bytes_do_not_depend_on_workers_and_kills(self):
        expected = self.alone()
        lines = expected.decode().splitlines()
        self.assertEqual(lines[0], "sample,class,probability,label")
        self.assertEqual([int(line.split(",")[0]) for line in lines[1:]], list(range(SAMPLES)))
        labels = [str(row.index(max(row))) for row in self.rows]
        self.assertEqual([line.split(",")[3] for line in lines[1:]], labels)
        right = sum(line.split(",")[1] == label for line, label in zip(lines[1:], labels))
        self.assertGreater(right, 0.8 * SAMPLES, "it has learnt this much")

        said = self.assert_ok(self.muster(*self.words("three.csv", "--workers", "3")))
        self.assertIn("20,000 samples", said.out)
        self.assert_complete("three.csv", expected)

        process = self.start("killed.csv", "--workers", "3")
        for kills, parts in enumerate((1, 5, 9)):
            wait_until(lambda: self.done("killed.csv") >= parts or process.poll() is not None, f"{parts} parts")
            self.assertIsNone(process.poll(), "it ended before it was disturbed")
            os.kill(random.choice(children(process.pid)), signal.SIGKILL)
        out, err = process.communicate(timeout=300)
        self.assertEqual(process.returncode, 0, err)
        self.assertGreaterEqual(err.count("SIGKILL"), 2, err)
        self.assert_complete("killed.csv", expected)

    def test_of_data_without_labels(self):
        expected = [line.rpartition(",")[0] for line in self.alone().decode().splitlines()]
        lines = (self.folder / "new.csv").read_text().splitlines()
        self.write("bare.csv", "".join(line.rpartition(",")[0] + "\n" for line in lines))
        for workers in ("1", "2"):
            self.assert_ok(self.muster("predict", "latest", "--data", "bare.csv", "--no-labels", "--out", "bare-out.csv",
                                       "--workers", workers, "--force", *SLOW))
            self.assertEqual((self.folder / "bare-out.csv").read_text().splitlines(), expected)
        # Printed; and read by blocks.
        words = ["--data", "bare.csv", "--no-labels", "-s", "data.test.read=blocks"]
        shown = self.assert_ok(self.muster("predict", "latest", "--samples", "0-1", *words))
        self.assertNotIn("labelled", shown.out)
        first, _ = self.assert_ok(self.muster("predict", "latest", "--samples", "0-1", "-o", "json", *words)).json
        self.assertEqual(sorted(first), ["class", "probability", "sample"])
        # It must be said, and only of data that can be without.
        self.assert_mistake(self.muster("predict", "latest", "--data", "bare.csv", "--out", "x.csv"), DATA, "label")
        self.assert_mistake(self.muster("predict", "latest", "--data", "new.csv", "--no-labels", "--out", "x.csv"), DATA,
                            "shape")
        self.assert_mistake(self.muster("predict", "latest", "--data", "x", "--format", "libsvm", "--no-labels", "--out",
                                        "x.csv"), USAGE, "libsvm always has labels")
        self.assert_mistake(self.muster("train", "job.yaml", "-s", "data.train.label=none"), JOB, "data.train.label",
                            "--no-labels")

    def test_the_same_command_continues(self):
        expected = self.alone()
        process = self.start("out.csv", "--workers", "2")
        wait_until(lambda: self.done("out.csv") >= 3, "three parts")
        second = self.muster(*self.words("out.csv"))
        self.assert_mistake(second, USAGE, "another process", "out.csv.parts")
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
        self.assertEqual(process.returncode, INTERRUPTED, err)
        self.assertIn("the same command continues", err)
        self.assertFalse((self.folder / "out.csv").exists())
        kept = {path.name: path.stat().st_ino for path in (self.folder / "out.csv.parts/done").glob("*")}
        self.assertGreaterEqual(len(kept), 3)

        # Other options are noticed, and change nothing.
        other = self.muster(*self.words("out.csv", "--raw"))
        self.assert_mistake(other, USAGE, "raw was false, and is now true", "remove the directory")

        # Now without mercy: muster itself, and its workers go with it.
        process = self.start("out.csv", "--workers", "2")
        before = self.done("out.csv")
        wait_until(lambda: self.done("out.csv") > before, "one more part")
        workers = children(process.pid)
        process.kill()
        process.communicate()
        wait_until(lambda: not any(Path(f"/proc/{pid}/stat").exists() for pid in workers), "the workers' end")
        for name, inode in kept.items():
            self.assertEqual((self.folder / "out.csv.parts/done" / name).stat().st_ino, inode, "not computed again")

        said = self.assert_ok(self.muster(*self.words("out.csv", "--workers", "3")))
        self.assertIn("of them before", said.out)
        self.assert_complete("out.csv", expected)

        self.assert_mistake(self.muster(*self.words("out.csv")), USAGE, "--force")
        told = self.assert_ok(self.muster(*self.words("out.csv", "--force", "-o", "json"))).json
        self.assertEqual((told["file"], told["samples"]), ("out.csv", SAMPLES))
        self.assert_complete("out.csv", expected)

    def test_the_checkpoint_is_the_one_it_began_with(self):
        run = (self.folder / "runs/latest").resolve()
        step = max((run / "checkpoints").glob("step-*"))
        expected = self.alone()

        def interrupt(out):
            process = self.start(out, "--workers", "2")
            wait_until(lambda: self.done(out) >= 1, "a part")
            words = [Path(f"/proc/{pid}/cmdline").read_text().split("\0") for pid in children(process.pid)]
            process.send_signal(signal.SIGINT)
            _, err = process.communicate(timeout=60)
            self.assertEqual(process.returncode, INTERRUPTED, err)
            return [found[found.index("--checkpoint") + 1] for found in words if "--checkpoint" in found]

        # The workers are told its step, so that one that is started again loads the same.
        self.assertEqual(set(interrupt("out.csv")), {step.name.removeprefix("step-").lstrip("0")})
        self.assert_ok(self.muster("resume", "latest", "-s", "passes=8", "-q"))
        newer = max((run / "checkpoints").glob("step-*"))
        self.assertGreater(newer, step)
        self.assert_ok(self.muster(*self.words("out.csv", "--workers", "2")))
        self.assert_complete("out.csv", expected)
        other = self.assert_ok(self.muster(*self.words("other.csv", "-o", "json"))).json
        self.assertEqual(f"step-{other['step']:09}", newer.name)

        interrupt("gone.csv")
        shutil.rmtree(newer)
        self.assert_mistake(self.muster(*self.words("gone.csv")), CHECKPOINT, "gone.csv.parts", str(other["step"]),
                            "not in", "remove the directory")
        self.assertGreaterEqual(self.done("gone.csv"), 1, "nothing is lost")

    def leave_complete(self, out, *more):
        """Makes a directory with all parts and no result, as a command leaves it that is killed while it joins them."""
        process = self.start(out, *more)
        wait_until(lambda: self.done(out) >= 1, "a part")
        (self.folder / f"{out}.parts" / "joined").mkdir()
        _, err = process.communicate(timeout=300)
        self.assertNotEqual(process.returncode, 0)
        self.assertIn("joined", err)
        (self.folder / f"{out}.parts" / "joined").rmdir()

    def test_a_complete_directory_of_another_command_is_not_joined(self):
        expected = self.alone()
        self.leave_complete("left.csv")
        other = self.muster(*self.words("left.csv", "--raw"))
        self.assert_mistake(other, USAGE, "raw was false, and is now true")
        self.assertFalse((self.folder / "left.csv").exists())
        self.assert_ok(self.muster(*self.words("left.csv")))
        self.assert_complete("left.csv", expected)

    def test_any_source(self):
        lines = (self.folder / "new.csv").read_text().splitlines()
        for number, part in enumerate((lines[1:7001], lines[7001:7002], lines[7002:])):
            self.write(f"part-{number}.csv", "\n".join([lines[0], *part]) + "\n")
        rows = [json.dumps({"x": [float(x) for x in line.split(",")[:3]], "label": int(line.split(",")[3])})
                for line in lines[1:]]
        self.write("new.jsonl", "\n".join(rows) + "\n")
        self.assert_ok(self.muster("predict", "latest", "--data", "new.csv", "--out", "whole.jsonl"))
        whole = [json.loads(line) for line in (self.folder / "whole.jsonl").read_text().splitlines()]
        fields = ("-s", "data.test.args.input=x", "-s", "data.test.label=label")
        for words in (["--data", "part-*.csv"], ["--data", "new.jsonl", "--format", "jsonl", *fields]):
            outputs = []
            for workers in (1, 3):
                self.assert_ok(self.muster("predict", "latest", *words, "--out", f"{workers}.jsonl", "--force",
                                           "--workers", workers))
                outputs.append((self.folder / f"{workers}.jsonl").read_text())
            self.assertEqual(*outputs)
            found = [json.loads(line) for line in outputs[0].splitlines()]
            self.assertEqual([row["sample"] for row in found], list(range(SAMPLES)))
            self.assertEqual([row["label"] for row in found], [row["label"] for row in whole])
            differ = sum(a["class"] != b["class"] for a, b in zip(found, whole))
            self.assertLessEqual(differ, 2, "at most ties")
            self.assertLess(max(abs(a["probability"] - b["probability"]) for a, b in zip(found, whole)), 1e-5)
            # The same samples measured: as many are right.
            measured = self.assert_ok(self.muster("eval", "latest", *words, "-o", "json")).json
            right = sum(row["class"] == row["label"] for row in whole) / SAMPLES
            self.assertEqual(measured["samples"], SAMPLES)
            self.assertAlmostEqual(measured["test"]["accuracy"], right, places=3)
        # Other files at the same address are found, not remembered.
        self.write("part-3.csv", "\n".join([lines[0], *lines[1:11]]) + "\n")
        more = self.assert_ok(self.muster("eval", "latest", "--data", "part-*.csv", "-o", "json")).json
        self.assertEqual(more["samples"], SAMPLES + 10)

    def weights(self):
        self.assert_ok(self.muster("export", "latest", "--out", "model.safetensors"))
        data = (self.folder / "model.safetensors").read_bytes()
        length = struct.unpack("<Q", data[:8])[0]
        tensors = {}
        for name, facts in json.loads(data[8:8 + length]).items():
            if name != "__metadata__":
                begin, end = (8 + length + offset for offset in facts["data_offsets"])
                tensors[name] = struct.unpack(f"<{(end - begin) // 4}f", data[begin:end])
        return tensors

    def test_features_of_a_layer(self):
        tensors = self.weights()
        weight, bias = tensors["0.weight"], tensors["0.bias"]
        self.assert_ok(self.muster("predict", "latest", "--data", "new.csv", "--layer", "1", "--out", "features.csv",
                                   "--workers", "2"))
        lines = (self.folder / "features.csv").read_text().splitlines()
        self.assertEqual(lines[0], ",".join(["sample", *(f"feature_{i}" for i in range(16))]))
        self.assertEqual(len(lines), SAMPLES + 1)
        for sample in range(0, SAMPLES, 997):
            features = [float(x) for x in lines[1 + sample].split(",")]
            self.assertEqual(features[0], sample)
            for i in range(16):
                sum_ = bias[i] + sum(weight[3 * i + j] * x for j, x in enumerate(self.rows[sample]))
                self.assertAlmostEqual(features[1 + i], max(0.0, sum_), places=4)
        some = self.assert_ok(self.muster("predict", "latest", "--data", "new.csv", "--layer", "1", "--samples", "3",
                                          "-o", "json")).json
        self.assertEqual(len(some[0]["features"]), 16)

    @needs_arrow
    def test_parquet(self):
        self.assert_ok(self.muster(*self.words("alone.parquet")))
        expected = (self.folder / "alone.parquet").read_bytes()
        self.assertEqual((expected[:4], expected[-4:]), (b"PAR1", b"PAR1"))
        self.assert_ok(self.muster(*self.words("three.parquet", "--workers", "3")))
        self.assert_complete("three.parquet", expected)

        # Kills of workers, then of muster itself.
        process = self.start("killed.parquet", "--workers", "3")
        for parts in (1, 5, 9):
            wait_until(lambda: self.done("killed.parquet") >= parts or process.poll() is not None, f"{parts} parts")
            self.assertIsNone(process.poll(), "it ended before it was disturbed")
            victim = random.choice(children(process.pid)) if parts < 9 else process.pid
            os.kill(victim, signal.SIGKILL)
        process.communicate()
        self.assertFalse((self.folder / "killed.parquet").exists())
        self.assert_ok(self.muster(*self.words("killed.parquet", "--workers", "2")))
        self.assert_complete("killed.parquet", expected)

        # All parts are there, and half of a result, which is written again.
        self.leave_complete("left.parquet", "--workers", "2")
        (self.folder / "left.parquet.parts/joined").write_bytes(expected[:1000] + b"torn" * 1_000_000)
        other = self.muster(*self.words("left.parquet", "--layer", "1"))
        self.assert_mistake(other, USAGE, "layer was '', and is now '1'")
        self.assertFalse((self.folder / "left.parquet").exists())
        self.assert_ok(self.muster(*self.words("left.parquet", "--workers", "3")))
        self.assert_complete("left.parquet", expected)

        layer = ("--data", "new.csv", "--layer", "1")
        for workers in (1, 3):
            self.assert_ok(self.muster("predict", "latest", *layer, "--out", f"features-{workers}.parquet", "--workers",
                                       workers))
        features = (self.folder / "features-1.parquet").read_bytes()
        self.assert_complete("features-3.parquet", features)

    @needs_arrow
    @unittest.skipUnless(importlib.util.find_spec("pyarrow"), "pyarrow is not installed")
    def test_parquet_as_pyarrow_reads_it(self):
        import pyarrow.parquet
        csv = self.alone().decode().splitlines()
        self.assert_ok(self.muster(*self.words("alone.parquet")))
        rows = pyarrow.parquet.read_table(self.folder / "alone.parquet").to_pydict()
        self.assertEqual(list(rows), csv[0].split(","))
        for name, column in zip(rows, zip(*(line.split(",") for line in csv[1:]))):
            if name == "probability":
                self.assertEqual(rows[name], [struct.unpack("f", struct.pack("f", float(x)))[0] for x in column])
            else:
                self.assertEqual(rows[name], [int(x) for x in column])
        self.assert_ok(self.muster("predict", "latest", "--data", "new.csv", "--layer", "1", "--out", "features.parquet"))
        table = pyarrow.parquet.read_table(self.folder / "features.parquet")
        self.assertEqual(table.schema.names, ["sample", "features"])
        self.assertEqual(table.schema.field("features").type.list_size, 16)
        self.assertEqual(table["sample"].to_pylist(), list(range(SAMPLES)))

    def test_parquet_without_its_plugin(self):
        # The plugin is looked for beside the directory of the program.
        (self.folder / "bin").mkdir()
        worker = shutil.copy(WORKER, self.folder / "bin")
        outcome = self.muster("predict", "latest", "--data", "new.csv", "--out", "x.parquet", "--worker", worker)
        self.assert_mistake(outcome, MACHINE, "format parquet", "scripts/fetch_arrow.sh")
        self.assertFalse(list(self.folder.glob("x.parquet*")), "nothing is left")

    def test_mistakes(self):
        self.assert_mistake(self.muster("predict", "latest", "--data", "new.csv", "--out", "x.feather"), USAGE,
                            ".csv, .jsonl or .parquet")
        self.assert_mistake(self.muster("predict", "latest", "--data", "new.csv", "--out", "s3://b/x.parquet"), USAGE,
                            "this machine")
        self.assert_mistake(self.muster("predict", "latest", "--data", "new.csv", "--out", "s3://b/x.csv"), USAGE,
                            "this machine")
        self.assert_mistake(self.muster("predict", "latest", "--out", "x.csv"), USAGE, "--data")
        self.assert_mistake(self.muster("predict", "latest", "--data", "new.csv", "--out", "x.csv", "--layer", "3"),
                            USAGE, "no layer '3'", "0, 1 and 2")
        outcome = self.muster("predict", "latest", "--data", "none.csv", "--out", "x.csv")
        self.assertIn("none.csv", outcome.err)
        self.assertNotEqual(outcome.code, 0)
        self.assertFalse(list(self.folder.glob("x.csv*")), "nothing is left")


if __name__ == "__main__":
    main()
