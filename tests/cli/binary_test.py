"""The binary itself: what it links, and that it answers at once."""

import os
import re
import resource
import statistics
import subprocess

from harness import MUSTER, CommandTest, main


def linked_libraries():
    """All of them, also those that libraries bring along."""
    listing = subprocess.run(["ldd", MUSTER], capture_output=True, text=True, check=True).stdout
    return [line.split()[0] for line in listing.splitlines() if line.strip()]


class Binary(CommandTest):
    def test_links_nothing_that_computes_talks_or_reads_data(self):
        dynamic = subprocess.run(["readelf", "-d", MUSTER], capture_output=True, text=True,
                                 check=True).stdout
        for name in re.findall(r"NEEDED.*\[(.*)\]", dynamic) + linked_libraries():
            self.assertNotRegex(name, r"torch|c10|gloo|grpc|mkl|cuda|gomp|curl|jpeg|png|lmdb")

    def test_help_takes_less_than_30_ms(self):
        # Processor time, the least of some runs: what the program itself needs, whatever else this
        # machine is doing. docs/benchmarks.md has the time on the clock.
        taken = []
        for _ in range(15):
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            self.assert_ok(self.muster("--help"))
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            taken.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
        self.assertLess(min(taken), 0.030, f"median {statistics.median(taken) * 1000:.1f} ms")

    def test_a_reader_that_goes_away_is_no_mistake(self):
        shell = f"'{MUSTER}' config schema | head -c 10 >/dev/null; exit ${{PIPESTATUS[0]}}"
        done = subprocess.run(["bash", "-c", shell], capture_output=True, text=True)
        self.assertIn(done.returncode, (0, 141))
        self.assertEqual(done.stderr, "")

    def test_output_that_cannot_be_written_is_an_error(self):
        if not os.path.exists("/dev/full"):
            self.skipTest("there is no /dev/full here")
        with open("/dev/full", "w") as full:
            done = subprocess.run([MUSTER, "version"], stdout=full, stderr=subprocess.PIPE, text=True)
        self.assertEqual(done.returncode, 5)
        self.assertIn("standard output", done.stderr)


if __name__ == "__main__":
    main()
