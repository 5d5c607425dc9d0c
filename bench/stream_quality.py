"""The part quality of bench/streams.py: what an order costs in accuracy on data that is sorted by class, which is the worst case.

LeNet on Fashion-MNIST, sorted by class, with several seeds:
full        all in memory, any sample at any place: what the others are compared with
strata      the sorted TFRecord files, by blocks
shuffled    the same samples in files that were shuffled before, by blocks: with `muster data pack --shuffle` if this muster has it,
            else by this script; the line says which
"""
import gzip
import json
import os
import random
import statistics
import struct
import subprocess

import processes
from stream_tools import say, words_of, write_file
from stream_data import FORMATS, convert, shares
from stream_speed import idx_of

JOB = """\
muster: 1
name: quality
model: {{ zoo: lenet }}
data:
  train: {train}
  test: {{ format: idx, images: {data}/t10k-images-idx3-ubyte.gz, labels: {data}/t10k-labels-idx1-ubyte.gz, {scaling} }}
  block: {block}
batch: 128
lanes: 8
passes: {passes}
optimizer: {{ kind: sgd, lr: 0.02, momentum: 0.9, schedule: {{ kind: cosine, warmup: 50 }} }}
eval: {{ every: never }}
checkpoint: {{ every: never }}
"""
SCALING = "mean: 0.2860, deviation: 0.3530"


def write_idx(folder, samples):
    side = int(len(samples[0][0]) ** 0.5)
    for name, head, contents in (("images", struct.pack(">IIII", 0x803, len(samples), side, side), b"".join(p for p, _ in samples)),
                                 ("labels", struct.pack(">II", 0x801, len(samples)), bytes(label for _, label in samples))):
        with gzip.open(os.path.join(folder, f"{name}.gz"), "wb", compresslevel=1) as f:
            f.write(head + contents)


def pack(args, job, folder):
    """The sorted files, shuffled by the product; None if it cannot."""
    muster = os.path.join(args.bin, "muster")
    out = os.path.join(folder, "packed")
    if subprocess.run([muster, "data", "pack", "--help"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode != 0:
        return None
    done = subprocess.run([muster, "data", "pack", job, "--shuffle", "--format", "tfrecord", "--block", args.block, "--out", out])
    return os.path.join(out, "train", "*") if done.returncode == 0 else None


def quality(args, folder):
    data = idx_of(args, "fashion-mnist")
    samples = list(zip(convert.read_idx(data / "train-images-idx3-ubyte.gz"),
                       (label[0] for label in convert.read_idx(data / "train-labels-idx1-ubyte.gz"))))
    samples.sort(key=lambda sample: sample[1])
    write_idx(folder, samples)
    kind = FORMATS["tfrecord"]
    files = shares(len(samples), 8)
    options = f", classes: 10, {SCALING}"

    def job(name, source):
        return write_file(os.path.join(folder, f"{name}.yaml"),
                          JOB.format(train=source, data=data, scaling=SCALING, block=args.block, passes=args.passes))

    ordered = kind.write_files(os.path.join(folder, "sorted"), "train", samples, files)
    jobs = {"full": job("full", f"{{ format: idx, images: {folder}/images.gz, labels: {folder}/labels.gz, {SCALING} }}"),
            "strata": job("strata", kind.source(ordered, (1, 28, 28), options))}
    facts = json.loads(processes.run([os.path.join(args.bin, "muster"), "data", "info", jobs["strata"], "-o", "json"]))[0]
    packed, how = pack(args, jobs["strata"], folder), "muster data pack --shuffle"
    if packed is None:
        how = "by this script: this muster has no data pack"
        random.Random(1).shuffle(samples)
        packed = kind.write_files(os.path.join(folder, "shuffled"), "train", samples, files)
    jobs["shuffled"] = job("shuffled", kind.source(packed, (1, 28, 28), options))
    say(f"{len(samples):,} samples, {facts['blocks']} blocks, {facts['blocks_of_a_lane']} of a lane; shuffled {how}")
    found = {name: [] for name in jobs}
    for seed in args.seeds.split(","):
        for name, path in jobs.items():
            out = processes.run([os.path.join(args.bin, "muster"), "train", path, "--json", "--run-dir",
                                 os.path.join(folder, f"run-{name}-{seed}"), *words_of([f"seed={seed}"])])
            found[name].append(json.loads(out.strip().splitlines()[-1])["test"]["accuracy"])
    low, high = min(found["full"]), max(found["full"])
    for name, values in found.items():
        mean = statistics.mean(values)
        print(f"quality  {name}: {mean:.4f} ({' '.join(f'{value:.4f}' for value in values)}); from full "
              f"{mean - statistics.mean(found['full']):+.4f}, whose seeds spread over {high - low:.4f}", flush=True)
    return [dict(part="quality", blocks=facts["blocks"], tracks=facts["blocks_of_a_lane"], how=how, **found)]
