#!/usr/bin/env python3
"""From the command to the first committed step, and how long `muster --help` takes.

    bench/first_step.py [--bin build/release/bin] [--python /path/with/torch/bin/python] [--runs 11]

Muster trains LeNet on MNIST (the full set if scripts/fetch_data.sh has fetched it, else the sample), with one
worker and with two, and is stopped after its first step; the Python loops (bare_loop.py, and ddp_loop.py under
torchrun with two processes) have random data in memory and open no file. They take turns; the figures are medians.
"""
import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
SOURCE = os.path.dirname(HERE)


def muster_first_step(args, job, folder, words=()):
    run = os.path.join(folder, "run")
    start = time.perf_counter()
    process = subprocess.Popen([os.path.join(args.bin, "muster"), "train", job, "--run-dir", run, "--json", *words],
                               stdout=subprocess.PIPE, text=True)
    took = None
    for line in process.stdout:
        if json.loads(line).get("event") == "step":
            took = time.perf_counter() - start
            break
    process.terminate()
    process.communicate()
    shutil.rmtree(run, ignore_errors=True)
    if took is None:
        sys.exit("first_step: muster ended without a step")
    return took


def python_first_step(args):
    start = time.perf_counter()
    process = subprocess.Popen([args.python, os.path.join(HERE, "bare_loop.py"), "lenet", "128", "2"],
                               stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    process.stdin.write("1\n")
    process.stdin.flush()
    process.stdout.readline()
    took = time.perf_counter() - start
    process.stdin.close()
    process.wait()
    return took


def torchrun_first_step(args):
    """Until the process that did one step has printed it; its end is not counted."""
    start = time.perf_counter()
    process = subprocess.Popen([args.python, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2",
                                os.path.join(HERE, "ddp_loop.py"), "lenet", "128", "1"], stdout=subprocess.PIPE,
                               stderr=subprocess.DEVNULL, text=True,
                               env={**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"})
    process.stdout.readline()
    took = time.perf_counter() - start
    process.communicate()
    return took


def help_time(args):
    start = time.perf_counter()
    subprocess.run([os.path.join(args.bin, "muster"), "--help"], stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - start


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", default=os.path.join(SOURCE, "build/release/bin"))
    parser.add_argument("--python", default="", help="a Python that has torch")
    parser.add_argument("--runs", type=int, default=11)
    args = parser.parse_args()
    full = os.path.exists(os.path.join(SOURCE, "data/mnist/train-images-idx3-ubyte.gz"))
    job = os.path.join(SOURCE, "examples", "lenet-mnist.yaml" if full else "lenet-sample.yaml")
    with tempfile.TemporaryDirectory(prefix="muster-") as folder:
        contestants = {"muster --help": lambda: help_time(args),
                       "muster train": lambda: muster_first_step(args, job, folder),
                       "muster train --workers 2": lambda: muster_first_step(args, job, folder, ["--workers", "2"])}
        if args.python:
            contestants["python loop"] = lambda: python_first_step(args)
            contestants["torchrun, 2 processes"] = lambda: torchrun_first_step(args)
        times = {name: [] for name in contestants}
        for _ in range(args.runs):
            for name, measure in contestants.items():
                times[name].append(measure())
    print(f"job: {os.path.basename(job)}, {args.runs} runs each")
    for name, values in times.items():
        print(f"{name:26} median {statistics.median(values)*1e3:8.1f} ms, best {min(values)*1e3:8.1f} ms, "
              f"worst {max(values)*1e3:8.1f} ms")


main()
