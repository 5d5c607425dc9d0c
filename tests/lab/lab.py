"""A laboratory of hosts for tests and benchmarks: network namespaces on this machine, with links of a given rate,
delay and loss (muster/lab). Needs root.

    with Lab("rate: 100mbit\\nhosts: [paris, tokyo]") as lab:
        lab.run("paris", ["iperf3", "-s"])
        lab.cut("paris", "tokyo")

Nothing is left behind, even if this program is killed: its processes end with it, and the hosts with the processes.
"""

import json
import os
import subprocess
import sys
import tempfile

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../cli"))
from harness import BIN_DIR, Program  # noqa: E402


class LabError(RuntimeError):
    pass


class Lab:
    """`hosts`: the text of a hosts file (muster/lab/hosts_file.h). The switch is the host "hub"."""

    def __init__(self, hosts, bin_dir=BIN_DIR):
        with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
            file.write(hosts)
            file.flush()
            # It ends when its input does, so also when this program is killed.
            self.process = subprocess.Popen([os.path.join(bin_dir, "muster-lab"), file.name], text=True,
                                            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            line = self.process.stdout.readline()
        if not line:
            raise LabError(self.process.communicate()[1].strip())
        made = json.loads(line)
        self.hosts = {host["name"]: host for host in made["hosts"]} | {"hub": made["hub"]}
        self.started = []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.end()

    def end(self):
        for process in self.started:
            process.kill()
            process.wait()
        self.process.communicate()

    def address(self, host):
        return self.hosts[host]["address"]

    def words(self, host, command):
        """The command as it is run on that host."""
        return [*self.hosts[host]["enter"], f"--wd={os.getcwd()}", "--", *command]

    def run(self, host, command, **options):
        """Starts it; it is killed with the laboratory."""
        self.started.append(Program([str(word) for word in self.words(host, command)], **options))
        return self.started[-1]

    def ask(self, *words):
        try:
            self.process.stdin.write(" ".join(words) + "\n")
            self.process.stdin.flush()
            answer = json.loads(self.process.stdout.readline())
        except (BrokenPipeError, json.JSONDecodeError) as error:
            raise LabError(f"muster-lab has ended: {self.process.communicate()[1].strip()}") from error
        if "error" in answer:
            raise LabError(answer["error"])
        return answer

    def cut(self, a, b):
        self.ask("cut", a, b)

    def heal(self, a, b):
        self.ask("heal", a, b)

    def link(self, host, **options):
        """lab.link("paris", rate="10mbit", delay="20ms", loss=0.01); what is left out is none."""
        self.ask("link", host, *(f"{key}={value}" for key, value in options.items()))

    def bytes(self, host):
        """{"sent": ..., "received": ...} at the switch's end of its link, since the beginning."""
        return self.ask("bytes", host)
