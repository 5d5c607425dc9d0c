"""How muster starts a worker and stands at its door: arguments, environment, exit codes, signals,
Ctrl-Z. The worker here is a small script that writes down what happens to it."""

import json
import os
import pty
import signal
import subprocess
import textwrap
from pathlib import Path

from harness import IO, MACHINE, MUSTER, USAGE, CommandTest, Program, main, wait_until

# Notes every signal it can, and leaves when a file called `leave` appears. A handler may run while the
# main program is still inside its own write of "ready": a file object then refuses the second write
# ("reentrant call") and the worker dies of it, so each note is one system call.
NOTES = """\
    notes = os.open(os.environ["NOTES"], os.O_WRONLY | os.O_APPEND)
    def write(word):
        os.write(notes, word.encode() + b"\\n")
    def note(number, frame):
        write(signal.Signals(number).name)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGCONT):
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, note)
    write("ready")
    while not os.path.exists(os.environ["NOTES"] + ".leave"):
        time.sleep(0.01)
    sys.exit(77)
    """


class Launch(CommandTest):
    def setUp(self):
        super().setUp()
        self.job = self.write_job()

    def worker(self, body):
        return self.write_program("worker", body)

    def test_the_worker_gets_the_run_and_one_thread_per_operation(self):
        worker = self.worker("""\
            names = ["OMP_NUM_THREADS", "MKL_NUM_THREADS", "MUSTER_LAUNCHER_PID"]
            print(json.dumps({"words": sys.argv[1:], "group": os.getpgrp() == os.getpid(),
                              "parent": os.getppid(), **{n: os.environ.get(n) for n in names}}))
            """)
        outcome = self.assert_ok(self.muster("train", self.job, "--worker", worker))
        run = self.only_run()
        told = outcome.json
        self.assertEqual(told["words"], ["train", "--run", f"runs/{run.name}", "--display", "normal",
                                         "--written", str(self.job)])
        self.assertEqual((told["OMP_NUM_THREADS"], told["MKL_NUM_THREADS"]), ("1", "1"))
        self.assertEqual(int(told["MUSTER_LAUNCHER_PID"]), told["parent"])
        self.assertTrue(told["group"], "the worker leads a process group of its own")
        resolved = (run / "job.yaml").read_text()
        self.assertIn(str(self.folder / "train-images"), resolved)
        self.assertEqual(os.readlink(self.folder / "runs/latest"), run.name)

    def test_threads_that_the_user_chose_stay(self):
        worker = self.worker("print(os.environ['OMP_NUM_THREADS'])")
        outcome = self.muster("train", self.job, "--worker", worker, env={"OMP_NUM_THREADS": "3"})
        self.assertEqual(outcome.out.strip(), "3")

    def test_display_and_settings(self):
        worker = self.worker("print(sys.argv[sys.argv.index('--display') + 1])")
        for flag, display in (("--quiet", "quiet"), ("--json", "json")):
            run = self.folder / display
            outcome = self.muster("train", self.job, flag, "--worker", worker, "--run-dir", run,
                                  "-s", "optimizer.lr=0.25", "-s", "threads=1")
            self.assertEqual(outcome.out.strip(), display)
            job = (run / "job.yaml").read_text()
            self.assertIn("lr: 0.25", job)
            self.assertIn("threads: 1", job)

    def test_the_exit_code_is_the_workers(self):
        for code in (0, 3, 7, 130, 143):
            worker = self.worker(f"sys.exit({code})")
            outcome = self.muster("train", self.job, "--worker", worker)
            self.assertEqual(outcome.code, code)
            self.assertEqual(outcome.err, "", "the worker speaks for itself")

    def test_a_killed_worker_is_explained(self):
        for number, meaning in ((signal.SIGKILL, "memory ran out"), (signal.SIGSEGV, "bug")):
            worker = self.worker(f"os.kill(os.getpid(), {int(number)})")
            outcome = self.muster("train", self.job, "--worker", worker)
            run = os.readlink(self.folder / "runs/latest")
            self.assert_mistake(outcome, 128 + number, number.name, meaning, f"runs/{run}/log.txt",
                                f"muster resume {run}")

    def test_a_killed_worker_is_explained_to_programs(self):
        worker = self.worker("os.kill(os.getpid(), signal.SIGKILL)")
        outcome = self.muster("train", self.job, "--json", "--worker", worker)
        self.assertIn("SIGKILL", outcome.last_json["error"]["message"])
        self.assertEqual(outcome.last_json["error"]["kind"], "internal")

    def test_a_worker_that_is_not_there(self):
        outcome = self.muster("train", self.job, "--worker", "nowhere")
        self.assert_mistake(outcome, USAGE, "--worker", "'nowhere'")
        outcome = self.muster("train", self.job, env={"MUSTER_WORKER": "/nowhere"})
        self.assert_mistake(outcome, USAGE, "MUSTER_WORKER", "/nowhere")
        self.assertFalse((self.folder / "runs").exists(), "nothing is made on the disk before")

    def test_the_worker_is_looked_for_in_this_order(self):
        # A copy of muster, so that nothing is beside it.
        lonely = self.folder / "lonely"
        lonely.mkdir()
        os.link(MUSTER, lonely / "muster") if os.stat(MUSTER).st_dev == os.stat(lonely).st_dev \
            else __import__("shutil").copy(MUSTER, lonely / "muster")

        def train(**env):
            done = subprocess.run([lonely / "muster", "train", self.job], cwd=self.folder,
                                  env={**self.env, **env}, capture_output=True, text=True)
            return done.returncode, done.stdout, done.stderr

        code, _, err = train(PATH="/nowhere")
        self.assertEqual(code, MACHINE)
        self.assertIn("MUSTER_WORKER", err)
        for name in ("on-path", "beside", "named"):
            folder = lonely if name == "beside" else self.folder / name
            folder.mkdir(exist_ok=True)
            self.write_program(folder / "muster-worker", f"print('{name}')")
            env = {"PATH": str(self.folder / "on-path")}
            if name == "named":
                env["MUSTER_WORKER"] = str(folder / "muster-worker")
            self.assertEqual(train(**env)[1].strip(), name)

    def test_a_worker_for_another_machine(self):
        worker = self.folder / "worker"
        worker.write_bytes(b"\x7fELF" + bytes(60))
        worker.chmod(0o755)
        outcome = self.muster("train", self.job, "--worker", worker)
        self.assertIn(outcome.code, (MACHINE, IO))
        self.assertIn(str(worker), outcome.err)

    def test_a_run_directory_of_ones_own(self):
        worker = self.worker("pass")
        self.assert_ok(self.muster("train", self.job, "--worker", worker, "--run-dir", "deep/er/mine"))
        self.assertTrue((self.folder / "deep/er/mine/job.yaml").exists())
        outcome = self.muster("train", self.job, "--worker", worker, "--run-dir", "deep/er/mine")
        self.assert_mistake(outcome, USAGE, "deep/er/mine", "muster resume")
        (self.folder / "empty").mkdir()
        self.assert_ok(self.muster("train", self.job, "--worker", worker, "--run-dir", "empty"))


