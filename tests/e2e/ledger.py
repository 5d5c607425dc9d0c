#!/usr/bin/env python3
"""Every sample exactly once in each pass, for every format that is read by blocks, seen in the weights; and how many bytes are
read for it.

    tests/e2e/ledger.py [--bin build/release/bin] [--formats tfrecord,csv,...] [--sizes 265,1005] [--workers 1,2] [--passes 3]
                        [--only counts|bytes] [--faults kill:3,join:1]

counts    Sample i is a vector of zeros with a one at i, the model is one linear layer that begins with zeros, and the loss
          (w x - 1)^2: each use of sample i moves weight i, and no other, by nearly the same amount. So the weights say how often
          each sample was used. The numbers of samples are odd, batches go across the borders of passes, lanes are unequal, files
          are uneven (one has a single sample), and the last batch is short. The ledger, which the product makes of the samples'
          numbers, must be the same for all numbers of workers. libsvm has ids and no vectors: its ledger must be that of a csv
          whose lines have the same lengths, and which is therefore cut at the same places.
bytes     From an HTTP server that counts: bytes sent over bytes of data, in each pass, with K >= 20 w L blocks (docs/data.md).
          At most 1.05. The index is made before and not counted, and all blocks that the next steps do not need are dropped.

With --faults the counts are those of a run with `muster verify` and these faults, on four workers, which has more passes (20).
"""
import argparse
import json
import os
import pathlib
import re
import struct
import subprocess
import sys
import tempfile
import time
from collections import Counter

import stores
from stream_data import FORMATS, NEEDS_PYARROW, SOURCE, newest_checkpoint, read_safetensors, write_safetensors
from streams import train

BATCH, LANES = 20, 3
MOVE = 1 / 1024  # of a weight by one use, about
JOB = """\
muster: 1
name: ledger
seed: 3
model: {{ layers: [{flatten}linear: {{ out: 1, bias: false }}], loss: mse{more} }}
data:
  train: {train}
  block: 4KiB
  window: 16KiB
batch: {batch}
lanes: {lanes}
passes: {passes}
optimizer: {{ kind: sgd, lr: {lr} }}
checkpoint: {{ every: never }}
"""
IDS_JOB = """\
muster: 1
name: ids
seed: 3
model: {{ zoo: deepfm, loss: click, args: {{ hidden: [4] }} }}
data:
  train: {{ format: libsvm, path: "{path}", read: blocks, args: {{ features: 1 }} }}
  block: 4KiB
  window: 16KiB
batch: {batch}
lanes: {lanes}
passes: {passes}
optimizer: {{ kind: sgd, lr: 0.01 }}
tables: {{ width: 2 }}
checkpoint: {{ every: never }}
"""
# A window for four blocks; no blocks but those that the next steps need.
BYTES_JOB = """\
muster: 1
name: bytes
model: {{ layers: [flatten, linear: {{ out: classes }}] }}
data:
  train: {train}
  block: 4KiB
  window: {window}
  memory: 4KiB
batch: 52
lanes: {lanes}
passes: {passes}
optimizer: {{ kind: sgd, lr: 0.01 }}
"""


def uneven(count):
    """Into files: a single sample in the second one."""
    if count < 4:
        return [count]
    first = count // 3
    return [first, 1, count - first - 1]


def unit_vectors(count):
    return [(bytes(255 if j == i else 0 for j in range(count)), 1) for i in range(count)]


def write_job(folder, name, flat, source, passes, more=""):
    path = os.path.join(folder, name)
    with open(path, "w") as f:
        f.write(JOB.format(flatten="" if flat else "flatten, ", train=source, batch=BATCH, lanes=LANES, passes=passes,
                           lr=BATCH * MOVE / 2, more=more))
    return path


def zeros(muster, job, folder):
    """A file with the model's weights, all zero."""
    run = os.path.join(folder, "first")
    train(muster, job, run, ["steps=1", "passes=0", "optimizer.lr=0"])
    tensors = read_safetensors(os.path.join(newest_checkpoint(run), "model.safetensors"))
    path = os.path.join(folder, "zeros.safetensors")
    write_safetensors(path, {name: (kind, shape, bytes(len(contents))) for name, (kind, shape, contents) in tensors.items()})
    return path


