"""Gives processes a share of a core, as if their machines were slower than this one.

By a quota of the cpu controller (cgroup v1, where root may write it), else by stopping and continuing them in turns.

A slow machine is slow evenly; a process with a share of 0.1 runs a tenth of the time and stands still for the rest, and
whoever waits for it then waits for it to be let go on. So the period is as short as can be: the kernel grants no less
than 1 ms, hence 10 ms for a tenth. (It notices that a quota is used up at its timer tick, every 4 ms here, and takes what
was used too much from the next periods, so a tenth is in fact a burst of 1 to 4 ms every 10 to 40 ms.) A period of 100
ms, the kernel's default, would add up to 90 ms to each operation that all take part in, on every contestant alike; that
would be a measurement of the kernel's scheduler.
"""
import contextlib
import os
import signal
import threading
import time

CONTROLLER = "/sys/fs/cgroup/cpu"
PERIOD = 0.01


def cpu_seconds(pid):
    """What a process and its threads have used so far."""
    with open(f"/proc/{pid}/stat") as f:
        fields = f.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Quotas:
    """A group of the cpu controller for each process."""
    name = f"cgroup quotas with a period of {PERIOD * 1000:g} ms"

    def __init__(self, weight=1024):
        self.weight = weight
        self.groups = []

    @staticmethod
    def possible():
        return os.path.exists(f"{CONTROLLER}/cpu.cfs_quota_us") and os.access(CONTROLLER, os.W_OK)

    def limit(self, pid, share):
        group = f"{CONTROLLER}/muster-bench-{os.getpid()}-{len(self.groups)}"
        os.mkdir(group)
        self.groups.append(group)
        for key, value in (("cpu.cfs_period_us", round(PERIOD * 1e6)), ("cpu.cfs_quota_us", round(share * PERIOD * 1e6)),
                           ("cpu.shares", self.weight), ("cgroup.procs", pid)):
            with open(f"{group}/{key}", "w") as f:
                f.write(str(value))

    def lift(self):
        """Before the processes are ended, which takes long on a tenth of a core."""
        for group in self.groups:
            with open(f"{group}/cpu.cfs_quota_us", "w") as f:
                f.write("-1")

    def close(self):
        """When the processes are gone."""
        for group in self.groups:
            os.rmdir(group)
        self.groups = []


class DutyCycle:
    """A thread that stops and continues each process: coarser, and it misses its time when the machine is busy."""
    name = "SIGSTOP and SIGCONT with a period of 40 ms"
    period = 0.04

    def __init__(self, weight=1024):
        del weight
        self.done = threading.Event()
        self.threads = []

    def limit(self, pid, share):
        self.threads.append(threading.Thread(target=self.turn, args=(pid, share)))
        self.threads[-1].start()

    def turn(self, pid, share):
        with contextlib.suppress(ProcessLookupError):
            begun, used = time.monotonic(), cpu_seconds(pid)
            # By what it really used, so that late wake-ups and waiting are made up for.
            while not self.done.wait(share * self.period):
                os.kill(pid, signal.SIGSTOP)
                with contextlib.suppress(FileNotFoundError):
                    while (cpu_seconds(pid) - used > share * (time.monotonic() - begun) and
                           not self.done.wait(self.period / 10)):
                        pass
                    if time.monotonic() - begun > 1:  # nobody saves up for later
                        begun, used = time.monotonic(), cpu_seconds(pid)
                os.kill(pid, signal.SIGCONT)
            os.kill(pid, signal.SIGCONT)

    def lift(self):
        self.done.set()
        for thread in self.threads:
            thread.join()

    def close(self):
        pass


def make(weight=1024, kind=""):
    if kind == "stop" or not Quotas.possible():
        return DutyCycle(weight)
    return Quotas(weight)
