"""The twelve mistakes people are most likely to make. Each ends in one sentence that says where and
what to do, and in the exit code of docs/exit-codes.md.

The first tests need only muster, the others the worker too."""

import os
import shutil
import struct
import subprocess

from harness import (CHECKPOINT, DATA, IO, JOB, MACHINE, MUSTER, USAGE, CommandTest, main,
                     needs_worker)

IS_ROOT = os.geteuid() == 0


class JobMistakes(CommandTest):
    def setUp(self):
        super().setUp()
        self.job = self.write_job()

    def edit(self, old, new):
        text = self.job.read_text()
        self.assertIn(old, text)
        self.job.write_text(text.replace(old, new))

    def test_1_wrong_key(self):
        self.edit("momentum", "momentun")
        outcome = self.muster("train", "job.yaml")
        self.assert_mistake(outcome, JOB, "job.yaml:16:", "'optimizer.momentun'",
                            "did you mean 'optimizer.momentum'?")
        self.assertFalse((self.folder / "runs").exists())

    def test_1_wrong_key_on_the_command_line(self):
        outcome = self.muster("train", "job.yaml", "-s", "optimizer.learning_rate=1")
        self.assert_mistake(outcome, JOB, "-s optimizer.learning_rate")
        outcome = self.muster("train", "job.yaml", "-s", "bathc=1")
        self.assert_mistake(outcome, JOB, "-s bathc", "did you mean 'batch'?")

    def test_2_wrong_type(self):
        self.edit("lr: 0.1", "lr: fast")
        self.assert_mistake(self.muster("train", "job.yaml"), JOB, "job.yaml:16:", "lr", "number",
                            "'fast'")

    def test_2_wrong_type_on_the_command_line(self):
        self.assert_mistake(self.muster("train", "job.yaml", "-s", "lanes=four"), JOB, "-s lanes",
                            "whole number", "'four'")

    def test_3_missing_job_file(self):
        self.assert_mistake(self.muster("train", "jbo.yaml"), IO, "jbo.yaml")

    def test_6_batch_smaller_than_lanes(self):
        self.edit("batch: 16", "batch: 2")
        self.assert_mistake(self.muster("train", "job.yaml"), JOB, "job.yaml:", "batch", "lanes")

    def test_8_no_permission_to_read_the_job(self):
        before = self.as_nobody()
        self.job.chmod(0o600)
        outcome = self.muster("train", "job.yaml", before=before)
        self.assert_mistake(outcome, IO, "job.yaml", "ermission")

    def as_nobody(self):
        """What to put before a command so that permissions hold for it, or skip."""
        self.folder.chmod(0o777)
        if not IS_ROOT:
            return []
        if not shutil.which("setpriv"):
            self.skipTest("root may do everything, and there is no setpriv to be somebody else")
        before = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
        tried = subprocess.run([*before, MUSTER, "version"], capture_output=True)
        if tried.returncode != 0:
            self.skipTest("another user cannot run the programs where they are")
        return before

    def test_8_no_permission_for_the_runs(self):
        worker = self.write_program("worker", "pass")
        before = self.as_nobody()
        (self.folder / "runs").mkdir(mode=0o555)
        if IS_ROOT is False:
            self.addCleanup((self.folder / "runs").chmod, 0o755)
        outcome = self.muster("train", "job.yaml", "--worker", worker, before=before)
        self.assert_mistake(outcome, IO, "runs/tiny-", "ermission")

    def test_10_bad_device(self):
        outcome = self.muster("train", "job.yaml", "-s", "device=tpu")
        self.assertIn(outcome.code, (JOB, MACHINE), outcome)
        self.assert_mistake(outcome, outcome.code, "device", "tpu", "cpu")

    def test_12_unknown_option(self):
        self.assert_mistake(self.muster("train", "job.yaml", "--quite"), USAGE, "'--quite'",
                            "did you mean '--quiet'?")


