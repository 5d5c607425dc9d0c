"""What the parts of bench/streams.py share."""
import json
import os
import resource
import statistics
import subprocess
import sys
import time

import processes

HERE = os.path.dirname(os.path.abspath(__file__))
SOURCE = os.path.dirname(HERE)
sys.path.insert(0, os.path.join(SOURCE, "tests/e2e"))
MIB = 1 << 20


def say(text):
    print(text, file=sys.stderr, flush=True)


def words_of(sets):
    return [word for one in sets for word in ("-s", one)]


def write_file(path, text):
    with open(path, "w") as f:
        f.write(text)
    return path


def cpu_of(command, env=None):
    """Seconds of processor time until it ends, and what it printed."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    out = processes.run(command, env)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, out


def ratio(ours, theirs):
    """The median over rounds of the ratio within a round."""
    return statistics.median(a / b for a, b in zip(ours, theirs))


def first_step(command, env=None):
    """Seconds until it reports a step; then it is told to end."""
    begin = time.perf_counter()
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, env={**os.environ, **(env or {})})
    took = None
    for line in process.stdout:
        if json.loads(line).get("event") == "step":
            took = time.perf_counter() - begin
            break
    process.terminate()
    process.communicate()
    if took is None:
        sys.exit(f"no step: {' '.join(command)}")
    return took
