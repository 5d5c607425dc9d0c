#!/usr/bin/env python3
"""Predictions for a million samples by four workers, with ten kills: each sample once and in order, and the bytes that
one undisturbed worker writes.

    predict.py [--samples 1000000] [--parquet-samples 200000] [--workers 4] [--kills 10] [--seed 1] [--bin build/release/bin]

Eight of ten kills hit a worker (SIGKILL) at a random moment; of the others, one hits muster itself and one is Ctrl-C, after
which the same command continues. Prints a line per kill and the time of each run. Not part of CI: minutes on two cores.

The same for Parquet, of predictions and of features, with fewer samples; --samples 0 does only this. Left out where the
plugin that writes it was not built (scripts/fetch_arrow.sh). With pyarrow, what it reads is compared with the CSV file.
"""
import argparse
import importlib.util
import json
import os
import random
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time

JOB = """
muster: 1
name: million
seed: 5
model: { layers: [ linear: { out: 64 }, relu, linear: { out: 3 } ] }
data: { train: { format: csv, path: "train-*.csv", classes: 3 } }
batch: 64
lanes: 4
passes: 2
optimizer: { kind: sgd, lr: 0.1, momentum: 0.9 }
"""

FILES = 40  # a part has one block of the data at least: enough of them for the kills


def write_rows(path, count, draw):
    with open(path, "w") as file:
        file.write("a,b,c,class\n")
        for _ in range(count):
            row = [draw.gauss(0, 1) for _ in range(3)]
            file.write(f"{row[0]:.6f},{row[1]:.6f},{row[2]:.6f},{row.index(max(row))}\n")


def children(pid):
    try:
        with open(f"/proc/{pid}/task/{pid}/children") as file:
            return [int(child) for child in file.read().split()]
    except OSError:
        return []


def parts_done(out):
    try:
        return sum(name.isdigit() for name in os.listdir(f"{out}.parts/done"))
    except FileNotFoundError:
        return 0


def write_files(name, samples, draw):
    for number in range(FILES):
        count = (samples * (number + 1)) // FILES - (samples * number) // FILES
        write_rows(f"{name}-{number:02d}.csv", count, draw)


def command(args, out, workers, data="new", more=()):
    return [os.path.join(args.bin, "muster"), "predict", "latest", "--data", f"{data}-*.csv", "--out", out, "--workers",
            str(workers), "-s", f"eval.batch={args.batch}", *more]


def run_with_kills(args, out, parts, draw, data="new", more=()):
    """Kills at moments spread over the work, continuing each time."""
    words = command(args, out, args.workers, data, more)
    at = sorted(draw.sample(range(1, max(parts - args.workers, args.kills + 2)), args.kills))
    kinds = ["worker"] * args.kills
    for place, kind in zip(draw.sample(range(args.kills), min(2, args.kills)), ("muster", "Ctrl-C")):
        kinds[place] = kind
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL)
    for count, kind in zip(at, kinds):
        while parts_done(out) < count and process.poll() is None:
            time.sleep(0.002)
        if process.poll() is not None:
            sys.exit(f"predict: it ended with {process.returncode} before all kills were done")
        if kind == "worker":
            workers = children(process.pid)
            if workers:
                os.kill(draw.choice(workers), signal.SIGKILL)
        else:
            process.send_signal(signal.SIGKILL if kind == "muster" else signal.SIGINT)
            process.wait()
            process = subprocess.Popen(words, stdout=subprocess.DEVNULL)
        print(f"killed: {kind:6} with {parts_done(out)} of {parts} parts done", flush=True)
    if process.wait() != 0:
        sys.exit(f"predict: exit code {process.returncode}")