@needs_worker
class WorkerMistakes(CommandTest):
    def setUp(self):
        super().setUp()
        self.job = self.write_job()

    def train(self, *words, **options):
        return self.muster("train", "job.yaml", "--quiet", *words, **options)

    def test_the_job_itself_is_fine(self):
        self.assert_ok(self.train())

    def test_3_missing_data_file(self):
        (self.folder / "train-images").unlink()
        outcome = self.train()
        self.assert_mistake(outcome, IO, "muster: job.yaml:", "data.train.images", "train-images", "there is no file",
                            "relative to the job file")
        self.assertFalse((self.folder / "runs").exists(), "it is said before anything is made")

    def test_4_label_out_of_range(self):
        self.write_images(wrong_label=9)
        outcome = self.train("-s", "data.train.classes=3")
        self.assert_mistake(outcome, DATA, "train-labels", "9", "32")

    def test_4_a_file_that_is_not_what_it_should_be(self):
        (self.folder / "train-labels").write_text("0\n1\n2\n")
        self.assert_mistake(self.train(), DATA, "train-labels")
        (self.folder / "train-labels").write_bytes(struct.pack(">II", 0x801, 63) + bytes(63))
        self.assert_mistake(self.train(), DATA, "63", "64")

    def test_5_shapes_that_do_not_fit(self):
        self.job.write_text(self.job.read_text().replace("- flatten", "- conv2d: { out: 4, kernel: 9 }"))
        # The line of the file that the person wrote, not of the resolved job in the run directory.
        self.assert_mistake(self.train(), JOB, "muster: job.yaml:6:", "conv2d")
        self.assert_mistake(self.muster("config", "check", "job.yaml"), JOB, "muster: job.yaml:6:",
                            "conv2d")

    def test_6_too_few_samples_in_a_lane_to_normalise(self):
        self.job.write_text(self.job.read_text().replace("- relu", "- batchnorm"))
        for lanes in (16, 9):
            self.assert_mistake(self.train("-s", f"lanes={lanes}"), JOB, "1 sample per lane",
                                "batch normalisation", "larger batch or fewer lanes")
        self.assert_ok(self.train("-s", "lanes=8"))

    def test_5_a_model_with_too_few_outputs(self):
        self.job.write_text(self.job.read_text().replace("out: 3", "out: 2"))
        self.assert_mistake(self.train(), JOB, "3", "2")

    def test_7_disk_full(self):
        if not IS_ROOT or not shutil.which("unshare"):
            self.skipTest("a small disk needs root and unshare")
        disk = self.folder / "disk"
        disk.mkdir()
        script = (f"mount -t tmpfs -o size=64k none '{disk}' && exec '{MUSTER}' train job.yaml "
                  f"--quiet -s runs='{disk}'")
        if subprocess.run(["unshare", "-m", "mount", "-t", "tmpfs", "none", disk],
                          capture_output=True).returncode != 0:
            self.skipTest("this container may not mount")
        # 64 KiB hold the job and the log, but no checkpoint of this layer.
        self.job.write_text(self.job.read_text().replace("out: 16", "out: 4096"))
        done = subprocess.run(["unshare", "-m", "sh", "-c", script], cwd=self.folder, env=self.env,
                              capture_output=True, text=True)
        self.assertEqual(done.returncode, IO, done)
        lines = done.stderr.strip().splitlines()
        self.assertEqual(len(lines), 1, done.stderr)
        self.assertIn(str(disk), lines[0])
        self.assertIn("No space left", lines[0])

    def test_9_checkpoint_of_another_model(self):
        self.assert_ok(self.train("--run-dir", "first"))
        other = self.job.read_text().replace("out: 16", "out: 17")
        self.job.write_text(other)
        self.assert_ok(self.train("--run-dir", "second"))
        shutil.rmtree(self.folder / "second/checkpoints")
        shutil.copytree(self.folder / "first/checkpoints", self.folder / "second/checkpoints")
        for words in (["eval", "second/"], ["resume", "second/", "-s", "passes=3", "--quiet"]):
            with self.subTest(words=words):
                outcome = self.muster(*words)
                self.assert_mistake(outcome, CHECKPOINT, "16", "17")

    def test_9_weights_of_a_file_that_is_no_checkpoint(self):
        self.write("weights.safetensors", "not weights")
        outcome = self.train("-s", "model.init_from=./weights.safetensors")
        self.assert_mistake(outcome, CHECKPOINT, "weights.safetensors")

    def test_11_interrupted_write(self):
        """A checkpoint torn by a power cut: the one before is used, and the end is the same."""
        self.assert_ok(self.train("--run-dir", "whole", "-s", "checkpoint.every=1 step"))
        self.assert_ok(self.train("--run-dir", "torn", "-s", "checkpoint.every=1 step",
                                  "-s", "steps=5"))
        newest = sorted((self.folder / "torn/checkpoints").glob("step-*"))[-1]
        with open(newest / "model.safetensors", "r+b") as file:
            file.truncate(file.seek(0, os.SEEK_END) // 2)
        outcome = self.muster("resume", "torn/", "--json", "-s", "steps=1000000")
        self.assert_ok(outcome)
        self.assertIn(newest.name, outcome.err + (self.folder / "torn/log.txt").read_text())
        whole = self.muster("runs", "show", "whole/", "-o", "json").json
        self.assertEqual(outcome.last_json["weights_hash"], whole["weights_hash"])

    def test_11_nothing_whole_is_left(self):
        self.assert_ok(self.train("--run-dir", "torn"))
        for file in (self.folder / "torn/checkpoints").glob("*/model.safetensors"):
            file.write_bytes(b"torn")
        self.assert_mistake(self.muster("eval", "torn/"), CHECKPOINT, "torn/checkpoints")
        self.assert_mistake(self.muster("export", "torn/", "--out", "x"), CHECKPOINT,
                            "torn/checkpoints")


if __name__ == "__main__":
    main()