class Resume(CommandTest):
    def setUp(self):
        super().setUp()
        self.job = self.write_job()
        self.worker = self.write_program("worker", "print(json.dumps(sys.argv[1:]))")
        self.assert_ok(self.muster("train", self.job, "--worker", self.worker))
        self.run_path = self.only_run()

    def resume(self, *words):
        return self.muster("resume", *words, "--worker", self.worker)

    def test_the_latest_by_default_or_by_any_of_its_names(self):
        expected = ["train", "--run", f"runs/{self.run_path.name}", "--display", "normal", "--resume"]
        for name in ([], ["latest"], [self.run_path.name], ["tiny"]):
            self.assertEqual(self.assert_ok(self.resume(*name)).json, expected)
        self.assertEqual(self.resume(self.run_path).json[2], str(self.run_path))
        self.assertEqual(self.resume(f"runs/{self.run_path.name}/").json, expected)

    def test_a_run_that_is_not_there(self):
        self.assert_mistake(self.resume("tyni"), USAGE, "no run 'tyni'")
        self.assert_mistake(self.resume("some/where"), USAGE, "some/where")
        outcome = self.muster("resume", cwd="/")
        self.assert_mistake(outcome, USAGE, "no runs in 'runs'", "muster train")

    def test_only_options_that_leave_the_past_alone_may_change(self):
        self.assert_ok(self.resume("-s", "passes=7", "-s", "threads=1"))
        job = (self.run_path / "job.yaml").read_text()
        self.assertIn("passes: 7", job)
        self.assertIn("threads: 1", job)
        outcome = self.resume("-s", "optimizer.lr=1")
        self.assert_mistake(outcome, USAGE, "optimizer.lr", "threads, workers, audit, passes, steps, time, numerics, checkpoint.to, data.memory")
        self.assertEqual((self.run_path / "job.yaml").read_text(), job)

    def test_the_environment_does_not_change_a_run(self):
        before = (self.run_path / "job.yaml").read_text()
        self.muster("resume", "-s", "threads=1", "--worker", self.worker,
                    env={"MUSTER_OPTIMIZER_LR": "9"})
        after = (self.run_path / "job.yaml").read_text()
        self.assertEqual(after, before.replace("\nthreads: 0\n", "\nthreads: 1\n"))

    def test_a_finished_run_is_only_told_about(self):
        (self.run_path / "status.json").write_text(json.dumps({"state": "finished", "step": 8}))
        result = {"weights_hash": "ab" * 16, "steps": 8, "test": {"accuracy": 0.75}, "run_dir": "x"}
        (self.run_path / "result.json").write_text(json.dumps(result))
        outcome = self.assert_ok(self.resume())
        self.assertIn("is finished: 8 steps, accuracy 0.7500", outcome.out)
        self.assertEqual(self.resume("--json").last_json, result)
        self.assertEqual(self.resume("-s", "passes=9").json[-1], "--resume", "to train longer")


