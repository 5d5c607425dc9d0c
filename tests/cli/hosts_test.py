"""`muster train --hosts`: workers started over a real OpenSSH, by an sshd of the test's own on loopback
addresses that stand for machines. Skipped, saying so, where there is no sshd or it may not run."""

import json
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import textwrap
import time
import unittest
from pathlib import Path

from harness import DATA, MACHINE, USAGE, Program, main, needs_worker, wait_until
from several_test import MEMBER, Several, needs_member, state_of

SSHD = shutil.which("sshd") or shutil.which("sshd", path="/usr/sbin:/sbin:/usr/local/sbin")
HOSTS = ("127.0.0.2", "127.0.0.3")


def free_port():
    with socket.socket() as one:
        one.bind((HOSTS[0], 0))
        return one.getsockname()[1]


def answers(host, port):
    try:
        socket.create_connection((host, port), timeout=1).close()
        return True
    except OSError:
        return False


@unittest.skipUnless(SSHD and shutil.which("ssh"), "there is no OpenSSH server here (package openssh-server)")
class OverSsh(Several):
    hosts = HOSTS
    before_sshd = []  # words in front of its command line

    @classmethod
    def setUpClass(cls):
        cls.place = Path(tempfile.mkdtemp(prefix="muster-sshd-"))
        cls.addClassCleanup(shutil.rmtree, cls.place, ignore_errors=True)
        cls.port = free_port()
        for name in ("host", "user"):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", cls.place / name], check=True)
        (cls.place / "config").write_text(textwrap.dedent(f"""\
            Port {cls.port}
            HostKey {cls.place}/host
            AuthorizedKeysFile {cls.place}/user.pub
            PidFile none
            StrictModes no
            UsePAM no
            PermitRootLogin prohibit-password
            """) + "".join(f"ListenAddress {host}\n" for host in cls.hosts))
        if os.geteuid() == 0:
            os.makedirs("/run/sshd", exist_ok=True)  # sshd will not run as root without it
        log = open(cls.place / "log", "w")
        cls.addClassCleanup(log.close)
        sshd = Program([*cls.before_sshd, SSHD, "-D", "-e", "-f", cls.place / "config"], stderr=log,
                       stdin=subprocess.DEVNULL)
        cls.addClassCleanup(sshd.wait)
        cls.addClassCleanup(sshd.terminate)
        wait_until(lambda: sshd.poll() is not None or answers(cls.hosts[0], cls.port), "sshd to listen")
        if sshd.poll() is not None:
            raise unittest.SkipTest("sshd does not run here: " + (cls.place / "log").read_text().strip())

    def setUp(self):
        super().setUp()
        self.env["SSH_AUTH_SOCK"] = ""
        self.write_hosts(*self.hosts)

    def write_hosts(self, *hosts, **more):
        entries = [{"host": host, "port": self.port, "identity": str(self.place / "user"),
                    "options": ["StrictHostKeyChecking=no", "UserKnownHostsFile=/dev/null"], **more}
                   for host in hosts]
        (self.folder / "hosts.yaml").write_text(json.dumps(entries))  # JSON is YAML

    def words(self, workers, *more):
        return ["train", self.job, "--hosts", "hosts.yaml", "--worker", self.folder / "worker", *more]

    def pids(self, count):
        """Of the stand-ins, which note `up PID`, once so many are up."""
        wait_until(lambda: len(self.noted()) == count, lambda: f"{count} to be up: {self.noted()}")
        return [int(note[2]) for note in self.noted()]

    def assert_gone(self, pids):
        for pid in pids:
            wait_until(lambda: state_of(pid) == "Z", f"process {pid} to go")


