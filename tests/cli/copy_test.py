"""checkpoint.to: a run whose machine is lost continues from its copy, with the same bits; the copy is in a
directory, and in a real MinIO if there is one (scripts/fetch_minio.sh)."""

import json
import os
import shutil
import signal
import socket
import subprocess
from pathlib import Path

from harness import CHECKPOINT, MUSTER, USAGE, CommandTest, Program, main, needs_worker, wait_until

MINIO_VERSION = "20260212201848"
SECRET = "test-password"


def minio():
    """Like MinioServer::program() in muster/store/server_testing.h."""
    if "MUSTER_MINIO" in os.environ:
        return Path(os.environ["MUSTER_MINIO"])
    cache = os.environ.get("XDG_CACHE_HOME", os.path.expanduser("~/.cache"))
    return Path(cache) / "muster" / "minio" / MINIO_VERSION / "minio"


class InDirectory(CommandTest):
    def setUp(self):
        super().setUp()
        self.job = self.write_job(count=2000)
        self.to = str(self.folder / "copies" / "tiny")
        self.objects = Path(self.to)  # where the copy's objects can be seen
        self.long = ["-s", "passes=12", "-s", "checkpoint.every=40 steps", "-s", "eval.every=100 steps",
                     "-s", "track.every=10 steps"]

    def train(self, *words):
        return self.muster("train", self.job, "--json", *self.long, *words)

    def copied(self):
        """Steps of checkpoints that have reached the store."""
        return {int(path.parent.name[5:]) for path in self.objects.glob("*-*/checkpoints/step-*/manifest.json")}

    def start(self):
        process = Program([MUSTER, "train", str(self.job), "--json", *self.long, "-s", f"checkpoint.to={self.to}"],
                          cwd=self.folder, env=self.env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                          stderr=subprocess.PIPE, text=True)
        self.addCleanup(process.communicate)
        self.addCleanup(process.kill)
        wait_until(lambda: self.copied(), "a checkpoint in the copy")
        return process

    def steps(self, run):
        return [json.loads(line)["step"] for line in (run / "metrics.jsonl").read_text().splitlines()]

    @needs_worker
    def test_a_run_that_is_lost_continues_from_its_copy(self):
        whole = self.assert_ok(self.train()).last_json
        reference = self.steps(self.only_run())
        shutil.rmtree(self.folder / "runs")

        process = self.start()
        run = self.only_run()
        os.kill(json.loads((run / "status.json").read_text())["pid"], signal.SIGKILL)
        process.wait()
        shutil.rmtree(self.folder / "runs")  # the machine is gone

        resumed = self.muster("resume", self.to, "--json")
        self.assertEqual(self.assert_ok(resumed).last_json["weights_hash"], whole["weights_hash"])
        self.assertEqual(resumed.last_json["ledger"], whole["ledger"])
        self.assertIn("fetched runs/tiny-", resumed.err)
        self.assertEqual(self.only_run().name, run.name)
        self.assertEqual(self.steps(self.only_run()), reference)

        # The copy is that of the end; it is found in the same place, and continued there.
        shutil.rmtree(self.folder / "runs")
        facts = self.assert_ok(self.muster("runs", "fetch", self.to, "--run-dir", "there", "-o", "json")).json
        self.assertEqual((facts["run"], facts["step"]), ("there", whole["steps"]))
        again = self.assert_ok(self.muster("resume", "there", "--json")).last_json
        self.assertEqual(again["weights_hash"], whole["weights_hash"])
        for path in (self.folder / "there").rglob("*"):
            if path.is_file():
                self.assertNotIn(SECRET.encode(), path.read_bytes(), path)

    @needs_worker
    def test_ctrl_c_leaves_a_copy_of_the_last_step(self):
        whole = self.assert_ok(self.train()).last_json
        shutil.rmtree(self.folder / "runs")
        process = self.start()
        process.send_signal(signal.SIGINT)
        self.assertEqual(process.wait(), 130)
        step = json.loads((self.only_run() / "status.json").read_text())["step"]
        self.assertIn(step, self.copied())
        shutil.rmtree(self.folder / "runs")
        resumed = self.assert_ok(self.muster("resume", self.to, "--json", "--workers", "2")).last_json
        self.assertEqual(resumed["weights_hash"], whole["weights_hash"])

    @needs_worker
    def test_several_workers_send_too(self):
        whole = self.assert_ok(self.train("--workers", "2", "-s", f"checkpoint.to={self.to}")).last_json
        self.assertIn(whole["steps"], self.copied())
        shutil.rmtree(self.folder / "runs")
        resumed = self.assert_ok(self.muster("resume", self.to, "--json")).last_json
        self.assertEqual(resumed["weights_hash"], whole["weights_hash"])

    @needs_worker
    def test_a_copy_belongs_to_one_run(self):
        short = ["-s", "passes=1", "-s", f"checkpoint.to={self.to}"]
        self.assert_ok(self.muster("train", self.job, *short, "-q"))
        self.assert_mistake(self.muster("train", self.job, *short, "-q"), USAGE, "the copy of another run",
                            f"muster resume {self.to}")

    def test_there_is_no_copy(self):
        place = self.to + "/none"
        self.assert_mistake(self.muster("runs", "fetch", place), CHECKPOINT, "there is no copy", place)
        for command in (["runs", "fetch"], ["resume"]):
            outcome = self.muster(*command, "https://127.0.0.1:1/x?X-Amz-Signature=abc")
            self.assert_mistake(outcome, USAGE, "'https://127.0.0.1:1/x?...' cannot be the copy of a run")
            self.assertNotIn("abc", outcome.err)


class InMinio(InDirectory):
    def setUp(self):
        if not minio().exists():
            self.skipTest("MinIO is not there: scripts/fetch_minio.sh builds it")
        super().setUp()
        # A bucket is a directory in MinIO's own, and so is each of its objects.
        self.to = "s3://bucket/copies/tiny"
        data = self.folder / "minio"
        self.objects = data / "bucket" / "copies" / "tiny"
        (data / "bucket").mkdir(parents=True)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            address = "127.0.0.1:%d" % free.getsockname()[1]
        server = Program([minio(), "server", "--quiet", "--address", address, str(data)],
                         env={"HOME": str(data), "MINIO_ROOT_USER": "tester", "MINIO_ROOT_PASSWORD": SECRET,
                              "MINIO_BROWSER": "off", "MINIO_UPDATE": "off", "GOMAXPROCS": "2"},
                         stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.addCleanup(server.wait)
        self.addCleanup(server.kill)
        for name in [name for name in self.env if name.startswith("AWS_")]:
            del self.env[name]
        self.env.update({"AWS_ENDPOINT_URL": "http://" + address, "AWS_ACCESS_KEY_ID": "tester",
                         "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_REGION": "us-east-1", "HOME": str(self.folder)})
        wait_until(lambda: self.muster("runs", "fetch", "s3://bucket/none").code == CHECKPOINT, "MinIO")


if __name__ == "__main__":
    main()
