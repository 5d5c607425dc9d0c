"""checkpoint.to: a run whose machine is lost continues from its copy, with the same bits; the copy is in a
directory, and in a real MinIO if there is one (scripts/fetch_minio.sh)."""

import hashlib
import json
import os
import shutil
import signal
import socket
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit

from harness import CHECKPOINT, IO, MUSTER, USAGE, CommandTest, Program, main, needs_worker, wait_until

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


class ObjectStore(ThreadingHTTPServer):
    """As much of S3 as a copy needs, in memory, and with faults: it refuses to write names that contain
    `refused`, and does not answer reads of names that contain `silent`."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), ObjectRequest)
        self.lock = threading.Lock()
        self.objects = {}
        self.refused = self.silent = None
        self.asked = threading.Event()  # for something that is silent
        self.over = threading.Event()
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def end(self):
        self.over.set()
        self.shutdown()
        self.server_close()


class ObjectRequest(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def answer(self, status, body=b"", **headers):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def fail(self, status, code):
        self.answer(status, f"<Error><Code>{code}</Code><Message>{code}</Message></Error>".encode())

    @property
    def key(self):
        return unquote(urlsplit(self.path).path).partition("/bucket/")[2]

    @staticmethod
    def tag(contents):
        return '"%s"' % hashlib.md5(contents).hexdigest()

    def do_PUT(self):
        contents = self.rfile.read(int(self.headers["Content-Length"]))
        store = self.server
        if store.refused and store.refused in self.key:
            return self.fail(403, "AccessDenied")
        with store.lock:
            there = store.objects.get(self.key)
            wanted = self.headers.get("If-Match")
            if (self.headers.get("If-None-Match") and there is not None) or (
                    wanted and (there is None or self.tag(there) != wanted)):
                return self.fail(412, "PreconditionFailed")
            store.objects[self.key] = contents
        return self.answer(200, ETag=self.tag(contents))

    def do_DELETE(self):
        with self.server.lock:
            self.server.objects.pop(self.key, None)
        self.answer(204)

    def do_GET(self):
        query = parse_qs(urlsplit(self.path).query)
        if "list-type" in query:
            return self.list(query.get("prefix", [""])[0])
        if self.server.silent and self.server.silent in self.key:
            self.server.asked.set()
            self.server.over.wait()
            return None
        contents = self.server.objects.get(self.key)
        if contents is None:
            return self.fail(404, "NoSuchKey")
        first, last = map(int, self.headers["Range"].partition("=")[2].split("-"))
        return self.answer(206, contents[first:last + 1], ETag=self.tag(contents),
                           Content_Range=f"bytes {first}-{last}/{len(contents)}")

    def list(self, prefix):
        with self.server.lock:
            found = sorted((key, contents) for key, contents in self.server.objects.items() if key.startswith(prefix))
        entries = "".join(f"<Contents><Key>{key}</Key><ETag>{self.tag(contents)}</ETag><Size>{len(contents)}</Size>"
                          "</Contents>" for key, contents in found)
        self.answer(200, f"<ListBucketResult><IsTruncated>false</IsTruncated>{entries}</ListBucketResult>".encode())


class WithFaults(CommandTest):
    def setUp(self):
        super().setUp()
        self.job = self.write_job()
        self.store = ObjectStore()
        self.addCleanup(self.store.end)
        for name in [name for name in self.env if name.startswith("AWS_")]:
            del self.env[name]
        self.env.update({"AWS_ENDPOINT_URL": "http://127.0.0.1:%d" % self.store.server_port,
                         "AWS_ACCESS_KEY_ID": "tester", "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_REGION": "us-east-1",
                         "HOME": str(self.folder), "no_proxy": "127.0.0.1"})
        self.to = "s3://bucket/copies/tiny"

    @needs_worker
    def test_a_copy_that_is_refused_at_the_end_ends_the_job(self):
        for workers in ([], ["--workers", "2"]):
            to = self.to + str(len(workers))
            self.store.refused = "step-"
            failed = self.muster("train", self.job, "-q", *workers, "-s", f"checkpoint.to={to}")
            self.assertEqual(failed.code, IO, failed)
            run = self.only_run()
            self.assertIn("training is complete and saved in", failed.err)
            self.assertIn("AccessDenied", failed.err)
            self.assertRegex(failed.err, f"`muster resume [^`]*{run.name}` sends what is missing")
            self.assertEqual(json.loads((run / "status.json").read_text())["state"], "failed")
            if workers:
                self.assertNotIn("is started again", (run / "launch.log").read_text())
            self.store.refused = None
            self.assert_ok(self.muster("resume", run, "-q"))
            self.assertTrue([key for key in self.store.objects if to[12:] + "/" in key and "step-" in key])
            shutil.rmtree(self.folder / "runs")

    @needs_worker
    def test_ctrl_c_while_it_fetches_leaves_nothing(self):
        self.assert_ok(self.muster("train", self.job, "-q", "-s", f"checkpoint.to={self.to}"))
        shutil.rmtree(self.folder / "runs")
        self.store.silent = "model.safetensors"
        for number in (signal.SIGINT, signal.SIGTERM):
            self.store.asked.clear()
            process = Program([MUSTER, "runs", "fetch", self.to], cwd=self.folder, env=self.env,
                              stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            self.addCleanup(process.kill)
            self.assertTrue(self.store.asked.wait(60))
            self.assertEqual(len(list((self.folder / "runs").glob(".fetch-*"))), 1)
            process.send_signal(number)
            self.assertEqual(process.wait(60), -number)
            self.assertEqual(list((self.folder / "runs").iterdir()), [])


if __name__ == "__main__":
    main()