class Hosts(OverSsh):

    def test_a_worker_there_gets_what_one_here_gets(self):
        self.write_hosts(*HOSTS, workers=2)
        self.worker("""\
            os.write(1, (json.dumps({"words": sys.argv[1:], "threads": os.environ["OMP_NUM_THREADS"],
                                     "follows": int(os.environ["MUSTER_LAUNCHER_PID"]) == os.getppid(),
                                     "connection": os.environ["SSH_CONNECTION"].split()[2]}) + "\\n").encode())
            print(f"words of {ID}", file=sys.stderr, flush=True)
            note("up")
            while len(open(HERE + "/notes").readlines()) < 4:
                time.sleep(0.005)
            finish()
            """)
        outcome = self.assert_ok(self.train(4))
        run = self.only_run()
        told = sorted((json.loads(line) for line in outcome.out.splitlines()),
                      key=lambda one: one["words"][one["words"].index("--id") + 1])
        for number, one in enumerate(told):
            host = HOSTS[number // 2]
            words = dict(zip(one["words"][1::2], one["words"][2::2]))
            self.assertEqual(one["connection"], host, "it really went over ssh")
            self.assertEqual((words["--id"], words["--host"]), (str(number), host))
            self.assertEqual(words["--run"], str(run), "a path that holds there too")
            self.assertTrue(words["--coordinator"].startswith("127.0.0."), words)
            self.assertEqual((one["threads"], one["follows"]), ("1", True))
            self.assertEqual((run / f"workers/{number}.err").read_text(), f"words of {number}\n")

    def test_who_dies_there_is_started_again(self):
        self.worker("""\
            note("up")
            if ID == "1" and ATTEMPT == 1: os.kill(os.getpid(), signal.SIGKILL)
            if ID == "1": open(HERE + "/done", "w")
            wait_for("done")
            finish()
            """)
        self.assert_ok(self.train(2))
        self.assertEqual(self.noted().count(("1", "up")), 2)
        self.assertIn("worker 1 was killed by SIGKILL", (self.only_run() / "launch.log").read_text())

    def test_ctrl_c_travels(self):
        self.worker("""\
            on(signal.SIGINT, lambda: (note("SIGINT"), sys.exit(130)))
            note(f"up {os.getpid()}")
            forever()
            """)
        process = self.start(2)
        pids = self.pids(2)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate()
        self.assertEqual((process.returncode, err), (130, ""))
        self.assertEqual(sorted(note[0] for note in self.noted() if note[1] == "SIGINT"), ["0", "1"])
        self.assert_gone(pids)

    def test_who_ignores_it_is_killed_there(self):
        self.worker("signal.signal(signal.SIGINT, signal.SIG_IGN); note(f'up {os.getpid()}'); forever()")
        process = self.start(2)
        pids = self.pids(2)
        begin = time.monotonic()
        process.send_signal(signal.SIGINT)
        self.assertEqual(process.wait(), 130)
        self.assertLess(time.monotonic() - begin, 3.5)
        self.assert_gone(pids)

    def test_a_killed_launcher_leaves_nobody_behind(self):
        self.worker("note(f'up {os.getpid()}'); forever()")
        process = self.start(2)
        pids = self.pids(2)
        process.kill()
        self.assert_gone(pids)

    def test_a_lost_connection_ends_the_worker_and_starts_another(self):
        self.worker("""\
            note(f"up {os.getpid()}")
            if ATTEMPT == 2: finish()
            forever()
            """)
        self.write_hosts(HOSTS[0])
        process = self.start(1)
        (first,) = self.pids(1)
        log = next((self.folder / "runs").glob("tiny-*/launch.log")).read_text()
        os.kill(int(log.split("worker 0 is started: process ")[1].split()[0]), signal.SIGKILL)  # ssh
        self.assertEqual(process.wait(), 0)
        self.assert_gone([first])

    def test_the_first_to_fail_is_shown(self):
        self.worker("""\
            if ID == "1":
                print("muster: 'labels' has no line 7; mend it", file=sys.stderr)
                sys.exit(4)
            on(signal.SIGINT, lambda: sys.exit(130))
            forever()
            """)
        self.assert_mistake(self.train(2), DATA, "worker 1: 'labels' has no line 7", "--hosts hosts.yaml")

    def test_a_host_that_does_not_answer(self):
        self.worker("finish()")
        (self.folder / "hosts.yaml").write_text(f"- {{ host: {HOSTS[0]}, port: {free_port()} }}")
        outcome = self.train(1, "-s", "workers.restarts=1")
        self.assertEqual(outcome.code, 255, outcome)
        self.assertIn("worker 0: ssh: connect to host 127.0.0.2", outcome.err)

    def test_a_server_that_cannot_start_ends_the_job(self):
        self.worker("on(signal.SIGINT, lambda: sys.exit(130)); forever()")
        self.write_hosts(HOSTS[0], server="/nowhere/muster-server")
        outcome = self.train(1, "-s", "sync.strategy=server", "-s", "optimizer.momentum=0")
        self.assertEqual(outcome.code, MACHINE, outcome)
        self.assertRegex(outcome.err, r"parameter server server\d could not start")
        self.assertIn("/nowhere/muster-server", outcome.err)
        self.assertIn("muster resume", outcome.err)

    def test_mistakes_in_the_file(self):
        self.worker("finish()")
        (self.folder / "hosts.yaml").write_text("- { host: a, prot: 22 }")
        self.assert_mistake(self.train(1), 3, "hosts.yaml:1:14", "'prot'", "'port'")
        (self.folder / "hosts.yaml").write_text("- no.such.machine.invalid")
        self.assert_mistake(self.train(1), USAGE, "no.such.machine.invalid", "--listen")
        (self.folder / "hosts.yaml").unlink()
        self.assertEqual(self.train(1).code, 5)
        self.assertFalse((self.folder / "runs").exists(), "nothing is made on the disk before")

    @needs_member
    def test_they_find_the_coordinator(self):
        self.worker(f"os.environ['MEMBER'] = '{MEMBER}'; note(f'up {{os.getpid()}}'); become_member()")
        process = self.start(2)
        self.pids(2)

        def members():
            done = self.muster("status", "-o", "json")
            return {w["id"]: w["state"] for w in done.json["workers"]} if done.code == 0 else {}
        wait_until(lambda: members() == {"0": "member", "1": "member"}, "both to be in")
        process.send_signal(signal.SIGINT)
        self.assertEqual(process.wait(), 130)

    @needs_worker
    def test_real_workers_give_the_bits_of_one(self):
        def weights(run):
            return json.loads((self.folder / run / "result.json").read_text())["weights_hash"]
        self.assert_ok(self.muster("train", self.job, "-q", "--run-dir", "one"))
        self.assert_ok(self.muster("train", self.job, "-q", "--run-dir", "two", "--hosts", "hosts.yaml"))
        self.assertEqual(weights("one"), weights("two"))


LINK = f"muster{os.getpid()}"  # at most 15 characters


@unittest.skipUnless(os.geteuid() == 0 and all(map(shutil.which, ("ip", "nsenter", "unshare"))),
                     "a link that can be cut needs root and iproute2")
class SilentLink(OverSsh):
    """sshd is in a network namespace of its own, behind a link that is taken down: no packet passes, and nothing is
    closed. The namespace and the link vanish with the process that holds it."""

    here, hosts = "198.18.119.1", ("198.18.119.2",)

    @classmethod
    def setUpClass(cls):
        holder = Program(["unshare", "--net", "sleep", "600"])
        cls.addClassCleanup(holder.wait)
        cls.addClassCleanup(holder.kill)
        own = os.readlink("/proc/self/ns/net")
        wait_until(lambda: holder.poll() is not None or os.readlink(f"/proc/{holder.pid}/ns/net") != own,
                   "a network namespace")
        if holder.poll() is not None:
            raise unittest.SkipTest("there are no network namespaces here")
        cls.before_sshd = ["nsenter", f"--net=/proc/{holder.pid}/ns/net"]
        cls.ip("link", "add", LINK, "type", "veth", "peer", "name", "eth0", "netns", holder.pid)
        cls.ip("addr", "add", f"{cls.here}/30", "dev", LINK)
        cls.ip("link", "set", LINK, "up")
        cls.ip("addr", "add", f"{cls.hosts[0]}/30", "dev", "eth0", before=cls.before_sshd)
        cls.ip("link", "set", "eth0", "up", before=cls.before_sshd)
        super().setUpClass()

    @staticmethod
    def ip(*words, before=()):
        subprocess.run([*before, "ip", *map(str, words)], check=True)

    def test_its_worker_is_killed_there_before_another_is_started(self):
        self.worker("""\
            def runs(pid):
                path = f"/proc/{pid}/stat"
                return os.path.exists(path) and open(path).read().rsplit(")", 1)[1].split()[0] != "Z"
            others = sum(runs(line.split()[2]) for line in open(HERE + "/notes"))
            note(f"up {os.getpid()} {others}")
            if ATTEMPT == 2: finish()
            forever()
            """)
        process = self.start(1)
        (first,) = self.pids(1)
        ssh = int(next((self.folder / "runs").glob("tiny-*/launch.log")).read_text()
                  .split("worker 0 is started: process ")[1].split()[0])
        time.sleep(4)  # so that keepalives were needed, and came
        begin = time.monotonic()
        self.ip("link", "set", LINK, "down")
        wait_until(lambda: state_of(first) == "Z", "the worker there to be killed")
        self.assertGreater(time.monotonic() - begin, 9, "not at the first missing keepalive")
        self.assertNotEqual(state_of(ssh), "Z", "the launcher does not know yet")
        self.ip("link", "set", LINK, "up")
        self.assertEqual(process.wait(), 0)
        self.assertEqual([note[3] for note in self.noted()], ["0", "0"], "no two at the same time")


if __name__ == "__main__":
    main()
