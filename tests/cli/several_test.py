"""`muster train --workers N`: how several workers are started, started again, stopped, and what is said when
the job fails. The workers here are small scripts; where they must really be in, they become
muster_roster_test_worker, which joins the coordinator and follows its rosters."""

import json
import os
import pty
import signal
import subprocess
import textwrap
import threading
import time
import unittest
from pathlib import Path

from harness import BIN_DIR, DATA, MUSTER, USAGE, CommandTest, Program, main, needs_worker, wait_until

MEMBER = BIN_DIR / "muster_roster_test_worker"
needs_member = unittest.skipUnless(MEMBER.exists(), "muster_roster_test_worker was not built")

# What every stand-in begins with. `notes` is one file for all: lines of ID and a word, one write each.
PRELUDE = """\
import ctypes
def argument(name):
    return sys.argv[sys.argv.index(name) + 1]
ID, RUN = argument("--id"), argument("--run")
HERE = os.path.dirname(os.path.abspath(sys.argv[0]))
notes = os.open(HERE + "/notes", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
def note(word):
    os.write(notes, f"{ID} {word}\\n".encode())
ATTEMPT = sum(line.split()[:2] == [ID, "up"] for line in open(HERE + "/notes")) + 1
def on(number, then):
    signal.signal(number, lambda *_: then())
def finish():
    with open(RUN + f"/.status-{ID}", "w") as file:
        json.dump({"state": "finished", "step": 8}, file)
    os.rename(RUN + f"/.status-{ID}", RUN + "/status.json")
    sys.exit(0)
def wait_for(name):
    while not os.path.exists(f"{HERE}/{name}"):
        time.sleep(0.005)
def forever():
    while True:
        time.sleep(0.01)
def become_member():
    follow_launcher(signal.SIGKILL)
    os.execv(os.environ["MEMBER"], ["member", argument("--coordinator"), argument("--job-name"), ID])
def follow_launcher(number=signal.SIGTERM):
    ctypes.CDLL(None).prctl(1, number)
"""


