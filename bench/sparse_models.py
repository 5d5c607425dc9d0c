#!/usr/bin/env python3
"""Samples a second of the same dlrm (examples/dlrm-synthetic.yaml) in Muster and in PyTorch (sparse_loop.py), all on this machine.

    bench/sparse_models.py --python /path/with/torch/bin/python [--bin build/release/bin] [--quick] [--rounds 5] [--steps N]
                           [--rows 1000000,10000000] [--batches 256,4096] [--optimizers adam,adagrad]
                           [--only "PyTorch DDP"]... [-o json|FILE.json]

PyTorch, 1 process        one thread or two
PyTorch DDP               two processes of one thread, Gloo
PyTorch RPC               two trainers and a parameter server (torch.distributed.rpc), of one thread each; asynchronous
Muster, own rows          one worker with two threads, the rows in its memory
Muster, 1 server          two workers of one thread, one server, one copy of each row
Muster, 2 servers         two workers of one thread, two servers, two copies of each row
Muster, async             two workers of one thread, one server, one copy, `sync.strategy: server`

Whole runs take turns, in changing order. The figure is the median over the rounds of batch times steps by seconds, of the steps after
the first 20. The ratio is to the line that is named beside it: the median over the rounds of the ratio within a round.

optimizers: those of the rows, SparseAdam and Adagrad in PyTorch; the dense layers have adam (PyTorch's with fused=True). rows: of
all eight features together. PyTorch has them in one EmbeddingBag or in one for each feature; a short run of each decides (and, with
one process, of one thread and of two), and the line says which it was. In PyTorch all rows are there from the beginning; Muster makes
a row when its first gradient comes. PyTorch has its samples in memory before the clock starts; Muster computes them meanwhile.

Each run is checked: the loss has to fall, and the processes of PyTorch have to have the same dense weights (with DDP also rows).
--quick: 1,000,000 rows, a batch of 4,096, adagrad, one round of 60 steps; it shows that all of them work, and no more.
"""
import argparse
import itertools
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile

import processes
from step_time import HERE, SOURCE, put_out

JOB = os.path.join(SOURCE, "examples/dlrm-synthetic.yaml")
WARM_UP = 20
TRIAL = 40  # steps of the run that chooses, and of any at least: asynchronous training writes down every 16th
LIMIT = 900  # seconds of a run
LR = {"adam": 0.002, "adagrad": 0.05}  # of the rows
ASYNC = ["sync.strategy=server", "sync.mode=async"]
PYTORCH = {
    "PyTorch, 1 process": dict(way="one", processes=1, threads=(1, 2)),
    "PyTorch DDP": dict(way="ddp", processes=2, threads=(1,)),
    "PyTorch RPC": dict(way="rpc", processes=3, threads=(1,)),
}
# With what the ratio is made; workers, servers, and what else is set.
MUSTER = {
    "Muster, own rows": dict(to="PyTorch, 1 process", workers=1, servers=1, threads=2, sets=[]),
    "Muster, 1 server": dict(to="PyTorch DDP", workers=2, servers=1, threads=1, sets=[]),
    "Muster, 2 servers": dict(to="PyTorch DDP", workers=2, servers=2, threads=1, sets=[]),
    "Muster, async": dict(to="PyTorch RPC", workers=2, servers=1, threads=1, sets=ASYNC),
}


def say(text):
    print(text, file=sys.stderr, flush=True)


def learned(losses):
    return all(math.isfinite(loss) for loss in losses) and losses[-1] < losses[0]


def how_chosen(choice):
    embedding, threads = choice
    return ("one EmbeddingBag" if embedding == "one" else "an EmbeddingBag for each feature") + (", 2 threads" if threads > 1 else "")


