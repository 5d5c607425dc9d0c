"""`muster verify` as a person or a script meets it: what it prints when all is not well, and when it is stopped.
Whether it can tell equal from unequal is asked by tests/e2e/verify.py."""

import json
import os
import shutil
import signal
import subprocess
import threading
import unittest
from pathlib import Path

from harness import INTERNAL, MUSTER, USAGE, CommandTest, Program, main, needs_worker, networks, wait_until

# A stand-in: undisturbed it is done at once, among others it never leaves.
STUBBORN = """\
    run = sys.argv[sys.argv.index("--run") + 1]
    if "--coordinator" in sys.argv:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        open(os.path.dirname(os.path.abspath(sys.argv[0])) + "/ready", "w")
        while os.getppid() == int(os.environ["MUSTER_LAUNCHER_PID"]):
            time.sleep(0.01)
        sys.exit(1)
    open(run + "/metrics.jsonl", "w")
    json.dump({"weights_hash": "ab", "steps": 100}, open(run + "/result.json", "w"))
    """


class Verify(CommandTest):
    def setUp(self):
        super().setUp()
        self.job = self.write_job()
        self.temporary = self.folder / "temporary"
        self.temporary.mkdir()
        self.env["TMPDIR"] = str(self.temporary)


@needs_worker
class Reporting(Verify):
    def test_with_faults_left_programs_get_one_document(self):
        # A pair needs three workers, so it never falls.
        outcome = self.muster("verify", self.job, "--workers", 1, "--faults", "pair:2", "-o", "json")
        self.assert_mistake(outcome, USAGE, "2 of 2 faults left")
        self.assertEqual(outcome.json["error"]["kind"], "usage")
        self.assertIn("2 of 2 faults left", outcome.json["error"]["message"])
        self.assertTrue(outcome.json["equal"])
        self.assertEqual((outcome.json["faults"], outcome.json["faults_left"]), (0, 2))

    def test_people_are_told_too(self):
        outcome = self.muster("verify", self.job, "--workers", 1, "--faults", "pair:1", "-q")
        self.assert_mistake(outcome, USAGE, "1 of 1 faults left")
        self.assertIn("equal, bit for bit", outcome.out)

    def test_the_timeline_has_recoveries_too(self):
        outcome = self.assert_ok(self.muster("verify", self.job, "--workers", 2, "--faults", "kill:1",
                                             "-s", "passes=50", "-q"))
        self.assertRegex(outcome.out, r" s  step +\d+  kill +worker (\d)\n"
                                      r"(.*\n)* +[0-9.]+ s +recovered +stalled for \d+ ms by kill of \1\n")


