"""A run is tied to its numerics and its data: with others it is not resumed, and no worker with others joins it,
unless the user says so. Real workers; other numerics are those of libtorch's plainest kernels."""

import json
import shutil
import signal
import subprocess

from harness import CHECKPOINT, MUSTER, REFUSED, USAGE, CommandTest, Program, main, needs_worker, wait_until

# libtorch then takes kernels that add in another order: a machine with another instruction set.
OTHER_MACHINE = {"ATEN_CPU_CAPABILITY": "default"}


class Tied(CommandTest):
    def setUp(self):
        super().setUp()
        self.job = self.write_job()
        # Softmax over 64 classes: wide enough for vectors, so that the model's numerics differ too.
        text = self.job.read_text().replace("out: 3 }", "out: 64 }").replace("images: t", "classes: 64, images: t")
        self.job.write_text(text)

    def change(self, name, at=-1):
        """Another value of one pixel."""
        path = self.folder / f"{name}-images"
        data = bytearray(path.read_bytes())
        data[at] ^= 1
        path.write_bytes(data)

    def result(self, run="run"):
        return json.loads((self.folder / run / "result.json").read_text())

    def saved(self, run="run"):
        """The fingerprint in the newest checkpoint."""
        newest = max((self.folder / run / "checkpoints").glob("step-*"))
        return json.loads((newest / "meta.json").read_text())["fingerprint"]


@needs_worker
class Resuming(Tied):
    def setUp(self):
        super().setUp()
        self.assert_ok(self.muster("train", self.job, "-q", "--run-dir", "run"))

    def resume(self, *words, **options):
        return self.muster("resume", "./run", "-q", "-s", "passes=4", *words, **options)

    def assert_refused(self, outcome, *mentions):
        self.assertEqual(outcome.code, CHECKPOINT, outcome)
        for mention in mentions:
            self.assertIn(mention, outcome.err, outcome)

    def test_the_fingerprint_is_in_the_checkpoint_and_in_the_result_whoever_trains(self):
        fingerprint = self.result()["fingerprint"]
        self.assertEqual(sorted(fingerprint), ["kernels", "model", "test_data", "train_data"])
        self.assertEqual({len(hash) for hash in fingerprint.values()}, {32}, fingerprint)
        self.assertEqual(len(set(fingerprint.values())), 4, fingerprint)
        self.assertEqual(self.saved(), fingerprint)
        self.assertEqual(self.result()["numerics"], "exact")
        for run, words in ("two", ["--workers", "2"]), ("threads", ["-s", "threads=3"]):
            self.assert_ok(self.muster("train", self.job, "-q", "--run-dir", run, *words))
            self.assertEqual(self.result(run)["fingerprint"], fingerprint, run)
            self.assertEqual(self.saved(run), fingerprint, run)
        self.assert_ok(self.resume())
        self.assertEqual(self.result()["fingerprint"], fingerprint)

    def test_one_changed_byte_of_the_training_data_is_refused_and_can_be_accepted(self):
        before = self.saved()
        self.change("train")
        for words in [], ["--workers", "2"]:
            self.assert_refused(self.resume(*words), "run differs from its checkpoint in data.train (",
                                f", not {before['train_data'][:8]})", "muster resume --accept-other-data")
        self.assertEqual(self.result()["steps"], 8, "nothing was trained")
        self.assert_ok(self.resume("--accept-other-data"))
        self.assertEqual(self.result()["steps"], 16)
        after = self.result()["fingerprint"]
        self.assertEqual([part for part in before if after[part] != before[part]], ["train_data"])
        self.assertEqual(self.saved(), after, "what comes next is compared with the new data")
        self.assertIn("now differs from its checkpoint in data.train", (self.folder / "run/log.txt").read_text())

    def test_several_workers_accept_them_too(self):
        self.change("train", at=16)  # a pixel of the first sample, on which the model is tried
        self.assert_refused(self.resume("--workers", "2"), "in data.train (")
        self.assert_ok(self.resume("--workers", "2", "--accept-other-data"))
        self.assertEqual(self.result()["steps"], 16)
        logs = [path.read_text() for path in (self.folder / "run/workers").glob("*.log")]
        self.assertTrue(any("resuming after step 8" in log for log in logs), logs)

    def test_changed_test_data_are_refused_and_the_same_data_elsewhere_are_not(self):
        (self.folder / "run/job.yaml").write_text(
            (self.folder / "run/job.yaml").read_text().replace("/test-images", "/moved-images"))
        shutil.move(self.folder / "test-images", self.folder / "moved-images")
        self.assert_ok(self.muster("resume", "./run", "-q", "-s", "passes=3"))
        self.change("moved")
        self.assert_refused(self.resume(), "run differs from its checkpoint in data.test (")

    def test_other_numerics_are_refused_and_can_be_tolerated(self):
        for words in [], ["--workers", "2"]:
            self.assert_refused(self.resume(*words, env=OTHER_MACHINE),
                                "the numerics of kernels (", f", not {self.saved()['kernels'][:8]})",
                                "and the numerics of the model (", "muster resume -s numerics=tolerant")
        self.assert_refused(self.resume("--accept-other-data", env=OTHER_MACHINE), "the numerics of kernels (")
        self.assert_ok(self.resume("-s", "numerics=tolerant", env=OTHER_MACHINE))
        self.assertEqual(self.result()["steps"], 16)
        self.assertEqual(self.result()["numerics"], "tolerant")

    def test_only_these_options_may_change(self):
        self.assert_mistake(self.muster("resume", "./run", "-s", "numeric=tolerant"), USAGE, "numerics")


