"""`muster verify` as a person or a script meets it: what it prints when all is not well, and when it is stopped.
Whether it can tell equal from unequal is asked by tests/e2e/verify.py."""

import signal
import subprocess
import threading

from harness import INTERNAL, MUSTER, USAGE, CommandTest, Program, main, needs_worker, wait_until

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
                                      r"(.*\n)* +[0-9.]+ s +going on +held up for \d+ ms by kill of \1\n")


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


class Failing(Verify):
    def test_what_the_sentence_names_is_there(self):
        worker = self.write_program("worker", "os.kill(os.getpid(), signal.SIGSEGV)")
        outcome = self.muster("verify", self.job, "--worker", worker)
        kept, = self.temporary.iterdir()
        self.assert_mistake(outcome, INTERNAL, "the undisturbed run failed", "SIGSEGV", f"{kept}/undisturbed")
        self.assertTrue((kept / "undisturbed/job.yaml").exists())


if __name__ == "__main__":
    main()