class Events(CommandTest):
    """What muster writes for reports about a job of one worker (events.jsonl)."""

    def train(self, body, *words):
        worker = self.write_program("worker", body)
        outcome = self.muster(*(words or ("train", self.write_job(), "--run-dir", "run")), "--worker", worker)
        lines = (self.folder / "run/events.jsonl").read_text().splitlines()
        return outcome, [json.loads(line) for line in lines]

    def test_of_an_attempt_that_finishes(self):
        outcome, (start, end) = self.train("pass")
        self.assert_ok(outcome)
        self.assertEqual([start[key] for key in ("event", "command", "workers")], ["start", "train", 1])
        self.assertTrue(all(start[key] for key in ("host", "system", "processor", "cores", "memory", "version")), start)
        self.assertEqual((end["event"], end["finished"]), ("end", True))
        self.assertNotIn("reason", end)
        self.assertLessEqual(start["time"], end["time"])

    def test_of_attempts_that_do_not(self):
        outcome, events = self.train("os.kill(os.getpid(), signal.SIGKILL)")
        self.assertEqual(outcome.code, 128 + signal.SIGKILL)
        failure = """\
            run = sys.argv[sys.argv.index("--run") + 1]
            open(run + "/status.json", "w").write(json.dumps({"state": "failed", "reason": "step 7: the loss is nan"}))
            sys.exit(7)
            """
        outcome, events = self.train(failure, "resume", "run/")
        self.assertEqual(outcome.code, 7)
        outcome, events = self.train("sys.exit(143)", "resume", "run/")
        self.assertEqual([event.get("command") for event in events],
                         ["train", None, "resume", None, "resume", None])
        ends = [event for event in events if event["event"] == "end"]
        self.assertEqual([end["finished"] for end in ends], [False] * 3)
        self.assertEqual([end.get("stopped_by") for end in ends], [signal.SIGKILL, None, signal.SIGTERM])
        self.assertEqual(ends[1]["reason"], "step 7: the loss is nan")

    def test_of_a_worker_that_cannot_start(self):
        worker = self.folder / "other"
        worker.write_bytes(b"\x7fELF" + bytes(60))
        worker.chmod(0o755)
        self.muster("train", self.write_job(), "--run-dir", "run", "--worker", worker)
        start, end = [json.loads(line) for line in (self.folder / "run/events.jsonl").read_text().splitlines()]
        self.assertEqual((end["event"], end["finished"]), ("end", False))

    def test_training_does_not_depend_on_them(self):
        self.assert_ok(self.train("pass")[0])
        os.remove(self.folder / "run/events.jsonl")
        (self.folder / "run/events.jsonl").mkdir()
        worker = self.write_program("worker", "print('trained')")
        outcome = self.assert_ok(self.muster("resume", "run/", "--worker", worker))
        self.assertEqual(outcome.out, "trained\n")
        self.assertRegex(outcome.err, "warning: .*events.jsonl.*reports")