class Stopping(Verify):
    """Whoever is stopped leaves nothing, and advises nothing that would not work."""

    def stop(self, number, ready, *words):
        process = Program([MUSTER, *map(str, ["verify", self.job, *words])], cwd=self.folder, env=self.env,
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.addCleanup(process.communicate)
        self.addCleanup(process.kill)
        limit = threading.Timer(60, process.kill)  # only ends a test that is broken
        limit.start()
        self.addCleanup(limit.cancel)
        wait_until(lambda: ready() or process.poll() is not None, "a beginning")
        process.send_signal(number)
        out, err = process.communicate()
        self.assertEqual(process.returncode, 128 + number, out + err)
        self.assertNotIn("resume", out + err)
        self.assertEqual(err, f"muster: stopped by {number.name}\n")
        self.assertEqual(list(self.temporary.iterdir()), [])

    @needs_worker
    def test_the_undisturbed_run(self):
        for number in (signal.SIGINT, signal.SIGTERM):
            with self.subTest(signal=number):
                self.stop(number, lambda: list(self.temporary.glob("*/undisturbed/metrics.jsonl")),
                          "-s", "passes=1000000")

    def test_workers_that_do_not_leave(self):
        worker = self.write_program("worker", STUBBORN)
        self.stop(signal.SIGINT, (self.folder / "ready").exists, "--workers", 1, "--worker", worker)


# Done at once when undisturbed; among others it notes where it is, and stays as long as its launcher does.
SOMEWHERE = """\
    run = sys.argv[sys.argv.index("--run") + 1]
    if "--coordinator" in sys.argv:
        words = dict(zip(sys.argv[2::2], sys.argv[3::2]))
        about = {"id": words["--id"], "host": words["--host"], "directory": os.getcwd(),
                 "network": os.readlink("/proc/self/ns/net"),
                 "boot": open("/proc/sys/kernel/random/boot_id").read()}
        os.write(os.open(os.path.dirname(os.path.abspath(sys.argv[0])) + "/notes",
                         os.O_WRONLY | os.O_APPEND | os.O_CREAT), (json.dumps(about) + "\\n").encode())
        while os.getppid() == int(os.environ["MUSTER_LAUNCHER_PID"]):
            time.sleep(0.01)
        sys.exit(1)
    open(run + "/metrics.jsonl", "w")
    json.dump({"weights_hash": "ab", "steps": 100}, open(run + "/result.json", "w"))
    """


@unittest.skipUnless(os.geteuid() == 0 and all(map(shutil.which, ("ip", "nsenter"))),
                     "networks that can be cut need root and iproute2")
class Cutting(Verify):
    def start(self, *words):
        worker = self.write_program("worker", SOMEWHERE)
        process = Program([MUSTER, "verify", self.job, "--workers", "3", *words, "--worker", worker],
                          cwd=self.folder, env=self.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.addCleanup(process.communicate)
        self.addCleanup(process.kill)
        wait_until(lambda: process.poll() is not None or len(self.notes()) == 3, "three workers")
        return process

    def notes(self):
        path = self.folder / "notes"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def test_every_worker_is_on_a_machine_of_its_own(self):
        process = self.start("--faults", "cut:1")
        notes = sorted(self.notes(), key=lambda note: note["id"])
        self.assertEqual([note["id"] for note in notes], ["0", "1", "2"], process.poll())
        self.assertEqual([note["host"] for note in notes], ["10.119.1.1", "10.119.1.2", "10.119.1.3"])
        self.assertEqual({note["directory"] for note in notes}, {str(self.folder)})
        own = os.readlink("/proc/self/ns/net")
        self.assertEqual(len({note["network"] for note in notes} | {own}), 4)
        self.assertEqual(len({note["boot"] for note in notes}), 3, "they would share memory")

        self.assert_leaves_nothing(process, signal.SIGTERM)

    def test_nothing_is_left_behind_when_it_is_killed(self):
        self.assert_leaves_nothing(self.start("--faults", "cut:1"), signal.SIGKILL)

    @unittest.skipUnless(os.access("/dev/net/tun", os.W_OK), "delays need /dev/net/tun")
    def test_with_a_laboratory_workers_are_on_its_hosts_in_turn(self):
        hosts = self.folder / "hosts.yaml"
        hosts.write_text("hosts: [{name: paris, rate: 50mbit}, {name: tokyo, delay: 3ms}]")
        process = self.start("--faults", "kill:1", "--lab", hosts)
        notes = sorted(self.notes(), key=lambda note: note["id"])
        self.assertEqual([(note["id"], note["host"]) for note in notes],
                         [("0", "10.119.1.1"), ("1", "10.119.1.2"), ("2", "10.119.1.1")], process.poll())
        paris, tokyo, again = (note["network"] for note in notes)
        self.assertEqual(paris, again)
        self.assertNotIn(tokyo, (paris, os.readlink("/proc/self/ns/net")))

        self.assert_leaves_nothing(process, signal.SIGTERM)

    def assert_leaves_nothing(self, process, number):
        made = {note["network"] for note in self.notes()}
        self.assertTrue(made and made <= networks())
        process.send_signal(number)
        process.wait()
        wait_until(lambda: not made & networks(), "the networks to vanish")


class Failing(Verify):
    def test_what_a_kind_needs_is_told_before_anything_is_trained(self):
        outcome = self.muster("verify", self.job, "--faults", "hang:1", "-s", "workers.hang_timeout=0",
                              "--worker", self.write_program("worker", "sys.exit(1)"))
        self.assert_mistake(outcome, USAGE, "hang", "workers.hang_timeout")
        outcome = self.muster("verify", self.job, "--faults", "wat:1")
        self.assert_mistake(outcome, USAGE, "cut, slow-disk, flip, lie, pause, restart")
        self.assertEqual(list(self.temporary.iterdir()), [])

    @unittest.skipUnless(os.geteuid() == 0 and shutil.which("setpriv"), "root without rights needs root")
    def test_without_the_rights_for_a_cut_it_says_so(self):
        outcome = self.muster("verify", self.job, "--faults", "kill:1,cut:1",
                              "--worker", self.write_program("worker", "sys.exit(1)"),
                              before=("setpriv", "--bounding-set=-all", "--inh-caps=-all"))
        self.assert_mistake(outcome, USAGE, "cut", "network namespaces", "root", "iproute2", "leave cut out")
        self.assertEqual(outcome.out, "")
        self.assertEqual(list(self.temporary.iterdir()), [])

    def test_what_the_sentence_names_is_there(self):
        worker = self.write_program("worker", "os.kill(os.getpid(), signal.SIGSEGV)")
        outcome = self.muster("verify", self.job, "--worker", worker)
        kept, = self.temporary.iterdir()
        self.assert_mistake(outcome, INTERNAL, "the undisturbed run failed", "SIGSEGV", f"{kept}/undisturbed")
        self.assertTrue((kept / "undisturbed/job.yaml").exists())


if __name__ == "__main__":
    main()