def uses(run, count):
    """How often each sample was used, by the weights. A use in the last batch, which is short, weighs more."""
    (kind, _, contents), = read_safetensors(os.path.join(newest_checkpoint(run), "model.safetensors")).values()
    assert kind == "F32" and len(contents) == 4 * count
    return [weight / MOVE for weight in struct.unpack(f"<{count}f", contents)]


def check_uses(name, found, passes):
    count = len(found)
    short = count * passes % BATCH
    # What a sample adds up to if it was never in the short batch, and if it was once.
    usual, once = passes, passes - 1 + (BATCH / short if short else 0)
    near = Counter()
    for number, amount in enumerate(found):
        kind = min((usual, once), key=lambda value: abs(amount - value))
        # Each use moves a weight a little less than the one before.
        if abs(amount - kind) > 0.02 * passes:
            sys.exit(f"{name}: sample {number} of {count} was used {amount:.3f} times in {passes} passes")
        near[kind] += 1
    if short and once != usual and near[once] != short:
        sys.exit(f"{name}: {near[once]} samples in the last batch, which has {short}")


def check_counts(args, muster, name, count, folder):
    kind = FORMATS[name]
    folder = os.path.join(folder, f"{name}-{count}")
    path = kind.write_files(os.path.join(folder, "data"), "train", unit_vectors(count), uneven(count))
    flat = not kind.scaled
    source = kind.source(path, (1, 1, count), ", target: value")
    start = zeros(muster, write_job(folder, "first.yaml", flat, source, args.passes), folder)
    job = write_job(folder, "job.yaml", flat, source, args.passes, f", init_from: {start}")
    ledgers = set()
    for workers in map(int, args.workers.split(",")):
        run = os.path.join(folder, f"workers-{workers}")
        result = train(muster, job, run, [], ["--workers", str(workers)] if workers > 1 else [])
        check_uses(f"{name}, {workers} workers", uses(run, count), args.passes)
        ledgers.add(result["ledger"])
    if len(ledgers) != 1:
        sys.exit(f"{name}: the ledgers differ: {ledgers}")
    facts = json.loads(subprocess.run([muster, "data", "info", job, "-o", "json"], check=True, capture_output=True,
                                      text=True).stdout)[0]
    print(f"{name}: {count} samples in {facts['blocks']} blocks of {facts['files']} files, each once in each of {args.passes} "
          f"passes, {args.workers} workers", flush=True)
    return job