@needs_worker
class Joining(Tied):
    def start(self, *words):
        """A job that trains until the test has seen enough."""
        process = self.launch(["train", self.job, "-q", "--run-dir", "run", "--workers", "1", "-s", "threads=1",
                               "-s", "passes=0", "-s", "time=1h", "-s", "lanes=2", *words])
        wait_until(lambda: (self.folder / "run/checkpoints").exists(), "the first checkpoint")
        return process

    def launch(self, words, env=()):
        process = Program([MUSTER, *words], cwd=self.folder, env={**self.env, **dict(env)}, stdin=subprocess.DEVNULL,
                          stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)

        def end():
            if process.poll() is None:
                process.kill()
                process.communicate()

        self.addCleanup(end)
        return process

    def join(self, **options):
        return self.muster("join", "./run", "-q", "--id", "late", **options)

    def stop(self, process):
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate()
        self.assertEqual(process.returncode, 143, err)

    def test_a_worker_with_one_other_byte_of_data_is_refused_and_the_job_continues(self):
        process = self.start()
        self.change("train")
        outcome = self.join()
        self.assertEqual(outcome.code, REFUSED, outcome)
        self.assertIn("worker late differs from the workers of this job in data.train (", outcome.err)
        self.assertIn(f", not {self.saved()['train_data'][:8]}): give all workers the same data files", outcome.err)
        self.assertIsNone(process.poll(), "the job continues")
        self.stop(process)
        log = (self.folder / "run/launch.log").read_text()
        self.assertEqual(log.count("worker late is refused"), 1, "it is not tried again")

    def test_a_worker_with_other_numerics_is_refused(self):
        process = self.start()
        outcome = self.join(env=OTHER_MACHINE)
        self.assertEqual(outcome.code, REFUSED, outcome)
        self.assertIn("in the numerics of kernels (", outcome.err)
        self.assertIn("and the numerics of the model (", outcome.err)
        self.assertIn("`numerics: tolerant`", outcome.err)
        self.stop(process)

    def test_a_tolerant_job_accepts_it_and_warns(self):
        process = self.start("-s", "numerics=tolerant")
        self.launch(["join", "./run", "-q", "--id", "late"], OTHER_MACHINE)
        log = self.folder / "run/workers/late.log"
        wait_until(lambda: log.exists() and " of 2, 1 lanes" in log.read_text(), "both train")
        self.assertEqual((self.folder / "run/launch.log").read_text().count(
            "warning: worker late differs from the workers of this job in the numerics of kernels ("), 1)
        self.stop(process)


if __name__ == "__main__":
    main()