def state_of(pid):
    """The kernel's letter for it; Z too if it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return "Z"


class Several(CommandTest):
    def setUp(self):
        super().setUp()
        self.job = self.write_job()
        self.env["MEMBER"] = str(MEMBER)

    def worker(self, body):
        return self.write_program("worker", PRELUDE + textwrap.dedent(body))

    def words(self, workers, *more):
        return ["train", self.job, "--workers", workers, "--worker", self.folder / "worker", *more]

    def train(self, workers, *more, **options):
        return self.muster(*self.words(workers, *more), **options)

    def start(self, workers, *more, **options):
        process = Program([MUSTER, *map(str, self.words(workers, *more))], cwd=self.folder,
                          env=self.env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True, **options)
        self.addCleanup(process.communicate)
        self.addCleanup(process.kill)
        limit = threading.Timer(60, process.kill)  # only ends a test that is broken
        limit.start()
        self.addCleanup(limit.cancel)
        return process

    def noted(self):
        path = self.folder / "notes"
        return [tuple(line.split()) for line in path.read_text().splitlines()] if path.exists() else []

    def await_notes(self, *expected):
        wait_until(lambda: set(expected) <= set(self.noted()), lambda: f"{expected}; notes: {self.noted()}")

    def let(self, name):
        (self.folder / name).touch()


class Starting(Several):
    def test_each_worker_gets_its_slot_and_the_coordinator(self):
        self.worker("""\
            os.write(1, (json.dumps({  # in one piece: the others write there too
                "words": sys.argv[1:], "parent": os.getppid(), "group": os.getpgrp() == os.getpid(),
                "launcher": os.environ["MUSTER_LAUNCHER_PID"], "threads": os.environ["OMP_NUM_THREADS"],
                "input": os.readlink("/proc/self/fd/0"), "open": sorted(os.listdir("/proc/self/fd")),
                "coordinator": json.load(open(RUN + "/coordinator.json"))}) + "\\n").encode())
            print(f"words of {ID}", file=sys.stderr, flush=True)
            note("done")
            while sum(word == "done" for _, word in (line.split() for line in open(HERE + "/notes"))) < 3:
                time.sleep(0.005)
            finish()
            """)
        outcome = self.assert_ok(self.train(3))
        run = self.only_run()
        told = [json.loads(line) for line in outcome.out.splitlines()]
        self.assertEqual(sorted(one["words"][-1] for one in told), ["0", "1", "2"])
        for one in told:
            address = one["coordinator"]["address"]
            self.assertRegex(address, r"^127\.0\.0\.1:\d+$")
            self.assertEqual(one["words"][:-1],
                             ["train", "--run", f"runs/{run.name}", "--display", "normal", "--written",
                              str(self.job), "--coordinator", address, "--job-name", run.name,
                              "--host", "127.0.0.1", "--id"])
            self.assertTrue(one["group"], "each worker leads a process group of its own")
            self.assertEqual((one["threads"], one["input"]), ("1", "/dev/null"))
            self.assertEqual(int(one["launcher"]), one["parent"])
            self.assertEqual(one["coordinator"]["pid"], one["parent"])
            self.assertLessEqual(len(one["open"]), 6, "nothing of the launcher's is open in a worker")
            identity = one["words"][-1]
            self.assertEqual((run / f"workers/{identity}.err").read_text(), f"words of {identity}\n")
        self.assertFalse((run / "coordinator.json").exists(), "there is no coordinator any more")
        self.assertEqual(outcome.err, "")
        self.assertIn("the coordinator listens on", (run / "launch.log").read_text())

    def test_resume_takes_several_too(self):
        self.worker("note('up'); finish()")
        self.assert_ok(self.train(1))
        run = self.only_run()
        (run / "status.json").write_text(json.dumps({"state": "interrupted", "step": 3}))
        outcome = self.muster("resume", "--workers", 2, "--worker", self.folder / "worker",
                              "-s", "workers.restarts=3")
        self.assert_ok(outcome)
        self.assertEqual(len(self.noted()), 3)
        self.assertIn("restarts: 3", (run / "job.yaml").read_text())

    def test_a_finished_run_that_goes_on_is_not_finished(self):
        self.worker("finish() if not os.path.exists(HERE + '/again') else sys.exit(4)")
        self.assert_ok(self.train(1))
        self.let("again")
        outcome = self.muster("resume", "--workers", 2, "--worker", self.folder / "worker", "-s", "passes=9")
        self.assertEqual(outcome.code, 4, outcome)

    def test_one_job_per_run_directory(self):
        self.worker("note('up'); on(signal.SIGINT, lambda: sys.exit(130)); forever()")
        process = self.start(2)
        self.await_notes(("0", "up"), ("1", "up"))
        for several in ([], ["--workers", 2]):
            self.assert_mistake(self.muster("resume", *several, "--worker", self.folder / "worker"), USAGE,
                                "is being trained right now")
        process.send_signal(signal.SIGINT)
        self.assertEqual(process.wait(), 130)

    def test_counts_that_make_no_sense(self):
        self.worker("finish()")
        self.assert_mistake(self.train(0), USAGE, "--workers", "at least 1")
        self.assert_mistake(self.train(1, "-s", "workers.min=2"), USAGE, "1 workers", "workers.min 2")
        self.assertFalse((self.folder / "runs").exists(), "nothing is made on the disk before")

    def test_a_place_to_listen_that_makes_no_sense(self):
        self.worker("finish()")
        self.assert_mistake(self.train(1, "--listen", "0.0.0.0:7000"), USAGE, "every address", "name the one")
        self.assert_mistake(self.train(1, "--listen", "nowhere"), USAGE, "HOST:PORT")
        self.assert_mistake(self.muster("train", self.job, "--listen", "127.0.0.1:0"), USAGE, "--workers or --hosts")
        self.assert_mistake(self.train(1, "--hosts", "hosts.yaml"), USAGE, "cannot be used together")

    def test_a_place_to_listen_that_is_taken(self):
        import socket
        self.worker("finish()")
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            outcome = self.train(1, "--listen", f"127.0.0.1:{taken.getsockname()[1]}")
        self.assertEqual(outcome.code, 5, outcome)
        self.assertIn("cannot listen", outcome.err)


class Restarting(Several):
    def test_at_once_then_later_each_time(self):
        self.worker("""\
            note(f"up {time.monotonic()}")
            if ID == "1":
                if ATTEMPT == 4:
                    open(HERE + "/done", "w")
                    finish()
                os.kill(os.getpid(), signal.SIGKILL)
            wait_for("done")
            """)
        self.assert_ok(self.train(2, "-s", "workers.restarts=10"))
        times = [float(word[2]) for word in self.noted() if word[0] == "1"]
        gaps = [later - earlier for earlier, later in zip(times, times[1:])]
        self.assertLess(gaps[0], 1.0, "a killed worker comes back within a second")
        self.assertGreaterEqual(gaps[1], 0.1)
        self.assertGreaterEqual(gaps[2], 0.2)
        self.assertEqual(sum(word[0] == "0" for word in self.noted()), 1, "the other one is left alone")
        log = (self.only_run() / "launch.log").read_text()
        self.assertIn("worker 1 was killed by SIGKILL; it is started again in 0.2 s", log)

    def test_a_slot_that_is_given_up(self):
        self.worker("""\
            note("up")
            if ID == "1": os.kill(os.getpid(), signal.SIGSEGV)
            wait_for("leave")
            finish()
            """)
        process = self.start(2, "-s", "workers.restarts=1")
        wait_until(lambda: self.noted().count(("1", "up")) == 2, "a second start")
        self.let("leave")
        out, err = process.communicate()
        self.assertEqual(process.returncode, 0, err)
        self.assertEqual(self.noted().count(("1", "up")), 2)

    def test_when_no_slot_is_left_the_job_fails(self):
        self.worker("print('short of memory', file=sys.stderr, flush=True); os.kill(os.getpid(), signal.SIGKILL)")
        outcome = self.train(2, "-s", "workers.restarts=0")
        run = self.only_run()
        self.assert_mistake(outcome, 137, "SIGKILL", "memory ran out", f"runs/{run.name}/workers",
                            f"muster resume {run.name} --workers 2")
        self.assertEqual(json.loads((run / "status.json").read_text())["state"], "failed")

    def test_too_few_slots_for_the_job(self):
        self.worker("""\
            if ID == "1": os.kill(os.getpid(), signal.SIGKILL)
            on(signal.SIGINT, lambda: sys.exit(130))
            forever()
            """)
        self.assertEqual(self.train(2, "-s", "workers.restarts=0", "-s", "workers.min=2").code, 137)

    def test_who_left_is_not_called_back(self):
        self.worker("note('up')")
        outcome = self.train(2)
        self.assert_mistake(outcome, 143, "all workers have left", "--workers 2")
        self.assertEqual(len(self.noted()), 2)


class Failing(Several):
    BODY = """\
        on(signal.SIGINT, lambda: (print("muster: an echo", file=sys.stderr), sys.exit(5)))
        note("up")
        if ID == "1":
            wait_for("all-up")
            for line in range(30): print(f"line {line}.", file=sys.stderr)
            print("muster: 'labels' has no line 7; mend it", file=sys.stderr)
            sys.exit(4)
        forever()
        """

    def fail(self, *more):
        self.worker(self.BODY)
        process = self.start(3, *more)
        self.await_notes(("0", "up"), ("1", "up"), ("2", "up"))
        self.let("all-up")
        out, err = process.communicate()
        return process.returncode, out, err

    def test_the_first_to_fail_is_shown_and_nobody_else(self):
        code, _, err = self.fail()
        self.assertEqual(code, DATA)
        lines = err.splitlines()
        self.assertIn("worker 1: 'labels' has no line 7; mend it", lines[-1])
        self.assertIn(f"the logs are in runs/{self.only_run().name}/workers", lines[-1])
        self.assertIn("  line 29.", lines)
        self.assertIn("  line 11.", lines)
        self.assertNotIn("  line 10.", lines, "twenty lines, the last ones")
        self.assertNotIn("echo", err)
        status = json.loads((self.only_run() / "status.json").read_text())
        self.assertEqual(status["state"], "failed")
        self.assertIn("'labels' has no line 7", status["reason"])

    def test_for_programs(self):
        code, out, _ = self.fail("--json")
        error = json.loads(out.splitlines()[-1])["error"]
        self.assertEqual((code, error["kind"]), (DATA, "data"))
        self.assertIn("'labels' has no line 7", error["message"])

    def test_a_program_that_cannot_start(self):
        self.write_program("worker", "sys.exit(127)")
        outcome = self.train(2)
        self.assertEqual(outcome.code, 8)
        self.assertIn("library", outcome.err)


class Stopping(Several):
    def stop(self, body, number=signal.SIGINT, **options):
        """Starts two, sends the signal; the exit code, the time it took, and standard error."""
        self.worker(body)
        process = self.start(2, **options)
        self.await_notes(("0", "ready"), ("1", "ready"))
        begin = time.monotonic()
        process.send_signal(number)
        _, err = process.communicate()
        return process.returncode, time.monotonic() - begin, err

    LISTENS = """\
        on(signal.SIGINT, lambda: (note("SIGINT"), sys.exit(130)))
        for number in (signal.SIGTERM, signal.SIGHUP):
            on(number, lambda: note("another"))
        note("ready")
        forever()
        """

    def test_every_way_to_stop_reaches_the_workers_as_sigint(self):
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            with self.subTest(signal=number):
                (self.folder / "notes").unlink(missing_ok=True)
                code, took, err = self.stop(self.LISTENS, number)
                self.assertEqual(code, 128 + number)
                self.assertLess(took, 2.5, "nobody had to be killed")
                self.assertEqual(err, "")
                self.assertEqual(sorted(self.noted()), sorted(
                    [(i, word) for i in "01" for word in ("ready", "SIGINT")]))

    def test_who_ignores_it_is_killed_within_3_seconds(self):
        code, took, err = self.stop("signal.signal(signal.SIGINT, signal.SIG_IGN); note('ready'); forever()")
        self.assertEqual(code, 130)
        self.assertLess(took, 3.5)  # 3 s, and what a busy machine needs to tell us
        self.assertIn("workers 0 and 1 did not leave in time", err)
        self.assertIn("muster resume", err)
        status = json.loads((self.only_run() / "status.json").read_text())
        self.assertEqual(status["state"], "interrupted")

    def test_who_is_stopped_is_woken(self):
        self.worker(self.LISTENS.replace("note(\"ready\")", "note(f\"ready {os.getpid()}\")"))
        process = self.start(2)
        wait_until(lambda: len(self.noted()) == 2, "two to be ready")
        for note in self.noted():
            os.kill(int(note[2]), signal.SIGSTOP)
        begin = time.monotonic()
        process.send_signal(signal.SIGINT)
        self.assertEqual(process.wait(), 130)
        self.assertLess(time.monotonic() - begin, 2.5)

    def test_a_second_ctrl_c_does_not_wait(self):
        self.worker("on(signal.SIGINT, lambda: note('SIGINT')); note('ready'); forever()")
        process = self.start(2)
        self.await_notes(("0", "ready"), ("1", "ready"))
        begin = time.monotonic()
        process.send_signal(signal.SIGINT)
        self.await_notes(("0", "SIGINT"), ("1", "SIGINT"))
        process.send_signal(signal.SIGINT)  # what a wrapper passes on once more is the same one
        time.sleep(0.6)
        self.assertIsNone(process.poll())
        process.send_signal(signal.SIGINT)
        _, err = process.communicate()
        self.assertEqual(process.returncode, 130)
        self.assertLess(time.monotonic() - begin, 2.5)
        self.assertIn("workers 0 and 1 were killed at the second SIGINT", err)
        self.assertIn("begins anew, for there is no checkpoint yet", err)

    def test_nobody_is_started_again(self):
        self.worker("""\
            on(signal.SIGINT, lambda: os.kill(os.getpid(), signal.SIGKILL))
            note("ready")
            forever()
            """)
        process = self.start(2)
        self.await_notes(("0", "ready"), ("1", "ready"))
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(), 143)
        self.assertEqual(len(self.noted()), 2)

    def test_nohup_stays_nohup(self):
        self.worker(self.LISTENS)
        process = self.start(2, preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
        self.await_notes(("0", "ready"), ("1", "ready"))
        process.send_signal(signal.SIGHUP)
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(), 143)

    def test_a_killed_launcher_takes_its_workers_along(self):
        self.worker("follow_launcher(); note(f'ready {os.getpid()}'); forever()")
        process = self.start(2)
        wait_until(lambda: len(self.noted()) == 2, "two to be ready")
        process.kill()
        for note in self.noted():
            wait_until(lambda: state_of(note[2]) == "Z",
                       f"worker {note[0]} to go")

    def test_ctrl_z_and_fg(self):
        self.worker("on(signal.SIGINT, lambda: sys.exit(130)); note(f'ready {os.getpid()}'); forever()")
        process = self.start(2)
        wait_until(lambda: len(self.noted()) == 2, "two to be ready")
        everybody = [process.pid] + [int(note[2]) for note in self.noted()]
        process.send_signal(signal.SIGTSTP)
        wait_until(lambda: all(state_of(pid) == "T" for pid in everybody), "all to stop")
        process.send_signal(signal.SIGCONT)
        wait_until(lambda: all(state_of(pid) != "T" for pid in everybody), "all to go on")
        process.send_signal(signal.SIGINT)
        self.assertEqual(process.wait(), 130)

    def test_ctrl_c_at_a_terminal(self):
        self.worker(self.LISTENS)
        pid, terminal = pty.fork()
        if pid == 0:
            os.chdir(self.folder)
            os.execve(MUSTER, [str(MUSTER), *map(str, self.words(2))], self.env)
        self.addCleanup(os.close, terminal)
        self.await_notes(("0", "ready"), ("1", "ready"))
        os.write(terminal, b"\x03")
        _, status = os.waitpid(pid, 0)
        self.assertEqual(os.WEXITSTATUS(status), 130)
        self.assertEqual(self.noted().count(("0", "SIGINT")), 1, "each hears it once")

    def test_a_stop_through_one_worker_stops_all(self):
        self.worker("""\
            note("up")
            if ID == "1": wait_for("go"); sys.exit(130)
            on(signal.SIGINT, lambda: sys.exit(130))
            note("ready")
            forever()
            """)
        process = self.start(2)
        self.await_notes(("0", "ready"))
        self.let("go")
        self.assertEqual(process.wait(), 130)


@needs_member
class Members(Several):
    def test_below_the_least_number_it_waits_and_says_so(self):
        self.worker("""\
            note("up")
            if ID == "1" and ATTEMPT == 1: wait_for("late")
            become_member()
            """)
        process = self.start(2, "-s", "workers.min=2", "-s", "workers.gather=100ms")
        # The notice comes only after a second of waiting, so this reads a line that is sure to come.
        line = process.stderr.readline()
        self.assertIn("waiting for workers: 1 of at least 2 have joined", line)
        self.let("late")
        log = self.only_run() / "launch.log"
        wait_until(lambda: "worker 1 joins" in log.read_text(), log.read_text)
        process.send_signal(signal.SIGINT)
        self.assertIn(process.wait(), (130,))

    def log(self):
        path = next((self.folder / "runs").glob("tiny-*/launch.log"), None)
        return path.read_text() if path else ""

    def start_members(self, workers=2):
        """A job whose workers are all in."""
        self.worker("note(f'up {os.getpid()}'); become_member()")
        process = self.start(workers)
        wait_until(lambda: self.log().count(" joins") >= workers, self.log)
        return process

    def status(self, *words):
        return self.muster("status", *words, "-o", "json")

    def test_a_killed_worker_is_out_and_comes_back(self):
        process = self.start_members()
        os.kill(int(next(note for note in self.noted() if note[0] == "1")[2]), signal.SIGKILL)
        wait_until(lambda: "worker 1 was killed by SIGKILL; it is started again" in self.log(), self.log)
        wait_until(lambda: self.log().count("worker 1 joins") == 2, self.log)
        wait_until(lambda: len(self.members()) == 2 and any(e["event"] == "gone" for e in self.events()), self.events)
        process.send_signal(signal.SIGINT)
        self.assertEqual(process.wait(), 130)
        events = self.events()
        self.assertEqual([events[0][key] for key in ("event", "command", "workers")], ["start", "train", 2])
        self.assertTrue(events[0]["host"] and events[0]["version"])
        self.assertEqual((events[-1]["event"], events[-1]["stopped_by"]), ("end", signal.SIGINT))
        self.assertEqual([e["worker"] for e in events if e["event"] == "gone"][0], "1")
        self.assertIn("SIGKILL", next(e["how"] for e in events if e["event"] == "exit"))
        self.assertEqual(sorted(e["time"] for e in events), [e["time"] for e in events])

    def events(self):
        return [json.loads(line) for line in (self.only_run() / "events.jsonl").read_text().splitlines()]

    def members(self):
        """Of the last roster; whoever is in it has lanes that nobody else has, and none is left out."""
        members = {}
        for event in self.events():
            if event["event"] != "roster":
                continue
            if event.get("all"):
                members.clear()
            for worker in event.get("removed", ()):
                del members[worker]
            members.update(event["members"])
            lanes = []
            for member in members.values():
                for part in filter(None, member["lanes"].split(", ")):
                    first, _, last = part.partition("-")
                    lanes += range(int(first), int(last or first) + 1)
            self.assertEqual(sorted(lanes), [0, 1, 2, 3], event)
        return members

    def test_status_for_people_and_for_programs(self):
        process = self.start_members()
        run = self.only_run()
        address = json.loads((run / "coordinator.json").read_text())["address"]
        for target in ([], [run.name], [run], [address]):
            report = self.assert_ok(self.status(*target)).json
            self.assertEqual((report["job"], report["address"], report["lanes"]), (run.name, address, 4))
            self.assertEqual({worker["id"] for worker in report["workers"]}, {"0", "1"})
            self.assertEqual(sorted(sum((worker["lanes"] for worker in report["workers"]), [])), [0, 1, 2, 3])
            self.assertEqual({worker["state"] for worker in report["workers"]}, {"member"})
        text = self.assert_ok(self.muster("status")).out
        for part in (run.name, address, "4 lanes on 2 workers", "worker 1 joins", "last events"):
            self.assertIn(part, text)
        process.send_signal(signal.SIGINT)
        process.wait()
        self.assert_mistake(self.muster("status"), USAGE, "no coordinator now", "it is interrupted")
        self.assert_mistake(self.muster("status", address), 5, "no coordinator answers", "nobody listens there")

    def test_status_can_be_watched_until_the_end(self):
        process = self.start_members()
        watch = Program([MUSTER, "status", "--watch", "-o", "json"], cwd=self.folder, env=self.env,
                        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.addCleanup(watch.kill)
        self.assertEqual(len(json.loads(watch.stdout.readline())["workers"]), 2, "one line each time")
        process.send_signal(signal.SIGINT)
        _, err = watch.communicate()
        self.assertEqual(watch.returncode, 0)
        self.assertIn("the coordinator is gone", err)

    def join(self, *words):
        process = Program([MUSTER, "join", *map(str, words), "--worker", self.folder / "worker"],
                          cwd=self.folder, env=self.env, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.addCleanup(process.communicate)
        self.addCleanup(process.kill)
        return process

    def test_join_adds_a_worker_that_leaves_again_alone(self):
        process = self.start_members()
        run = self.only_run()
        joined = self.join("--id", "guest")
        wait_until(lambda: "worker guest joins" in self.log(), self.log)
        pid = int(next(note for note in self.noted() if note[0] == "guest")[2])
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: self.log().count("worker guest joins") == 2, self.log)
        joined.send_signal(signal.SIGINT)
        self.assertEqual(joined.wait(), 130)
        wait_until(lambda: "worker guest leaves" in self.log(), self.log)
        self.assertIsNone(process.poll(), "the job goes on")
        self.assertEqual({w["id"] for w in self.status().json["workers"]}, {"0", "1"})
        self.assertTrue((run / "workers/guest.err").exists())
        process.send_signal(signal.SIGINT)
        self.assertEqual(process.wait(), 130)

    def test_join_by_address(self):
        process = self.start_members(1)
        run = self.only_run()
        address = json.loads((run / "coordinator.json").read_text())["address"]
        self.assert_mistake(self.muster("join", address, "--worker", self.folder / "worker"), USAGE, "--run DIR")
        self.assert_mistake(self.muster("join", "--id", "a/b", "--worker", self.folder / "worker"), USAGE, "--id")
        other = self.folder / "other"
        other.mkdir()
        (other / "job.yaml").write_text((run / "job.yaml").read_text())
        self.assert_mistake(self.muster("join", address, "--run", other, "--worker", self.folder / "worker"),
                            USAGE, run.name, "not of other")
        joined = self.join(address, "--run", self.folder / "runs/latest")
        wait_until(lambda: self.log().count(" joins") == 2, self.log)
        # It is not left behind when the job ends.
        process.send_signal(signal.SIGINT)
        self.assertEqual(process.wait(), 130)
        self.assertEqual(joined.wait(), 0)

    def test_a_coordinator_alone_and_one_after_it(self):
        self.worker("note(f'up {os.getpid()}'); become_member()")

        def coordinator(*words):
            process = Program([MUSTER, "coordinator", *words], cwd=self.folder, env=self.env,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            self.addCleanup(process.communicate)
            self.addCleanup(process.kill)
            self.assertIn("coordinator of tiny-", process.stdout.readline())
            self.assertIn("add workers with: muster join 127.0.0.1:", process.stderr.readline())
            return process

        first = coordinator(self.job)
        run = self.only_run()
        address = json.loads((run / "coordinator.json").read_text())["address"]
        joined = self.join("--id", "guest")
        wait_until(lambda: "worker guest joins" in self.log(), self.log)
        self.assertEqual(self.status(address).json["workers"][0]["id"], "guest")
        self.assert_mistake(self.muster("coordinator", run), USAGE, "another process")
        first.send_signal(signal.SIGTERM)
        self.assertEqual(first.wait(), 0)
        self.assertIsNone(joined.poll(), "a worker goes on without a coordinator")
        self.assertEqual([(e["event"], e.get("command")) for e in self.events()][0], ("start", "coordinator"))
        self.assertEqual(list(self.members()), ["guest"])
        second = coordinator(run, "--listen", address)
        wait_until(lambda: [w["id"] for w in self.status(address).json["workers"]] == ["guest"],
                   "the worker to find the new coordinator")
        self.assertEqual(len(self.noted()), 1, "it is the same worker")
        second.send_signal(signal.SIGINT)
        self.assertEqual(second.wait(), 0)


@needs_member
class KilledTests(Several):
    """What a test has started ends with it, also if it cannot clean up."""

    def test_nobody_survives_a_test_that_is_killed(self):
        self.worker("note(f'up {os.getpid()}'); become_member()")
        read, write = os.pipe()
        test = os.fork()
        if test == 0:
            try:
                muster = Program([MUSTER, *map(str, self.words(2))], cwd=self.folder, env=self.env,
                                 stdin=subprocess.DEVNULL)
                wait_until(lambda: len(self.noted()) == 2, "two to be up")
                os.write(write, f"{muster.pid}\n".encode())
                signal.pause()
            finally:
                os._exit(1)
        os.close(write)
        with open(read) as told:
            started = [told.readline().strip()] + [note[2] for note in self.noted()]
        self.assertEqual(len(started), 3)
        os.kill(test, signal.SIGKILL)
        os.waitpid(test, 0)
        for pid in started:
            wait_until(lambda: state_of(pid) == "Z", f"process {pid} to go")


@needs_worker
class RealWorkers(CommandTest):
    def weights(self, run):
        return json.loads((self.folder / run / "result.json").read_text())["weights_hash"]

    def test_stopped_and_resumed_with_other_numbers_the_bits_are_those_of_one(self):
        job = self.write_job()
        several = ["-s", "passes=100", "-s", "threads=1"]
        self.assert_ok(self.muster("train", job, "-q", "--run-dir", "one", *several))
        process = Program([MUSTER, "train", job, "-q", "--run-dir", "some", "--workers", "3", *several],
                          cwd=self.folder, env=self.env, stderr=subprocess.PIPE, text=True)
        wait_until(lambda: (self.folder / "some/checkpoints").exists(), "the first checkpoint")
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate()
        self.assertEqual(process.returncode, 143, err)
        self.assertEqual(json.loads((self.folder / "some/status.json").read_text())["state"], "interrupted")
        self.assert_ok(self.muster("resume", "./some", "-q", "--workers", "2"))
        self.assertEqual(self.weights("some"), self.weights("one"))


if __name__ == "__main__":
    main()
