#!/usr/bin/env python3
"""Training on the hosts of a laboratory: slow links, delays and cuts change the time, not the result."""

import json
import os
import subprocess
import tempfile
import time
import unittest

from lab import BIN_DIR, Lab, LabError, start

SOURCE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
MUSTER = os.path.join(os.path.abspath(BIN_DIR), "muster")
JOB = os.path.join(SOURCE, "examples/lenet-sample.yaml")
OPTIONS = [word for option in ("passes=1", "threads=1", "eval.every=never", "workers.min=3")
           for word in ("-s", option)]


# Done at once when undisturbed; among others it notes where it is, and stays as long as its launcher does.
SOMEWHERE = """#!/usr/bin/env python3
import json, os, sys, time
run = sys.argv[sys.argv.index("--run") + 1]
if "--coordinator" in sys.argv:
    words = dict(zip(sys.argv[2::2], sys.argv[3::2]))
    note = [words["--id"], words["--host"], os.readlink("/proc/self/ns/net")]
    os.write(os.open("notes", os.O_WRONLY | os.O_APPEND | os.O_CREAT), (json.dumps(note) + "\\n").encode())
    while os.getppid() == int(os.environ["MUSTER_LAUNCHER_PID"]):
        time.sleep(0.01)
    sys.exit(1)
open(run + "/metrics.jsonl", "w")
json.dump({"weights_hash": "ab", "steps": 100}, open(run + "/result.json", "w"))
"""


def can_make_hosts():
    """Also with delays."""
    try:
        Lab("delay: 1ms\nhosts: [a]").end()
        return True
    except LabError:
        return False


def networks():
    """Of all processes."""
    found = set()
    for process in os.listdir("/proc"):
        try:
            found.add(os.readlink(f"/proc/{process}/ns/net"))
        except OSError:
            pass
    return found


def wait_until(condition, what):
    for _ in range(6000):
        if condition():
            return
        time.sleep(0.01)
    raise AssertionError(f"waited a minute for {what}")


@unittest.skipUnless(can_make_hosts(), "this system has no network namespaces for us")
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
            run, said = os.path.join(self.folder, "far"), os.path.join(self.folder, "said")
            lab.run("hub", [MUSTER, "coordinator", JOB, *OPTIONS, "--run-dir", run,
                            "--listen", lab.address("hub") + ":7000"],
                    stdout=open(said, "w"), stderr=subprocess.STDOUT)
            wait_until(lambda: os.path.exists(os.path.join(run, "coordinator.json")), "the coordinator")
            workers = [lab.run(host, [MUSTER, "join", run, "--id", host, "--host", lab.address(host)],
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
                       for host in ("paris", "tokyo", "lima")]
            metrics = os.path.join(run, "metrics.jsonl")
            wait_until(lambda: os.path.exists(metrics) and os.path.getsize(metrics) > 0, "the first steps")
            # Until they have noticed, and begun another group.
            lab.cut("paris", "tokyo")
            wait_until(lambda: "roster 2" in open(said).read(), "another roster")
            lab.heal("paris", "tokyo")
            for worker in workers:
                self.assertEqual(worker.wait(120), 0)
            # Each host has sent gradients, and the state to none or one of the others.
            for host in ("paris", "tokyo", "lima"):
                self.assertGreater(lab.bytes(host)["sent"], 1_000_000, host)
            self.assertEqual(self.hash_of("far"), self.alone())

    def test_verify_puts_its_workers_on_the_hosts_in_turn(self):
        hosts, worker = os.path.join(self.folder, "hosts.yaml"), os.path.join(self.folder, "worker")
        for path, text in (hosts, "hosts: [{name: paris, rate: 50mbit}, {name: tokyo, delay: 3ms}]"), (worker, SOMEWHERE):
            with open(path, "w") as file:
                file.write(text)
            os.chmod(path, 0o755)
        verify = start([MUSTER, "verify", JOB, "--workers", "3", "--faults", "kill:1", "--lab", hosts, "-q", "--worker", worker],
                       cwd=self.folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        path = os.path.join(self.folder, "notes")

        def notes():
            return sorted(map(json.loads, open(path))) if os.path.exists(path) else []
        wait_until(lambda: len(notes()) == 3, "three workers")
        verify.terminate()
        verify.wait()
        self.assertEqual([note[:2] for note in notes()], [["0", "10.119.1.1"], ["1", "10.119.1.2"], ["2", "10.119.1.1"]])
        paris, tokyo, again = (note[2] for note in notes())
        self.assertEqual(paris, again)
        self.assertNotIn(tokyo, (paris, os.readlink("/proc/self/ns/net")))

    def test_verify_on_hosts_far_apart(self):
        hosts = os.path.join(self.folder, "hosts.yaml")
        with open(hosts, "w") as file:
            file.write("hosts: [{name: paris, rate: 50mbit}, {name: tokyo, delay: 3ms}]")
        command = [MUSTER, "verify", JOB, "--lab", hosts, "-q", "-s", "passes=1", "-s", "threads=1", "-s",
                   "eval.every=never"]
        done = subprocess.run([*command, "--workers", "2", "--faults", "kill:1"], text=True, capture_output=True)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("equal, bit for bit", done.stdout)
        done = subprocess.run([*command, "--workers", "3", "--faults", "cut:1"], text=True, capture_output=True)
        self.assertEqual(done.returncode, 2)
        self.assertIn("a host for each of the 3 workers", done.stderr)

    def test_mistakes_are_answered(self):
        with Lab("hosts: [paris, tokyo]") as lab:
            with self.assertRaisesRegex(LabError, "no host 'rome'"):
                lab.cut("paris", "rome")
            with self.assertRaisesRegex(LabError, "from the beginning"):
                lab.link("paris", delay="5ms")
            with self.assertRaisesRegex(LabError, "100mbit"):
                lab.link("paris", rate="fast")

    def test_nothing_is_left_of_a_laboratory_that_was_killed(self):
        before, files = networks(), set(os.listdir(tempfile.gettempdir()))
        lab = Lab("delay: 1ms\nhosts: [paris, tokyo]")
        self.assertGreater(len(networks() - before), 0)
        lab.process.kill()
        lab.process.communicate()
        wait_until(lambda: not networks() - before, "the end of the relay")
        self.assertEqual([name for name in set(os.listdir(tempfile.gettempdir())) - files if "muster-lab" in name], [])


if __name__ == "__main__":
    unittest.main()