def count_parts(args, data="new"):
    """How many parts these samples are cut into: asks a run that is ended as soon as it has said so."""
    process = subprocess.Popen(command(args, "count.csv", 1, data), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    plan = "count.csv.parts/plan.json"
    while not os.path.exists(plan) and process.poll() is None:
        time.sleep(0.01)
    with open(plan) as file:
        borders = json.load(file)["borders"]
    process.send_signal(signal.SIGINT)
    process.wait()
    shutil.rmtree("count.csv.parts", ignore_errors=True)
    return len(borders) - 1


def read_bytes(name):
    with open(name, "rb") as file:
        return file.read()


def compare(name, expected):
    if read_bytes(name) != expected:
        sys.exit(f"predict: {name} differs from what one worker wrote")
    if os.path.exists(f"{name}.parts"):
        sys.exit(f"predict: {name}.parts is left")


def compare_with_csv(name, samples):
    """What pyarrow reads, with the CSV file beside it."""
    import pyarrow.parquet
    table = pyarrow.parquet.read_table(f"{name}.parquet")
    with open(f"{name}.csv") as file:
        header, *lines = file.read().splitlines()
    columns = list(zip(*(line.split(",") for line in lines)))
    if table.num_rows != samples or len(lines) != samples:
        sys.exit(f"predict: {name}.parquet has {table.num_rows} rows, {name}.csv {len(lines)} lines, for {samples} samples")
    found = []
    for column in table.columns:
        if hasattr(column.type, "list_size"):
            found += zip(*column.to_pylist())
        else:
            found.append(column.to_pylist())
    if len(found) != len(columns) or len(columns) != len(header.split(",")):
        sys.exit(f"predict: {name}.parquet and {name}.csv do not have the same columns")
    for numbers, texts in zip(found, columns):
        for number, text in zip(numbers, texts):
            # As a float of 32 bits: the text is the shortest that reads back as it.
            same = number == int(text) if isinstance(number, int) else struct.pack("f", number) == struct.pack("f", float(text))
            if not same:
                sys.exit(f"predict: {number} in {name}.parquet is {text} in {name}.csv")
    print(f"{name}.parquet, read by pyarrow: the numbers of {name}.csv", flush=True)


def run_parquet(args, draw):
    plugin = os.path.join(os.path.dirname(args.bin), "lib/muster/libmuster_arrow.so")
    if not os.path.exists(plugin):
        print(f"without Parquet: there is no {plugin}", flush=True)
        return
    write_files("few", args.parquet_samples, draw)
    # Smaller batches: fewer samples must take long enough to be hit.
    args = argparse.Namespace(**{**vars(args), "batch": max(1, args.batch // 4)})
    parts = count_parts(args, "few")
    for what, more in (("classes", ()), ("features", ("--layer", "0"))):
        for out in (f"{what}.csv", f"{what}.parquet"):
            subprocess.run(command(args, out, 1, "few", more), check=True)
        expected = read_bytes(f"{what}.parquet")
        calm, killed = f"{what}-calm.parquet", f"{what}-killed.parquet"
        subprocess.run(command(args, calm, args.workers, "few", more), check=True)
        compare(calm, expected)
        run_with_kills(args, killed, parts, draw, "few", more)
        compare(killed, expected)
        print(f"equal: {what} of {args.parquet_samples} samples, {len(expected)} bytes of Parquet, {args.kills} kills", flush=True)
        if importlib.util.find_spec("pyarrow"):
            compare_with_csv(what, args.parquet_samples)
        else:
            print("without pyarrow: the numbers are not compared with those of the CSV file", flush=True)


def run_csv(args, draw):
    write_files("new", args.samples, draw)
    begin = time.monotonic()
    subprocess.run(command(args, "alone.csv", 1), check=True)
    print(f"one worker: {time.monotonic() - begin:.1f} s", flush=True)
    with open("alone.csv") as file:
        samples = [int(line.partition(",")[0]) for line in list(file)[1:]]
    if samples != list(range(args.samples)):
        sys.exit("predict: not each sample once and in order")
    begin = time.monotonic()
    subprocess.run(command(args, "calm.csv", args.workers), check=True)
    print(f"{args.workers} workers: {time.monotonic() - begin:.1f} s", flush=True)
    parts = count_parts(args)
    begin = time.monotonic()
    run_with_kills(args, "killed.csv", parts, draw)
    print(f"{args.workers} workers, {args.kills} kills: {time.monotonic() - begin:.1f} s", flush=True)
    expected = read_bytes("alone.csv")
    for name in ("calm.csv", "killed.csv"):
        compare(name, expected)
    print(f"equal: {args.samples} samples, {len(expected)} bytes, {args.kills} kills", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=1_000_000)
    parser.add_argument("--parquet-samples", type=int, default=200_000)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--batch", type=int, default=16, help="eval.batch; small: slow enough to be hit")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--bin", default=os.environ.get("MUSTER_BIN_DIR", "build/release/bin"))
    args = parser.parse_args()
    args.bin = os.path.abspath(args.bin)
    draw = random.Random(args.seed)
    with tempfile.TemporaryDirectory(prefix="muster-predict-") as folder:
        os.chdir(folder)
        write_rows("train-0.csv", 2000, draw)
        with open("job.yaml", "w") as file:
            file.write(JOB)
        subprocess.run([os.path.join(args.bin, "muster"), "train", "job.yaml", "--quiet"], check=True)
        if args.samples > 0:
            run_csv(args, draw)
        run_parquet(args, draw)


if __name__ == "__main__":
    main()
