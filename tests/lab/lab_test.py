#!/usr/bin/env python3
"""Training on the hosts of a laboratory: slow links, delays and cuts change the time, not the result."""

import json
import os
import shutil
import signal
import subprocess
import tempfile
import unittest
from pathlib import Path

from lab import Lab, LabError
from harness import MUSTER, networks, wait_until  # lab.py knows where it is

SOURCE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
JOB = os.path.join(SOURCE, "examples/lenet-sample.yaml")
TABLES = os.path.join(SOURCE, "examples/dlrm-synthetic.yaml")
TABLES_OPTIONS = [word for option in ("passes=0", "steps=2500", "threads=1", "eval.every=never", "checkpoint.every=never")
                  for word in ("-s", option)]
SSHD = shutil.which("sshd", path=os.environ["PATH"] + ":/usr/sbin:/sbin:/usr/local/sbin")
OPTIONS = [word for option in ("passes=1", "threads=1", "eval.every=never", "workers.min=3")
           for word in ("-s", option)]


def can_make_hosts():
    """Whether there is what a laboratory is made of, without our code."""
    path = os.environ["PATH"] + ":/usr/sbin:/sbin"
    return (os.geteuid() == 0 and all(shutil.which(tool, path=path) for tool in ("ip", "tc", "nsenter", "unshare"))
            and os.access("/dev/net/tun", os.W_OK)
            and subprocess.run(["unshare", "--net", "--mount", "true"]).returncode == 0)


