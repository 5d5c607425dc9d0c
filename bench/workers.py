#!/usr/bin/env python3
"""Time per step with two workers, against PyTorch's DistributedDataParallel with two processes.

Same model, batch and optimizer; Gloo on both sides; one thread in each process. Whole runs take turns, and the figure is
the median of all steps of all turns, the first ones of each left out.

    bench/workers.py --python /path/with/torch/bin/python [--bin build/release/bin] [--models lenet,mlp,gpt]
                     [--rounds 5] [--steps 120] [-o FILE.json]
"""
import argparse
import json
import math
import os
import statistics
import subprocess
import tempfile

from step_time import HERE, MODELS, SOURCE, job_file

WARM_UP = 20


def muster(args, model, workers, threads, folder):
    run = tempfile.mkdtemp(dir=folder)
    job = job_file(model, 2, folder)
    words = ["--workers", str(workers)] if workers > 1 else []
    sets = [f"steps={args.steps}", f"threads={threads}", "track.every=1 steps", "checkpoint.every=0",
            "track.tensorboard=false"]
    subprocess.run([os.path.join(args.bin, "muster"), "train", job, "--quiet", "--run-dir", run, *words,
                    *(word for s in sets for word in ("-s", s))], check=True, stdout=subprocess.DEVNULL)
    with open(os.path.join(run, "metrics.jsonl")) as f:
        times = [record["time"] for record in map(json.loads, f) if "time" in record]
    return [after - before for before, after in zip(times, times[1:])][WARM_UP:]


def ddp(args, model):
    batch = str(MODELS[model]["batch"])
    out = subprocess.run([args.python, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2",
                          os.path.join(HERE, "ddp_loop.py"), model, batch, str(args.steps)],
                         check=True, capture_output=True, text=True,
                         env={**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}).stdout
    return json.loads(out.strip().splitlines()[-1])[WARM_UP:]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", default=os.path.join(SOURCE, "build/release/bin"))
    parser.add_argument("--python", required=True)
    parser.add_argument("--models", default="lenet,mlp,gpt")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("-o", "--output")
    args = parser.parse_args()
    rows = []
    print(f"{'model':6} {'2 workers':>11} {'1 worker':>11} {'DDP':>11} {'2 / DDP':>9} {'1 / DDP':>9}")
    for model in args.models.split(","):
        two, one, other = [], [], []
        with tempfile.TemporaryDirectory(prefix="muster-") as folder:
            for _ in range(args.rounds):
                two += muster(args, model, 2, 1, folder)
                other += ddp(args, model)
                one += muster(args, model, 1, 2, folder)
        t = dict(model=model, two=statistics.median(two), one=statistics.median(one), ddp=statistics.median(other))
        rows.append(t)
        print(f"{model:6} {t['two']*1e3:9.2f}ms {t['one']*1e3:9.2f}ms {t['ddp']*1e3:9.2f}ms"
              f" {t['two']/t['ddp']:9.3f} {t['one']/t['ddp']:9.3f}", flush=True)
    for name in ("two", "one"):
        mean = math.exp(statistics.mean(math.log(t[name] / t["ddp"]) for t in rows))
        print(f"geometric mean, {name} to DDP: {mean:.3f}")
    if args.output:
        with open(args.output, "w") as f:
            json.dump(rows, f, indent=1)


main()
