#!/usr/bin/env python3
"""Training on the hosts of a laboratory: slow links, delays and cuts change the time, not the result."""

import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
import unittest

from lab import BIN_DIR, Lab, LabError

SOURCE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
MUSTER = os.path.join(os.path.abspath(BIN_DIR), "muster")
JOB = os.path.join(SOURCE, "examples/lenet-sample.yaml")
OPTIONS = [word for option in ("passes=1", "threads=1", "eval.every=never", "workers.min=3")
           for word in ("-s", option)]


def can_make_hosts():
    return os.geteuid() == 0 and shutil.which("ip", path=os.environ["PATH"] + ":/usr/sbin:/sbin")


def wait_until(condition, what):
    for _ in range(6000):
        if condition():
            return
        time.sleep(0.01)
    raise AssertionError(f"waited a minute for {what}")


@unittest.skipUnless(can_make_hosts(), "network namespaces need root and iproute2")
class LabTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="muster-")
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def hash_of(self, run):
        with open(os.path.join(self.folder, run, "result.json")) as file:
            return json.load(file)["weights_hash"]

    def alone(self):
        subprocess.run([MUSTER, "train", JOB, "-q", "--run-dir", os.path.join(self.folder, "alone"), *OPTIONS[:-2]],
                       check=True, stdout=subprocess.DEVNULL)
        return self.hash_of("alone")

    def test_hosts_far_apart_train_to_the_same_bits_through_a_cut(self):
        with Lab("rate: 100mbit\ndelay: 2ms\nhosts: [paris, tokyo, lima]") as lab:
            run = os.path.join(self.folder, "far")
            lab.run("hub", [MUSTER, "coordinator", JOB, *OPTIONS, "--run-dir", run,
                            "--listen", lab.address("hub") + ":7000"],
                    stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            wait_until(lambda: os.path.exists(os.path.join(run, "coordinator.json")), "the coordinator")
            workers = [lab.run(host, [MUSTER, "join", run, "--id", host, "--host", lab.address(host)],
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
                       for host in ("paris", "tokyo", "lima")]
            metrics = os.path.join(run, "metrics.jsonl")
            wait_until(lambda: os.path.exists(metrics) and os.path.getsize(metrics) > 0, "the first steps")
            lab.cut("paris", "tokyo")
            time.sleep(1)
            lab.heal("paris", "tokyo")
            for worker in workers:
                self.assertEqual(worker.wait(120), 0)
            # Each host has sent gradients, and the state to none or one of the others.
            for host in ("paris", "tokyo", "lima"):
                self.assertGreater(lab.bytes(host)["sent"], 1_000_000, host)
            self.assertEqual(self.hash_of("far"), self.alone())

    def test_verify_puts_its_workers_on_the_hosts(self):
        hosts = os.path.join(self.folder, "hosts.yaml")
        with open(hosts, "w") as file:
            file.write("hosts: [{name: paris, rate: 50mbit}, {name: tokyo, delay: 3ms}]")
        done = subprocess.run([MUSTER, "verify", JOB, "--workers", "2", "--faults", "kill:1", "--lab", hosts, "-q",
                               "-s", "passes=1", "-s", "threads=1", "-s", "eval.every=never"], text=True, capture_output=True)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("equal, bit for bit", done.stdout)

    def test_mistakes_are_answered(self):
        with Lab("hosts: [paris, tokyo]") as lab:
            with self.assertRaisesRegex(LabError, "no host 'rome'"):
                lab.cut("paris", "rome")
            with self.assertRaisesRegex(LabError, "from the beginning"):
                lab.link("paris", delay="5ms")
            with self.assertRaisesRegex(LabError, "100mbit"):
                lab.link("paris", rate="fast")

    def test_nothing_is_left_of_a_laboratory_that_was_killed(self):
        lab = Lab("delay: 1ms\nhosts: [paris, tokyo]")
        pid = lab.process.pid
        with open(f"/proc/{pid}/task/{pid}/children") as file:
            relay = int(file.read().split()[0])
        self.assertTrue(os.path.exists(f"/proc/{relay}"))
        lab.process.send_signal(signal.SIGKILL)
        lab.process.wait()
        wait_until(lambda: not os.path.exists(f"/proc/{relay}"), "the end of the relay")
        lab.process.stdin.close()
        lab.process.stdout.close()


if __name__ == "__main__":
    unittest.main()