class Signals(CommandTest):
    def setUp(self):
        super().setUp()
        self.job = self.write_job()
        self.notes = self.folder / "notes"
        self.notes.touch()
        self.env["NOTES"] = str(self.notes)
        self.worker = self.write_program("worker", NOTES)

    def noted(self):
        return self.notes.read_text().split()

    def await_note(self, *expected):
        wait_until(lambda: self.noted() == list(expected), lambda: f"{expected}; notes: {self.noted()}")

    def let_leave(self):
        (self.folder / "notes.leave").touch()

    def start(self, **options):
        process = Program([MUSTER, "train", self.job, "--worker", self.worker],
                          cwd=self.folder, env=self.env, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          **options)
        self.addCleanup(process.communicate)
        self.addCleanup(self.let_leave)
        self.await_note("ready")
        return process

    def test_each_is_passed_on_once(self):
        process = self.start()
        heard = ["ready"]
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGINT):
            process.send_signal(number)
            heard.append(number.name)
            self.await_note(*heard)
        self.let_leave()
        self.assertEqual(process.wait(), 77)
        self.assertEqual(self.noted(), heard)

    def test_what_reaches_the_whole_group_reaches_the_worker_once(self):
        process = self.start(start_new_session=True)
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does
        self.await_note("ready", "SIGINT")
        self.let_leave()
        self.assertEqual(process.wait(), 77)
        self.assertEqual(self.noted(), ["ready", "SIGINT"])

    def test_nohup_stays_nohup(self):
        process = self.start(preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
        process.send_signal(signal.SIGHUP)
        process.send_signal(signal.SIGUSR1)
        self.await_note("ready", "SIGUSR1")
        self.let_leave()
        self.assertEqual(process.wait(), 77)

    def test_a_signal_before_the_worker_listens(self):
        self.worker = self.write_program("worker", """\
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            open(os.environ["NOTES"], "w").write("ready")
            time.sleep(600)
            """)
        process = self.start()
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate()
        self.assertEqual(process.returncode, 143)
        self.assertIn("SIGTERM before the worker could save", err)
        self.assertEqual(len(err.strip().splitlines()), 1)

    def state_of(self, pid):
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]

    def worker_of(self, pid):
        return int(Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0])

    def test_ctrl_z_stops_both_and_fg_continues_both(self):
        if not os.path.exists("/proc/self/task/self/children") and \
           not os.path.exists(f"/proc/{os.getpid()}/task/{os.getpid()}/children"):
            self.skipTest("this kernel does not list the children of a process")
        process = self.start()
        worker = self.worker_of(process.pid)
        process.send_signal(signal.SIGTSTP)
        wait_until(lambda: self.state_of(process.pid) == "T" and self.state_of(worker) == "T",
                   "both to stop")
        process.send_signal(signal.SIGCONT)
        wait_until(lambda: self.state_of(process.pid) != "T" and self.state_of(worker) != "T",
                   "both to go on")
        self.await_note("ready", "SIGCONT")
        process.send_signal(signal.SIGINT)
        self.await_note("ready", "SIGCONT", "SIGINT")
        self.let_leave()
        self.assertEqual(process.wait(), 77)

    def test_keys_at_a_terminal(self):
        # A session of its own whose terminal sends the signals: what a person's Ctrl-C really does.
        pid, terminal = pty.fork()
        if pid == 0:
            os.chdir(self.folder)
            os.execve(MUSTER, [str(MUSTER), "train", str(self.job), "--worker", str(self.worker)],
                      self.env)
        self.addCleanup(os.close, terminal)
        self.await_note("ready")
        os.write(terminal, b"\x03")
        self.await_note("ready", "SIGINT")
        os.write(terminal, b"\x03")
        self.await_note("ready", "SIGINT", "SIGINT")
        self.let_leave()
        _, status = os.waitpid(pid, 0)
        self.assertEqual(os.WEXITSTATUS(status), 77)
        self.assertEqual(self.noted(), ["ready", "SIGINT", "SIGINT"])

    def test_a_worker_may_write_to_a_terminal_with_tostop(self):
        worker = self.write_program("worker", "print('written', flush=True)")
        pid, terminal = pty.fork()
        if pid == 0:
            os.chdir(self.folder)
            os.system("stty tostop")
            os.execve(MUSTER, [str(MUSTER), "train", str(self.job), "--worker", str(worker)],
                      self.env)
        self.addCleanup(os.close, terminal)
        _, status = os.waitpid(pid, 0)
        self.assertEqual(os.WEXITSTATUS(status), 0)
        self.assertIn(b"written", os.read(terminal, 4096))