class Case:
    """One number of rows, batch and optimizer."""

    def __init__(self, args, rows, batch, optimizer, folder):
        self.args, self.rows, self.batch, self.optimizer, self.folder = args, rows, batch, optimizer, folder
        self.steps = args.steps or (300 if batch < 1024 else 100)
        self.data = os.path.join(folder, f"{rows}-{batch}.npz")
        self.chosen = {}  # how the rows are kept and how many threads there are, by who
        self.failed = {}  # why, by who
        if args.python and not os.path.exists(self.data):
            code = "import sys, sparse_loop; sparse_loop.draw_data(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))"
            subprocess.run([args.python, "-B", "-c", code, self.data, str(max(self.steps, TRIAL) * batch), str(rows)], check=True,
                           cwd=HERE)

    def pytorch(self, who, embedding, threads, steps):
        """Samples a second. Raises RuntimeError with the reason."""
        setting = PYTORCH[who]
        options = dict(way=setting["way"], batch=self.batch, steps=steps, rows=self.rows, optimizer=self.optimizer, lr=LR[self.optimizer],
                       embedding=embedding, data=self.data, threads=threads, meeting=tempfile.mktemp(dir=self.folder))
        count = str(threads)
        try:
            done = subprocess.run([self.args.python, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node",
                                   str(setting["processes"]), os.path.join(HERE, "sparse_loop.py"), json.dumps(options)],
                                  capture_output=True, text=True, timeout=LIMIT,
                                  env={**os.environ, "OMP_NUM_THREADS": count, "MKL_NUM_THREADS": count})
        except subprocess.TimeoutExpired:
            processes.end_all()
            raise RuntimeError(f"not done after {LIMIT} s") from None
        if done.returncode != 0:
            errors = [line for line in done.stderr.splitlines() if "Error" in line]
            raise RuntimeError((errors or done.stderr.splitlines() or ["it says nothing"])[0])
        result = json.loads(done.stdout.strip().splitlines()[-1])
        if not learned(result["losses"]):
            raise RuntimeError(f"the loss does not fall: {result['losses']}")
        return self.batch * (steps - WARM_UP) / sum(result["times"][WARM_UP:])

    def choose(self, who):
        """What is fastest."""
        speeds = {}
        for choice in itertools.product(("one", "each"), PYTORCH[who]["threads"]):
            try:
                speeds[choice] = self.pytorch(who, *choice, TRIAL)
            except RuntimeError as reason:
                self.failed[who] = str(reason)
                return
        self.chosen[who] = max(speeds, key=speeds.get)
        say(f"  {who}: " + ", ".join(f"{how_chosen(choice)} {speed:,.0f}" for choice, speed in speeds.items()))

    def muster(self, who):
        """Samples a second."""
        setting = MUSTER[who]
        run = tempfile.mkdtemp(dir=self.folder)
        servers = setting["servers"]
        sets = ["passes=0", f"steps={self.steps}", f"batch={self.batch}", "lanes=2", f"threads={setting['threads']}",
                f"data.train.args.samples={self.steps * self.batch}", "eval.every=never", "eval.samples=1000", "checkpoint.every=0",
                "track.every=1 steps", "track.tensorboard=false", f"tables.optimizer={self.optimizer}", f"tables.lr={LR[self.optimizer]}",
                "tables.shards=16", f"tables.servers={servers}", f"tables.copies={min(servers, 2)}", *setting["sets"]]
        sets += [f"data.{part}.args.ids={self.rows // 8}" for part in ("train", "test")]
        words = ["--workers", str(setting["workers"])] if setting["workers"] > 1 else []
        log = run + ".log"
        process = processes.start([os.path.join(self.args.bin, "muster"), "train", JOB, "--quiet", "--run-dir", run, *words,
                                   *(word for one in sets for word in ("-s", one))], log)
        try:
            process.wait(LIMIT)
        except subprocess.TimeoutExpired:
            sys.exit(f"sparse_models: {who}: not done after {LIMIT} s: {processes.last_words(os.path.join(run, 'launch.log'))}")
        if process.returncode != 0:
            sys.exit(f"sparse_models: {who}: {processes.last_words(log)}")
        with open(os.path.join(run, "metrics.jsonl")) as file:
            records = [record for record in map(json.loads, file) if "time" in record]
        losses = [record["loss"] for record in records]
        few = max(1, len(losses) // 10)
        if not learned([statistics.mean(losses[:few]), statistics.mean(losses[-few:])]):
            sys.exit(f"sparse_models: {who}: the loss does not fall: {losses}")
        timed = [record for record in records if record["step"] >= WARM_UP]
        return self.batch * (timed[-1]["step"] - timed[0]["step"]) / (timed[-1]["time"] - timed[0]["time"])

    def run(self, who):
        """Samples a second; None: it fails."""
        if who in MUSTER:
            return self.muster(who)
        if who in self.failed:
            return None
        try:
            return self.pytorch(who, *self.chosen[who], self.steps)
        except RuntimeError as reason:
            self.failed[who] = str(reason)
            return None


def measure(case, names):
    """A row for each name."""
    for who in names:
        if who in PYTORCH:
            case.choose(who)
    speeds = {who: [] for who in names}
    for number in range(case.args.rounds):
        for who in (names if number % 2 == 0 else reversed(names)):
            speeds[who].append(case.run(who))
            say(f"  {who}: " + ("failed" if speeds[who][-1] is None else f"{speeds[who][-1]:,.0f}"))
    rows = []
    for who in names:
        row = dict(rows=case.rows, batch=case.batch, optimizer=case.optimizer, who=who)
        if who in case.chosen:
            row["how"] = how_chosen(case.chosen[who])
        if who in case.failed:
            rows.append(dict(row, failed=case.failed[who]))
            continue
        to = MUSTER[who]["to"] if who in MUSTER else None
        ratio = None
        if to in names and to not in case.failed:
            ratio = statistics.median(ours / theirs for ours, theirs in zip(speeds[who], speeds[to]))
        rows.append(dict(row, speed=statistics.median(speeds[who]), all=speeds[who], ratio=ratio, to=to if ratio else None))
    return rows


def table(rows):
    print("| rows | batch | optimizer | | samples/s | from, to | ratio |")
    print("|---|---|---|---|---|---|---|")
    for r in rows:
        who = r["who"] + (f" ({r['how']})" if "how" in r else "")
        line = f"| {r['rows']:,} | {r['batch']:,} | {r['optimizer']} | {who} |"
        if "failed" in r:
            print(f"{line} failed: {r['failed']} | | |")
            continue
        ratio = f"{r['ratio']:.2f} of {r['to']}" if r["ratio"] else ""
        print(f"{line} {r['speed']:,.0f} | {min(r['all']):,.0f}, {max(r['all']):,.0f} | {ratio} |")


def numbers(text):
    return [int(word) for word in text.split(",")]


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", default="", help="a Python that has torch and numpy; without it only Muster is measured")
    parser.add_argument("--bin", default=os.environ.get("MUSTER_BIN_DIR", os.path.join(SOURCE, "build/release/bin")))
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--steps", type=int, help="default: 300, and 100 of batches of 1,024 and more")
    parser.add_argument("--rows", type=numbers)
    parser.add_argument("--batches", type=numbers)
    parser.add_argument("--optimizers", type=lambda text: text.split(","))
    parser.add_argument("--only", action="append", help="a line of the list above; may be repeated")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("-o", "--output", help="json: instead of the table; or a file for it")
    args = parser.parse_args()
    quick = args.quick
    args.rounds = args.rounds or (1 if quick else 5)
    args.steps = args.steps or (60 if quick else None)
    args.rows = args.rows or ([1_000_000] if quick else [1_000_000, 10_000_000])
    args.batches = args.batches or ([4096] if quick else [256, 4096])
    args.optimizers = args.optimizers or (["adagrad"] if quick else ["adam", "adagrad"])
    known = [*PYTORCH, *MUSTER]
    if unknown := set(args.only or []) - set(known) | set(args.optimizers) - set(LR):
        parser.error(f"unknown: {', '.join(sorted(unknown))}; there are {'; '.join(known)}, and the optimizers {', '.join(LR)}")
    if args.steps and args.steps < TRIAL:
        parser.error(f"--steps must be {TRIAL} or more: the first {WARM_UP} are not counted")
    if args.python and subprocess.run([args.python, "-c", "import numpy, torch"], stderr=subprocess.DEVNULL).returncode != 0:
        parser.error(f"{args.python} has no numpy or no torch")
    return args


def main():
    args = parse()
    processes.own_all()
    names = [who for who in (args.only or [*PYTORCH, *MUSTER]) if args.python or who in MUSTER]
    results = []
    with tempfile.TemporaryDirectory(prefix="muster-sparse-", ignore_cleanup_errors=True) as folder:
        for rows in args.rows:
            for batch in args.batches:
                for optimizer in args.optimizers:
                    say(f"{rows:,} rows, batch {batch:,}, {optimizer}:")
                    results += measure(Case(args, rows, batch, optimizer, folder), names)
    put_out(results, args.output, table)


if __name__ == "__main__":
    main()