@unittest.skipUnless(can_make_hosts(), "needs root, iproute2, network namespaces and /dev/net/tun")
class LabTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="muster-")
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def hash_of(self, run):
        with open(os.path.join(self.folder, run, "result.json")) as file:
            return json.load(file)["weights_hash"]

    def alone(self, *sets):
        """The hash of the same job, trained by one worker."""
        run = "alone" + "".join(sets)
        subprocess.run([MUSTER, "train", JOB, "-q", "--run-dir", os.path.join(self.folder, run), *OPTIONS[:-2], *sets],
                       check=True, stdout=subprocess.DEVNULL)
        return self.hash_of(run)

    def start(self, lab, name, *sets, sites=None):
        """A coordinator on the hub and a worker on each host: the run, what the coordinator says, the workers.
        `sites`: {host: name of its site}."""
        run, said = os.path.join(self.folder, name), os.path.join(self.folder, name + ".txt")
        with open(said, "w") as out:
            lab.run("hub", [MUSTER, "coordinator", JOB, *OPTIONS, *sets, "--run-dir", run,
                            "--listen", lab.address("hub") + ":7000"], stdout=out, stderr=subprocess.STDOUT)
        wait_until(lambda: os.path.exists(os.path.join(run, "coordinator.json")), "the coordinator")
        hosts = [host for host in lab.hosts if host != "hub"]
        return run, said, [lab.run(host, [MUSTER, "join", run, "--id", host, "--host", lab.address(host),
                                          *(["--site", sites[host]] if sites else [])],
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) for host in hosts]

    def test_hosts_far_apart_train_to_the_same_bits_through_a_cut(self):
        with Lab("rate: 100mbit\ndelay: 2ms\nhosts: [paris, tokyo, lima]") as lab:
            run, said, workers = self.start(lab, "far")
            metrics = os.path.join(run, "metrics.jsonl")
            wait_until(lambda: os.path.exists(metrics) and os.path.getsize(metrics) > 0, "the first steps")
            # Until they have noticed, and begun another group.
            lab.cut("paris", "tokyo")
            wait_until(lambda: "roster 2" in Path(said).read_text(), "another roster")
            lab.heal("paris", "tokyo")
            for worker in workers:
                self.assertEqual(worker.wait(120), 0)
            # Each host has sent gradients, and the state to none or one of the others.
            for host in ("paris", "tokyo", "lima"):
                self.assertGreater(lab.bytes(host)["sent"], 1_000_000, host)
            self.assertEqual(self.hash_of("far"), self.alone())

    def test_strategies_give_the_same_bits_and_send_less(self):
        sent = {}
        for name, sets in (("lockstep", []),
                           ("bits", ["-s", "sync.bits=4", "-s", "sync.rotation=hadamard"]),
                           ("average", ["-s", "sync.strategy=average", "-s", "sync.period=8"]),
                           ("bmuf", ["-s", "sync.strategy=bmuf", "-s", "sync.period=8"]),
                           ("diloco", ["-s", "sync.strategy=diloco", "-s", "sync.period=8", "-s", "sync.bits=4"]),
                           ("gossip", ["-s", "sync.strategy=gossip", "-s", "sync.period=8", "-s", "sync.rounds=3"]),
                           ("sparseloco", ["-s", "sync.strategy=sparseloco", "-s", "sync.period=8"]),
                           ("streaming", ["-s", "sync.strategy=streaming", "-s", "sync.bits=4"]),
                           ("desloc", ["-s", "sync.strategy=desloc", "-s", "sync.period=8", "-s", "sync.bits=4"]),
                           ("sparta", ["-s", "sync.strategy=sparta", "-s", "sync.period=8"]),
                           ("topk", ["-s", "sync.strategy=topk"]),
                           ("threshold", ["-s", "sync.strategy=threshold"]),
                           ("onebit", ["-s", "sync.strategy=onebit"]),
                           ("powersgd", ["-s", "sync.strategy=powersgd"])):
            with Lab("rate: 100mbit\nhosts: [paris, tokyo, lima]") as lab:
                _, _, workers = self.start(lab, name, *sets)
                for worker in workers:
                    self.assertEqual(worker.wait(120), 0, name)
                sent[name] = sum(lab.bytes(host)["sent"] for host in ("paris", "tokyo", "lima"))
            self.assertEqual(self.hash_of(name), self.alone(*sets), name)
        # With what the start of the job costs, which is the same for all.
        self.assertLess(sent["bits"], sent["lockstep"] / 3, sent)
        self.assertLess(sent["average"], sent["lockstep"] / 4, sent)
        self.assertLess(sent["bmuf"], sent["lockstep"] / 4, sent)
        self.assertLess(sent["diloco"], sent["lockstep"] / 12, sent)
        self.assertLess(sent["gossip"], sent["lockstep"] / 2, sent)
        self.assertLess(sent["sparseloco"], sent["lockstep"] / 20, sent)
        self.assertLess(sent["streaming"], sent["lockstep"] / 12, sent)
        self.assertLess(sent["desloc"], sent["lockstep"] / 8, sent)
        self.assertLess(sent["sparta"], sent["lockstep"] / 4, sent)
        self.assertLess(sent["topk"], sent["lockstep"] / 8, sent)
        self.assertLess(sent["threshold"], sent["lockstep"] / 8, sent)
        self.assertLess(sent["onebit"], sent["lockstep"] / 5, sent)
        self.assertLess(sent["powersgd"], sent["lockstep"] / 4, sent)

    def test_a_site_of_many_sends_as_much_to_another_as_one_host_would(self):
        sets = ["-s", "passes=4", "-s", "sync.strategy=average", "-s", "sync.replicas=2", "-s", "sync.period=2",
                "-s", "workers.min=2"]
        sent, alone = {}, self.alone(*sets[:-2])
        for name, hosts in (("one", ["paris", "tokyo"]), ("three", ["paris", "lyon", "nice", "tokyo"])):
            with Lab(f"rate: 1gbit\nhosts: [{', '.join(hosts)}]") as lab:
                _, _, workers = self.start(lab, name, *sets,
                                           sites={host: "asia" if host == "tokyo" else "france" for host in hosts})
                for worker in workers:
                    self.assertEqual(worker.wait(120), 0, name)
                sent[name] = lab.bytes("tokyo")["sent"]
            self.assertEqual(self.hash_of(name), alone, name)
        # The mean of both replicas, to one host of France. To each of three it would be half as much again.
        self.assertLess(sent["three"], 1.2 * sent["one"], sent)

    def test_links_are_measured(self):
        with Lab("rate: 20mbit\ndelay: 5ms\nhosts: [paris, tokyo, lima]") as lab:
            run, _, workers = self.start(lab, "links", "-s", "track.links=true", "-s", "track.every=1 steps")
            for worker in workers:
                self.assertEqual(worker.wait(120), 0)
        with open(os.path.join(run, "metrics.jsonl")) as file:
            lines = [json.loads(line) for line in file]
        links = next(line["links"] for line in lines if "links" in line)
        # Packets have headers, and phases of an allreduce wait for each other, and for the processors of a busy machine.
        self.assertGreater(links["rate"] * 8, 6e6)
        self.assertLess(links["rate"] * 8, 20e6)
        self.assertGreater(links["delay"], 0.004)
        self.assertLess(links["delay"], 0.012)
        waited = [line["waited"] / line["seconds"] for line in lines if "waited" in line]
        self.assertGreater(sorted(waited)[len(waited) // 2], 0.3, "on such links a worker mostly waits")

    @unittest.skipUnless(SSHD and shutil.which("ssh"), "there is no OpenSSH server here (package openssh-server)")
    def test_a_strategy_is_chosen_for_the_links_between_hosts(self):
        with Lab("rate: 10mbit\nhosts: [paris, tokyo]") as lab:
            hosts = self.ssh_hosts(lab)
            train = lab.run("hub", [MUSTER, "train", JOB, *OPTIONS[:-2], "-s", "sync.strategy=auto", "--hosts", hosts, "-q",
                                    "--run-dir", os.path.join(self.folder, "auto")],
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            said = train.communicate(timeout=240)[0]
            self.assertEqual(train.returncode, 0, said)
            self.assertIn("sync.strategy auto, with", said)
            with open(os.path.join(self.folder, "auto", "job.yaml")) as file:
                job = file.read()
            self.assertNotIn("strategy: auto", job)
            self.assertNotIn("strategy: lockstep", job)
            # Fast ones.
            for host in ("paris", "tokyo"):
                lab.link(host, rate="10gbit")
            plan = lab.run("hub", [MUSTER, "plan", JOB, "-s", "batch=1024", "--hosts", hosts, "-o", "json",
                                   "-s", f"runs={self.folder}/runs"],
                           stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            out, err = plan.communicate(timeout=240)
            self.assertEqual(plan.returncode, 0, err)
            plan = json.loads(out)
            self.assertGreater(plan["rate"], 20e6)  # bytes; it was 1.25e6. More than that depends on the processors
            self.assertEqual(plan["workers"], 2)
            self.assertEqual(os.listdir(os.path.join(self.folder, "runs")), [], "nothing is left behind")

    def tables_alone(self):
        """The hash of the job with tables, trained by one worker with the rows in its own memory."""
        subprocess.run([MUSTER, "train", TABLES, "-q", "--run-dir", os.path.join(self.folder, "rows"), *TABLES_OPTIONS],
                       check=True, stdout=subprocess.DEVNULL)
        return self.hash_of("rows")

    def servers_of(self, lab, run):
        """What `muster status` says of parameter servers: a list, empty if it says nothing yet."""
        asked = lab.run("hub", [MUSTER, "status", run + "/", "-o", "json"], stdout=subprocess.PIPE,
                        stderr=subprocess.DEVNULL, text=True)
        out = asked.communicate(timeout=60)[0]
        status = json.loads(out)["parameter_servers"] if asked.returncode == 0 else None
        return status.get("servers", []) if status else []

    def wait_ready(self, lab, run, count, gone=()):
        """Until so many are ready, and processes that were killed are not among them."""
        seen = []

        def ready():
            seen[:] = self.servers_of(lab, run)
            there = {server["process"] for server in seen if server["state"] == "ready"}
            return len(there) == count and not there & set(gone) and all(server["rows"] > 0 for server in seen)
        wait_until(ready, lambda: f"{count} servers: {seen}")
        return seen

    @unittest.skipUnless(SSHD and shutil.which("ssh"), "there is no OpenSSH server here (package openssh-server)")
    def test_all_servers_of_a_host_may_be_lost_at_once(self):
        with Lab("hosts: [paris, tokyo]") as lab:
            run = os.path.join(self.folder, "tables")
            train = lab.run("hub", [MUSTER, "train", TABLES, *TABLES_OPTIONS, "-s", "tables.servers=4", "--hosts",
                                    self.ssh_hosts(lab), "-q", "--run-dir", run],
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            gone = set()
            for host in ("paris", "tokyo"):
                servers = self.wait_ready(lab, run, 4, gone)
                there = [server["process"] for server in servers if server["host"] == lab.address(host)]
                self.assertEqual(len(there), 2, servers)
                for process in there:
                    os.kill(process, signal.SIGKILL)
                gone |= set(there)
            self.wait_ready(lab, run, 4, gone)
            said = train.communicate(timeout=240)[0]
            self.assertEqual(train.returncode, 0, said)
        self.assertEqual(self.hash_of("tables"), self.tables_alone())

    def test_servers_started_by_hand_of_which_two_cannot_reach_each_other(self):
        with Lab("hosts: [paris, tokyo, lima]") as lab:
            run, address = os.path.join(self.folder, "tables"), lab.address("hub") + ":7000"
            lab.run("hub", [MUSTER, "coordinator", TABLES, *TABLES_OPTIONS, "-s", "tables.servers=3", "--run-dir", run,
                            "--listen", address], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            wait_until(lambda: os.path.exists(os.path.join(run, "coordinator.json")), "the coordinator")
            said = {}
            for host in ("paris", "tokyo", "lima"):
                said[host] = Path(self.folder, host + ".err")
                with open(said[host], "w") as file:
                    lab.run(host, [os.path.join(os.path.dirname(MUSTER), "muster-server"), "--coordinator", address, "--id", host],
                            stderr=file)
            workers = [lab.run("hub", [MUSTER, "join", address, "--run", run, "--id", id], stdout=subprocess.DEVNULL,
                               stderr=subprocess.DEVNULL) for id in ("a", "b")]
            servers = self.wait_ready(lab, run, 3)
            self.assertEqual({server["host"] for server in servers}, {lab.address(host) for host in said})
            # Nobody heals it. Both reach everybody else, and the later one has to go.
            lab.cut("paris", "tokyo")
            wait_until(lambda: "could not reach each other" in said["tokyo"].read_text(), "the end of tokyo")
            self.assertIn("it and paris could not reach each other", said["tokyo"].read_text())
            for worker in workers:
                self.assertEqual(worker.wait(120), 0)
            self.assertNotIn("is lost", "".join(file.read_text() for file in said.values()))
        self.assertEqual(self.hash_of("tables"), self.tables_alone())

    def own_runs(self, lab):
        """Each host has a directory of runs for itself, at the same path. The hub has that of this machine."""
        runs = os.path.join(self.folder, "runs")
        os.makedirs(runs)
        for host in lab.hosts:
            if host != "hub":
                mount = lab.run(host, ["mount", "-t", "tmpfs", "none", runs])
                self.assertEqual(mount.wait(60), 0)
        return runs

    def read(self, lab, host, path):
        """The text of a file as that host sees it, or None."""
        cat = lab.run(host, ["cat", path], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        text = cat.communicate(timeout=60)[0]
        return text if cat.returncode == 0 else None

    def members(self, lab, address):
        """{id: pid} of the members of the roster, as `muster status` has them."""
        asked = lab.run("hub", [MUSTER, "status", address, "-o", "json"], stdout=subprocess.PIPE,
                        stderr=subprocess.DEVNULL, text=True)
        out = asked.communicate(timeout=60)[0]
        workers = json.loads(out)["workers"] if asked.returncode == 0 else []
        return {worker["id"]: worker["process"] for worker in workers if worker["state"] == "member"}

    def copied(self, copy):
        """The newest step of the copy; -1: there is none yet."""
        try:
            with open(os.path.join(copy, "latest.json")) as file:
                return max((checkpoint["step"] for checkpoint in json.load(file)["checkpoints"]), default=-1)
        except (OSError, json.JSONDecodeError):
            return -1

    def assert_whole_history(self, text, run):
        """Every step once, repetitions aside, up to the last one."""
        steps = {json.loads(line)["step"] for line in text.splitlines() if "loss" in json.loads(line)}
        with open(os.path.join(self.folder, run, "result.json")) as file:
            self.assertEqual(steps, set(range(1, json.load(file)["steps"] + 1)))

    def test_hosts_with_run_directories_of_their_own(self):
        sets = ["-s", "passes=24", "-s", "workers.min=1", "-s", "track.every=1 steps", "-s", "checkpoint.every=20 steps"]
        alone = self.alone(*sets[:2], *sets[4:])
        with Lab("rate: 100mbit\nhosts: [paris, tokyo]") as lab:
            runs, copy = self.own_runs(lab), os.path.join(self.folder, "copy")
            run, address = os.path.join(runs, "own"), lab.address("hub") + ":7000"
            with open(os.path.join(self.folder, "said.txt"), "w") as out:
                lab.run("hub", [MUSTER, "coordinator", JOB, *OPTIONS, *sets, "-s", f"checkpoint.to={copy}", "--run-dir", run,
                                "--listen", address], stdout=out, stderr=subprocess.STDOUT)
            wait_until(lambda: os.path.exists(os.path.join(run, "coordinator.json")), "the coordinator")

            def join(host):
                return lab.run(host, [MUSTER, "join", address, "--run", run, "--id", host, "--host", lab.address(host)],
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

            paris = join("paris")
            wait_until(lambda: "paris" in self.members(lab, address), "paris")
            tokyo = join("tokyo")
            wait_until(lambda: "tokyo" in self.members(lab, address), "tokyo")
            joined = self.copied(copy)
            wait_until(lambda: self.copied(copy) > joined + 20, "a copy of what both have trained")
            self.assertIsNone(self.read(lab, "tokyo", os.path.join(run, "metrics.jsonl")), "paris records")
            # The host is lost: nobody starts the worker again, and nothing more is sent.
            process = self.members(lab, address)["paris"]
            paris.send_signal(signal.SIGSTOP)
            os.kill(process, signal.SIGKILL)
            paris.kill()
            wait_until(lambda: list(self.members(lab, address)) == ["tokyo"], "the end of paris")
            recorded = self.copied(copy)
            wait_until(lambda: self.copied(copy) > recorded + 20, "a copy by tokyo")
            # It comes back, with a directory that others have left behind.
            returned = join("paris")
            wait_until(lambda: "paris" in self.members(lab, address), "paris again")
            for worker in (tokyo, returned):
                self.assertEqual(worker.wait(300), 0)
            result = json.loads(self.read(lab, "tokyo", os.path.join(run, "result.json")))
            self.assertEqual(result["weights_hash"], alone)
            metrics = self.read(lab, "tokyo", os.path.join(run, "metrics.jsonl"))
            self.assertIsNone(self.read(lab, "paris", os.path.join(run, "result.json")))
        fetched = os.path.join(self.folder, "fetched")
        subprocess.run([MUSTER, "runs", "fetch", copy, "--run-dir", fetched], check=True, stdout=subprocess.DEVNULL)
        self.assertEqual(self.hash_of("fetched"), alone)
        self.assert_whole_history(metrics, "fetched")
        self.assert_whole_history(Path(fetched, "metrics.jsonl").read_text(), "fetched")

    @unittest.skipUnless(SSHD and shutil.which("ssh"), "there is no OpenSSH server here (package openssh-server)")
    def test_a_launcher_fetches_what_hosts_with_own_directories_recorded(self):
        sets = ["-s", "passes=2", "-s", "track.every=1 steps", "-s", "checkpoint.every=10 steps"]
        alone = self.alone(*sets)
        with Lab("rate: 1gbit\nhosts: [paris, tokyo]") as lab:
            runs, copy = self.own_runs(lab), os.path.join(self.folder, "copy")
            hosts, run = self.ssh_hosts(lab), os.path.join(runs, "own")
            train = lab.run("hub", [MUSTER, "train", JOB, *OPTIONS[:-2], *sets, "-s", f"checkpoint.to={copy}", "--hosts", hosts,
                                    "-q", "--run-dir", run],
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            said = train.communicate(timeout=240)[0]
            self.assertEqual(train.returncode, 0, said)
            self.assertEqual(self.hash_of("runs/own"), alone)
            with open(os.path.join(run, "status.json")) as file:
                self.assertEqual(json.load(file)["state"], "finished")
            self.assert_whole_history(Path(run, "metrics.jsonl").read_text(), "runs/own")
            # Longer, from the copy or from the disk of the host that recorded.
            longer = lab.run("hub", [MUSTER, "resume", run, "-s", "passes=3", "--hosts", hosts, "-q"],
                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            said = longer.communicate(timeout=240)[0]
            self.assertEqual(longer.returncode, 0, said)
            self.assert_whole_history(Path(run, "metrics.jsonl").read_text(), "runs/own")

    def ssh_hosts(self, lab):
        """A hosts file; each host has an sshd of its own."""
        for name in ("host", "user"):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", os.path.join(self.folder, name)], check=True)
        os.makedirs("/run/sshd", exist_ok=True)
        entries = []
        for host in lab.hosts:
            if host == "hub":
                continue
            config = os.path.join(self.folder, host + ".sshd")
            with open(config, "w") as file:
                file.write(f"Port 2222\nListenAddress {lab.address(host)}\nHostKey {self.folder}/host\nUsePAM no\n"
                           f"AuthorizedKeysFile {self.folder}/user.pub\nPidFile none\nStrictModes no\n"
                           "PermitRootLogin prohibit-password\n")
            lab.run(host, [SSHD, "-D", "-e", "-f", config], stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            entries.append({"host": lab.address(host), "port": 2222, "identity": os.path.join(self.folder, "user"),
                            "options": ["StrictHostKeyChecking=no", "UserKnownHostsFile=/dev/null"]})
        path = os.path.join(self.folder, "hosts.yaml")
        with open(path, "w") as file:
            json.dump(entries, file)  # JSON is YAML
        return path

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