class Hints(CommandTest):
    """At a terminal, a training that finished says what can be done next."""

    FINISHED = """\
        run = sys.argv[sys.argv.index("--run") + 1]
        json.dump({"state": "finished", "step": 8}, open(run + "/status.json", "w"))
        """

    def shown(self, *words, job=None):
        words = [str(MUSTER), "train", str(job or self.write_job()), "--worker",
                 str(self.write_program("worker", textwrap.dedent(self.FINISHED))), "--run-dir", "done", *words]
        pid, terminal = pty.fork()
        if pid == 0:
            os.chdir(self.folder)
            os.execve(words[0], words, self.env)
        text = b""
        try:
            while piece := os.read(terminal, 4096):
                text += piece
        except OSError:
            pass  # nobody has the other end any more
        os.close(terminal)
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), 0, text)
        return text.decode()

    def test_what_can_be_done_next(self):
        shown = self.shown()
        self.assertIn("next:", shown)
        for command in ("eval done", "predict done", "report done", "export done --out FILE.safetensors",
                        "resume done -s passes=N"):
            self.assertRegex(shown, rf"\n  muster {command}  +\w")

    def test_without_test_data_that_of_a_file_is_asked_for(self):
        job = self.write_job()
        self.write("job.yaml", "".join(line for line in self.JOB.splitlines(True) if " test: " not in line))
        shown = self.shown(job=job)
        for command in ("eval done --data FILE", "predict done --data FILE", "report done"):
            self.assertRegex(shown, rf"\n  muster {command}  +\w")

    OWN_LOOP = """\
        muster: 1
        name: own
        model: { use: own-loop }
        data: { train: { format: own-loop } }
        batch: 8
        passes: 1
        """

    def test_only_the_program_of_an_own_loop_can_run_its_model(self):
        shown = self.shown(job=self.write("own.yaml", self.OWN_LOOP))
        self.assertIn("\n  muster report done ", shown)
        self.assertNotIn("muster eval", shown)
        self.assertNotIn("muster predict", shown)

    def test_a_run_of_an_own_loop_is_resumed_with_its_program_only(self):
        (self.folder / "own").mkdir()
        self.write("own/job.yaml", self.OWN_LOOP)
        self.assert_mistake(self.muster("resume", "own"), 2, "cannot be resumed", "--worker")
        worker = self.write_program("worker", textwrap.dedent(self.FINISHED))
        self.assert_ok(self.muster("resume", "own", "--worker", worker))

    def test_not_for_those_who_want_it_quiet(self):
        self.assertNotIn("next:", self.shown("--quiet"))

    def test_not_without_a_terminal(self):
        worker = self.write_program("worker", textwrap.dedent(self.FINISHED))
        outcome = self.assert_ok(self.muster("train", self.write_job(), "--worker", worker))
        self.assertNotIn("next:", outcome.out + outcome.err)


if __name__ == "__main__":
    main()
