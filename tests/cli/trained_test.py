"""From a job to a trained model and back, with the real worker."""

import json
import os
import shutil
import signal
import struct
import subprocess
import time

from harness import INTERRUPTED, MUSTER, TERMINATED, CommandTest, Program, main, needs_worker


@needs_worker
class Trained(CommandTest):
    def setUp(self):
        super().setUp()
        self.job = self.write_job()

    def train(self, *words):
        return self.assert_ok(self.muster("train", "job.yaml", "--json", *words)).last_json

    def test_the_result_for_programs(self):
        outcome = self.assert_ok(self.muster("train", "job.yaml", "--json"))
        for line in outcome.out.splitlines():
            self.assertIsInstance(json.loads(line), dict)
        result = outcome.last_json
        self.assertRegex(result["weights_hash"], r"^[0-9a-f]{32}$")
        self.assertEqual(result["steps"], 8)
        self.assertIn("accuracy", result["test"])
        self.assertTrue((self.folder / result["run_dir"] / "job.yaml").exists())

    def test_threads_do_not_change_the_bits(self):
        hashes = {self.train("-s", f"threads={threads}")["weights_hash"] for threads in (1, 2, 3)}
        self.assertEqual(len(hashes), 1)
        self.assertNotIn(self.train("-s", "seed=6")["weights_hash"], hashes)

    def test_running_the_resolved_job_again_gives_the_same_bits(self):
        first = self.train()
        resolved = self.folder / first["run_dir"] / "job.yaml"
        again = self.assert_ok(self.muster("train", resolved, "--json")).last_json
        self.assertEqual(again["weights_hash"], first["weights_hash"])
        compared = self.assert_ok(self.muster("runs", "compare", first["run_dir"], again["run_dir"],
                                              "-o", "json")).json
        self.assertIs(compared["same_weights"], True)
        self.assertEqual(compared["options"], [])

    def test_eval_and_predict(self):
        result = self.train("-s", "passes=20")
        evaluated = self.assert_ok(self.muster("eval", "latest", "--checkpoint", "newest",
                                               "-o", "json")).json
        text = json.dumps(evaluated)
        self.assertIn(json.dumps(result["test"]["loss"]), text, "the same as training measured")
        self.assert_ok(self.muster("eval", "latest", "-s", "data.test.limit=8"))
        self.assert_ok(self.muster("predict", "latest", "--samples", "0-3"))
        rows = self.assert_ok(self.muster("predict", "latest", "--samples", "0-3", "-o", "json")).json
        self.assertEqual([row["sample"] for row in rows], [0, 1, 2, 3])
        self.assertEqual([row["class"] for row in rows], [0, 1, 2, 0], "it has learnt this much")

    def test_list_and_show(self):
        result = self.train()
        listed = self.assert_ok(self.muster("runs", "list", "-o", "json")).json
        self.assertEqual([run["state"] for run in listed], ["finished"])
        self.assertEqual(listed[0]["weights_hash"], result["weights_hash"])
        shown = self.assert_ok(self.muster("runs", "show", "-o", "json")).json
        self.assertEqual(shown["checkpoints"][-1]["step"], 8)
        self.assertIn("finished", self.assert_ok(self.muster("resume")).out)

    def test_export(self):
        result = self.train()
        self.assert_ok(self.muster("export", "latest", "--checkpoint", "newest", "--with-job",
                                   "--out", "tiny.safetensors"))
        exported = (self.folder / "tiny.safetensors").read_bytes()
        checkpoints = sorted((self.folder / result["run_dir"] / "checkpoints").glob("step-*"))
        self.assertEqual(exported, (checkpoints[-1] / "model.safetensors").read_bytes())
        length = struct.unpack("<Q", exported[:8])[0]
        header = json.loads(exported[8:8 + length])
        header.pop("__metadata__", None)
        self.assertEqual(sorted(tuple(tensor["shape"]) for tensor in header.values()),
                         [(3,), (3, 16), (16,), (16, 64)])
        again = self.assert_ok(self.muster("train", "tiny.safetensors.job.yaml", "--json")).last_json
        self.assertEqual(again["weights_hash"], result["weights_hash"])
        more = self.train("-s", "model.init_from=./tiny.safetensors")
        self.assertNotEqual(more["weights_hash"], result["weights_hash"])

    def test_an_output_that_nobody_reads_does_not_hold_up_the_training(self):
        # As a terminal stopped by Ctrl-S does: the pipe is full before the run begins.
        reader, writer = os.pipe()
        self.addCleanup(os.close, reader)
        os.set_blocking(writer, False)
        filled = 0
        try:
            while True:
                filled += os.write(writer, b"." * 4096)
        except BlockingIOError:
            os.set_blocking(writer, True)
        process = Program([MUSTER, "train", "job.yaml", "--json", "--run-dir", "unread"],
                          cwd=self.folder, env=self.env, stdout=writer)
        os.close(writer)
        for _ in range(6000):
            if (self.folder / "unread/result.json").exists():
                break
            time.sleep(0.01)
        self.assertTrue((self.folder / "unread/result.json").exists(), "trained to the end")
        with open(reader, "rb", closefd=False) as stream:
            text = stream.read()[filled:]
        self.assertEqual(process.wait(), 0)
        result = json.loads(text.splitlines()[-1])
        self.assertEqual(result["steps"], 8)
        self.assertEqual(result["event"], "result")

    def test_a_reader_that_goes_away_does_not_end_the_training(self):
        reader, writer = os.pipe()
        os.close(reader)
        process = Program([MUSTER, "train", "job.yaml", "--json", "--run-dir", "unheard"],
                          cwd=self.folder, env=self.env, stdout=writer)
        os.close(writer)
        self.assertEqual(process.wait(), 0)
        self.assertTrue((self.folder / "unheard/result.json").exists())

    def interrupted(self, number, times=1):
        """Starts a long run, sends the signal once it has stepped, returns its exit code."""
        process = Program([MUSTER, "train", "job.yaml", "--json", "-s", "passes=100000",
                           "-s", "track.every=1 step", "--run-dir", number.name],
                          cwd=self.folder, env=self.env, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True)
        metrics = self.folder / number.name / "metrics.jsonl"
        for _ in range(6000):
            if metrics.exists() and metrics.stat().st_size > 0:
                break
            time.sleep(0.01)
        for _ in range(times):
            process.send_signal(number)
            time.sleep(0.05)
        process.communicate()
        return process.returncode

    def test_what_a_wrapper_passes_on_once_more_is_no_second_signal(self):
        self.assertEqual(self.interrupted(signal.SIGINT, times=3), INTERRUPTED)
        shown = self.assert_ok(self.muster("runs", "show", "SIGINT/", "-o", "json")).json
        self.assertEqual(shown["state"], "interrupted")
        self.assertTrue(shown["checkpoints"], "it saved before it left")

    def test_quiet_says_the_result_in_one_line(self):
        said = self.assert_ok(self.muster("train", "job.yaml", "--quiet", "--run-dir", "hushed")).out
        result = json.loads((self.folder / "hushed/result.json").read_text())
        self.assertEqual(len(said.splitlines()), 1, said)
        self.assertIn(f"{result['steps']} steps", said)
        self.assertIn(result["weights_hash"], said)

    def test_resuming_what_has_no_checkpoint_says_so(self):
        self.train("--run-dir", "bare", "-s", "checkpoint.every=0")
        shutil.rmtree(self.folder / "bare/checkpoints", ignore_errors=True)
        (self.folder / "bare/status.json").unlink()
        outcome = self.assert_ok(self.muster("resume", "bare/", "--quiet"))
        self.assertIn("no checkpoint yet: it begins anew", outcome.err)

    def test_only_another_length_moves_the_schedule(self):
        self.train("--run-dir", "cosine", "-s", "optimizer.schedule.kind=cosine")
        told = "follows the job's length"
        self.assertNotIn(told, self.assert_ok(self.muster("resume", "cosine/", "--quiet", "-s", "threads=2")).err)
        self.assertIn(told, self.assert_ok(self.muster("resume", "cosine/", "--quiet", "-s", "passes=3")).err)

    def test_signals_save_and_leave_with_their_own_code(self):
        for number, code in ((signal.SIGINT, INTERRUPTED), (signal.SIGTERM, TERMINATED), (signal.SIGHUP, 129)):
            with self.subTest(signal=number.name):
                self.assertEqual(self.interrupted(number), code)
                shown = self.assert_ok(self.muster("runs", "show", f"{number.name}/", "-o", "json")).json
                self.assertEqual(shown["state"], "interrupted")
                stopped_at = shown["checkpoints"][-1]["step"]
                resumed = self.assert_ok(self.muster("resume", f"{number.name}/", "--json",
                                                     "-s", f"steps={stopped_at + 5}")).last_json
                self.assertEqual(resumed["steps"], stopped_at + 5)
                straight = self.train("-s", "passes=100000", "-s", f"steps={stopped_at + 5}")
                self.assertEqual(resumed["weights_hash"], straight["weights_hash"])

    def test_the_worker_leaves_when_muster_is_killed(self):
        process = Program([MUSTER, "train", "job.yaml", "--quiet", "-s", "passes=100000",
                           "-s", "track.every=1 step", "--run-dir", "orphan"],
                          cwd=self.folder, env=self.env)
        metrics = self.folder / "orphan/metrics.jsonl"
        for _ in range(6000):
            if metrics.exists() and metrics.stat().st_size > 0:
                break
            time.sleep(0.01)
        process.kill()
        process.wait()

        def state():
            return self.muster("runs", "show", "orphan/", "-o", "json").json["state"]

        for _ in range(600):
            if state() != "running":
                break
            time.sleep(0.1)
        self.assertIn(state(), ("interrupted", "died"))


if __name__ == "__main__":
    main()
