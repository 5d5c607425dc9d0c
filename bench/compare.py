#!/usr/bin/env python3
"""Time per step of Muster against Muster with something changed. Whole runs take turns, in changing order.

    bench/compare.py audit    [--models lenet,mlp,gpt] [--workers 2]    audits (the default) against none
    bench/compare.py own-loop --worker build/own-loop/own-loop          examples/own-loop against `muster train` with
                                                                        the zoo's lenet, on the same data
    bench/compare.py python --python VENV/bin/python [--models mlp]     python_loop.py (the Python package) against
                                                                        ddp_loop.py, with the same number of processes;
                                                                        VENV has torch, PYTHONPATH the package
    common: [--bin build/release/bin] [--rounds 7] [--steps 200]

Three figures for each: the ratio of the medians of all steps; the median, over the rounds, of the ratio of the mean step
(which sees what happens in few steps, such as the comparison of lanes; the slowest tenth of steps, which is mostly the
machine, is left out on both sides); and the median ratio of the processor time of all processes.
"""
import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile

from step_time import MODELS, SOURCE, job_file

WARM_UP = 20


def spent_by_children():
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def train_ddp(args, model):
    """As train(), with ddp_loop.py."""
    before = spent_by_children()
    done = subprocess.run([args.python, "-m", "torch.distributed.run", "--nproc-per-node", str(args.workers),
                           os.path.join(SOURCE, "bench/ddp_loop.py"), model, str(MODELS[model]["batch"]), str(args.steps)],
                          check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    return json.loads(done.stdout.splitlines()[-1])[WARM_UP:], spent_by_children() - before


def train_python(args, model, folder):
    os.environ.update({"MUSTER_PYTHON": args.python, "BENCH_MODEL": model, "BENCH_LANES": str(args.workers),
                       "BENCH_BATCH": str(MODELS[model]["batch"])})
    return train(args, None, folder, [], ["--program", os.path.join(SOURCE, "bench/python_loop.py")])


def train(args, job, folder, sets, words=()):
    """The times of the steps, and the processor time of the whole run."""
    run = tempfile.mkdtemp(dir=folder)
    common = [f"steps={args.steps}", "threads=1", "track.every=1 steps", "checkpoint.every=0", "track.tensorboard=false"]
    if args.workers > 1:
        words = [*words, "--workers", str(args.workers)]
    before = spent_by_children()
    subprocess.run([os.path.join(args.bin, "muster"), "train", *([job] if job else []), "--quiet", "--run-dir", run, *words,
                    *(word for s in [*common, *sets] for word in ("-s", s))], check=True, stdout=subprocess.DEVNULL)
    spent = spent_by_children() - before
    with open(os.path.join(run, "metrics.jsonl")) as f:
        times = [record["time"] for record in map(json.loads, f) if "time" in record]
    return [later - earlier for earlier, later in zip(times, times[1:])][WARM_UP:], spent


def trimmed_mean(times):
    return statistics.mean(sorted(times)[:len(times) * 9 // 10])


def compare(args, name, changed, plain):
    sides = {"changed": changed, "plain": plain}
    steps = {side: [] for side in sides}
    means, spent = [], []
    for i in range(args.rounds):
        round_ = {}
        for side in (sides if i % 2 == 0 else reversed(sides)):
            round_[side] = sides[side]()
            steps[side] += round_[side][0]
        means.append(trimmed_mean(round_["changed"][0]) / trimmed_mean(round_["plain"][0]))
        spent.append(round_["changed"][1] / round_["plain"][1])
    medians = {side: statistics.median(times) for side, times in steps.items()}
    print(f"{name:10} {medians['changed']*1e3:9.2f}ms {medians['plain']*1e3:9.2f}ms "
          f"{medians['changed']/medians['plain']:8.3f} {statistics.median(means):8.3f} {statistics.median(spent):10.3f}",
          flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["audit", "own-loop", "python"])
    parser.add_argument("--bin", default=os.path.join(SOURCE, "build/release/bin"))
    parser.add_argument("--worker", default=os.path.join(SOURCE, "build/own-loop/own-loop"))
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--models")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--steps", type=int, default=200)
    args = parser.parse_args()
    args.models = args.models or ("mlp" if args.what == "python" else "lenet,mlp,gpt")
    print(f"{'':10} {'changed':>11} {'plain':>11} {'medians':>8} {'means':>8} {'processor':>10}")
    with tempfile.TemporaryDirectory(prefix="muster-") as folder:
        if args.what == "audit":
            for model in args.models.split(","):
                job = job_file(model, 2, folder)
                compare(args, model, lambda: train(args, job, folder, []),
                        lambda: train(args, job, folder, ["audit.every=0", "audit.lanes=0"]))
        elif args.what == "python":
            for model in args.models.split(","):
                compare(args, model, lambda: train_python(args, model, folder), lambda: train_ddp(args, model))
        else:
            own = os.path.join(SOURCE, "examples/own-loop/job.yaml")
            zoo = os.path.join(SOURCE, "examples/lenet-sample.yaml")
            compare(args, "own loop", lambda: train(args, own, folder, [], ["--worker", args.worker]),
                    lambda: train(args, zoo, folder, ["eval.every=never"]))


main()
