#!/usr/bin/env python3
"""soak.py can fail: its judgement on made-up processes that leak, and its eyes on real ones that stay."""
import os
import subprocess
import sys
import time
import unittest

import soak
from soak import MB, Life, Sample


def life(role, born, length, memory, threads=lambda age: 10, files=lambda age: 30):
    """One that is sampled every second for so long; the functions tell what it has at an age."""
    made = Life(role, f"{role} born at {born}", born)
    made.samples = [Sample(float(age), memory(age), threads(age), files(age), files(age) // 2)
                    for age in range(1, length + 1)]
    return made


def flat(_):
    return 100 * MB


def warming_up(age):
    return (100 - 50 / age) * MB


LAUNCHER = life("launcher", 0, 300, warming_up)


ALONE = life("alone", -20, 20, lambda age: 150 * MB)


def verdict(*lives):
    lives = [ALONE, *lives]
    return soak.judge(lives, soak.compare(lives))


class JudgingTest(unittest.TestCase):
    def test_what_is_flat_or_only_warms_up_is_well(self):
        workers = [life("worker", 5 * i, 4 + i % 20, warming_up) for i in range(60)]
        self.assertEqual(verdict(LAUNCHER, *workers), [])
        self.assertEqual(len(soak.compare([ALONE, LAUNCHER, *workers])), 5, "all that can be compared was")

    def test_a_launcher_that_leaks(self):
        # 0.1 MB a second: 300 s are enough to see it.
        self.assertRegex(verdict(life("launcher", 0, 300, lambda age: flat(age) + age * MB // 10))[0],
                         r"^launcher and coordinator: memory grew from 111.\d MB to 126.\d MB$")

    def test_one_worker_that_leaks_among_many(self):
        workers = [life("worker", i, 60, flat) for i in range(20)]
        workers.append(life("worker", 20, 90, lambda age: flat(age) + 2 * age * MB))
        self.assertEqual(verdict(LAUNCHER, *workers), ["worker born at 20: 280.0 MB, more than 202.5 MB, which is that "
                                                       "of a worker with all lanes and some slack"])

    def test_all_leak_a_little_at_each_recovery(self):
        workers = [life("worker", i, 60, lambda age: flat(age) + age * MB // 4) for i in range(20)]
        self.assertRegex(verdict(LAUNCHER, *workers)[0], "^the same, the typical one, late: memory grew from")

    def test_without_the_undisturbed_worker_nothing_is_known(self):
        self.assertIn("the undisturbed worker was not seen", soak.judge([LAUNCHER], soak.compare([LAUNCHER]))[0])

    def test_generations_that_get_bigger_though_each_is_flat(self):
        workers = [life("worker", 5 * i, 5, lambda age, i=i: (100 + i) * MB) for i in range(40)]
        self.assertEqual(verdict(LAUNCHER, *workers), ["workers at 4 s, early and late: memory grew from "
                                                       "100.0 MB to 120.0 MB"])

    def test_workers_at_two_levels_are_not_growth(self):
        workers = [life("worker", 5 * i, 5, lambda age, i=i: (80 if i % (2 if i < 20 else 7) == 0 else 115) * MB)
                   for i in range(40)]
        self.assertEqual(verdict(LAUNCHER, *workers), [])

    def test_servers_that_get_bigger(self):
        def servers(growth):
            return [life("server", 5 * i, 20, lambda age, i=i: (30 + growth * i) * MB) for i in range(40)]
        self.assertEqual(verdict(LAUNCHER, *servers(0)), [])
        self.assertEqual(verdict(LAUNCHER, *servers(1)), ["servers, highest, early and late: memory grew from "
                                                          "51.0 MB to 69.0 MB"])
        self.assertIsNone(soak.spans(servers(0)[:3]), "too few to say anything")
        self.assertEqual(set(soak.fault_counts(4, (), soak.SERVER_WEIGHTS)), set(soak.SERVER_WEIGHTS))

    def test_threads_and_files(self):
        more = verdict(life("launcher", 0, 100, flat, threads=lambda age: 10 + age // 10,
                            files=lambda age: 30 + age))
        self.assertEqual([sentence.split()[3] for sentence in more], ["threads", "files", "sockets"])
        self.assertEqual(verdict(life("launcher", 0, 100, flat, threads=lambda age: 101)),
                         ["launcher born at 0: 101 threads at once, more than 100"])

    def test_who_was_not_seen_proves_nothing(self):
        self.assertEqual(verdict(life("launcher", 0, 5, flat)),
                         ["the launcher was not seen often enough to say anything"])

    def test_a_plan_fits_the_time(self):
        passes, faults = soak.plan(600, 0.3, 0.7)
        self.assertAlmostEqual(passes * (0.3 + 0.7 / 0.7), 600, delta=2)
        self.assertAlmostEqual(faults, passes / 2, delta=1)
        self.assertEqual(soak.fault_counts(sum(soak.WEIGHTS.values())), soak.WEIGHTS)
        self.assertEqual(min(soak.fault_counts(4).values()), 1)
        self.assertEqual(set(soak.fault_counts(4, ["cut", "restart"])), {*soak.WEIGHTS, "cut", "restart"})


class LookingTest(unittest.TestCase):
    def setUp(self):
        soak.adopt_orphans()
        self.addCleanup(soak.end_leftovers)

    def orphan(self, command):
        """The pid of a process whose parent has ended."""
        # _exit: Python would take note of the child's end if that came first.
        script = (f"import os; pid = os.posix_spawnp({command[0]!r}, {command!r}, os.environ); "
                  "os.write(1, str(pid).encode()); os.close(1); os._exit(0)")
        return int(subprocess.run([sys.executable, "-c", script], stdout=subprocess.PIPE, check=True).stdout)

    def await_zombie(self, pid):
        while soak.stat_of(pid)[0] != "Z":
            time.sleep(0.01)

    def unnoticed(self):
        """The pid of a process that has ended and whose parent, which lives, does not take note."""
        script = ("import os, time; pid = os.posix_spawnp('true', ['true'], os.environ); "
                  "os.write(1, f'{pid}\\n'.encode()); time.sleep(600)")
        parent = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE)
        self.addCleanup(parent.stdout.close)
        self.addCleanup(parent.wait)
        self.addCleanup(parent.kill)
        pid = int(parent.stdout.readline())
        self.await_zombie(pid)
        return pid, parent.pid

    def test_an_orphan_is_left_over_while_it_lives(self):
        self.assertEqual(soak.leftovers(), {})
        alive, dead = self.orphan(["sh", "-c", "exec sleep 600 >/dev/null"]), self.orphan(["true"])
        self.await_zombie(dead)
        self.assertEqual(list(soak.leftovers()), [alive])
        soak.end_leftovers()
        self.assertEqual(soak.leftovers(), {})

    def test_a_zombie_with_a_parent_is_left_over(self):
        dead, parent = self.unnoticed()
        self.assertEqual(set(soak.leftovers()), {dead, parent})

    def test_a_zombie_is_reported_when_it_stays(self):
        dead, _ = self.unnoticed()
        self.await_zombie(self.orphan(["true"]))  # of whom init would take note
        watcher = soak.Watcher()
        watcher.look()
        watcher.look()
        self.assertEqual(watcher.wrong, [])
        watcher.zombies = {key: since - soak.ZOMBIE for key, since in watcher.zombies.items()}
        watcher.look()
        self.assertEqual(len(watcher.wrong), 1)
        self.assertIn(f"process {dead} ", watcher.wrong[0])

    def test_a_sample_of_this_process(self):
        before = soak.sample_of(os.getpid(), 1.0)
        self.assertGreater(before.memory, MB)
        self.assertEqual(before.threads, 1)
        read, write = os.pipe()
        ballast = bytearray(b"x" * (32 * MB))
        after = soak.sample_of(os.getpid(), 2.0)
        self.assertGreater(after.memory - before.memory, 30 * MB)
        self.assertEqual(after.files - before.files, 2)
        os.close(read)
        os.close(write)
        del ballast


if __name__ == "__main__":
    unittest.main()