def check_faults(args, muster, job, name, count, folder):
    """The run with faults of verify."""
    passes = 20
    both = os.path.join(folder, f"verify-{name}")
    done = subprocess.run([muster, "verify", job, "-o", "json", "--folder", both, "--workers", "4", "--faults", args.faults,
                           "-s", f"passes={passes}"], stdout=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit(f"{name}: verify ended with {done.returncode}: {done.stdout[:1000]}")
    check_uses(f"{name}, with faults", uses(os.path.join(both, "disturbed"), count), passes)
    print(f"{name}: {count} samples, each once in each of {passes} passes, with faults {args.faults}", flush=True)


def check_ids(args, muster, count, folder):
    """libsvm, beside a csv with lines of the same length."""
    folder = os.path.join(folder, f"libsvm-{count}")
    os.makedirs(folder)
    ledgers = []
    parts = uneven(count)
    for kind, line in (("libsvm", "{label} {number:06d}\n"), ("csv", "{number:06d},{label}\n")):
        number = 0
        for part, size in enumerate(parts):
            with open(os.path.join(folder, f"{kind}-{part}.txt"), "w") as f:
                for _ in range(size):
                    f.write(line.format(number=number, label=number % 2))
                    number += 1
        path = os.path.join(folder, f"{kind}-*.txt")
        job = os.path.join(folder, f"{kind}.yaml")
        if kind == "libsvm":
            with open(job, "w") as f:
                f.write(IDS_JOB.format(path=path, batch=BATCH, lanes=LANES, passes=args.passes))
        else:
            source = FORMATS["csv"].source(path, (), ", target: value, deviation: 1000000")
            write_job(folder, f"{kind}.yaml", True, source, args.passes)
        ledgers.append(train(muster, job, os.path.join(folder, kind))["ledger"])
    if ledgers[0] != ledgers[1]:
        sys.exit(f"libsvm: the ledger {ledgers[0]}, of the csv {ledgers[1]}")
    print(f"libsvm: {count} samples, the ledger of the csv", flush=True)


def sent_twice(run, workers):
    """Requests that the workers of a run repeated because an answer was late or lost, by their logs."""
    counts = []
    for log in pathlib.Path(run).rglob("*"):
        if log.is_file() and log.suffix in (".txt", ".log", ".err"):
            said = re.findall(r"store of the data: ([\d,]+) requests? repeated, ([\d,]+) sent twice", log.read_text(errors="replace"))
            if said:
                counts.append(sum(int(number.replace(",", "")) for number in said[-1]))
    if len(counts) < workers:
        sys.exit(f"{len(counts)} of {workers} workers logged what they fetched")
    return sum(counts)


def check_bytes(args, muster, workers, folder):
    """Bytes over bytes. Lanes share the blocks at the borders of their parts, w L of them in a pass: with several workers 1 / 20
    more at K = 20 w L. What is read when a worker starts, and when it takes lanes over from one that started before it, comes on
    top: so 24 w L, and many passes. Late requests that were sent twice do not count: how many there are depends on the machine."""
    passes = 4 * args.passes
    lanes, tracks, each = 8, 4, 4  # samples of about 1 KB, four in a block
    blocks = 24 * tracks * lanes
    kind = FORMATS["tfrecord"]
    folder = os.path.join(folder, f"bytes-{workers}")
    samples = [(bytes((i * 31 + j) % 256 for j in range(960)), i % 10) for i in range(blocks * each)]
    kind.write_files(os.path.join(folder, "data"), "train", samples, [len(samples)])
    with stores.EndlessServer(os.path.join(folder, "data", "train-000.tfrecord")) as server:
        job = os.path.join(folder, "job.yaml")
        with open(job, "w") as f:
            f.write(BYTES_JOB.format(train=kind.source(server.url("train.tfrecord"), (1, 1, 960), ", classes: 10"),
                                     window=tracks * 4400, lanes=lanes, passes=passes))
        index = os.path.join(folder, "index")
        subprocess.run([muster, "data", "index", job, "--out", index], check=True, stdout=subprocess.DEVNULL,
                       stderr=subprocess.DEVNULL)
        facts = json.loads(subprocess.run([muster, "data", "info", job, "-s", f"data.index={index}", "-o", "json"], check=True,
                                          capture_output=True, text=True).stdout)[0]
        if facts["blocks"] < 20 * facts["blocks_of_a_lane"] * lanes:
            sys.exit(f"{facts['blocks']} blocks are not 20 w L: w is {facts['blocks_of_a_lane']}")
        server.counts()
        run = os.path.join(folder, "run")
        train(muster, job, run, [f"data.index={index}", "workers.move_lanes=false"],
              ["--workers", str(workers)] if workers > 1 else [])
        counts = server.counts()
        twice = sent_twice(run, workers)
        ratio = (counts["bytes"] - twice * facts["bytes"] / facts["blocks"]) / (facts["bytes"] * passes)
        print(f"bytes read over bytes of data: {ratio:.4f}, {counts['requests']} requests in {passes} passes, {twice} of them "
              f"sent twice, {workers} workers; K = {facts['blocks']}, w = {facts['blocks_of_a_lane']}, L = {lanes}", flush=True)
        if ratio > 1.05:
            sys.exit("more than 1.05")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", default=os.environ.get("MUSTER_BIN_DIR", os.path.join(SOURCE, "build/release/bin")))
    parser.add_argument("--formats", default=",".join(name for name in FORMATS if not name.endswith(".png") and name not in NEEDS_PYARROW))
    parser.add_argument("--sizes", default="265,1005", help="numbers of samples")
    parser.add_argument("--workers", default="1,2")
    parser.add_argument("--passes", type=int, default=3)
    parser.add_argument("--faults", help="for `muster verify`")
    parser.add_argument("--only", choices=("counts", "bytes"))
    args = parser.parse_args()
    muster = os.path.join(args.bin, "muster")
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="muster-ledger-") as folder:
        for count in map(int, args.sizes.split(",") if args.only != "bytes" else ()):
            for name in args.formats.split(","):
                job = check_counts(args, muster, name, count, folder)
                if args.faults:
                    check_faults(args, muster, job, name, count, folder)
            check_ids(args, muster, count, folder)
        for workers in map(int, args.workers.split(",") if args.only != "counts" else ()):
            check_bytes(args, muster, workers, folder)
    print(f"exactly once, {time.monotonic() - started:.0f} s")


if __name__ == "__main__":
    main()
