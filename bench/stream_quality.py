"""The part quality of bench/streams.py: what an order costs in accuracy on data that is sorted by class, which is the worst case.

LeNet on Fashion-MNIST, sorted by class, with several seeds:
full        all in memory, any sample at any place: what the others are compared with
strata      the sorted TFRecord files, by blocks
shuffled    the same samples in files that were shuffled before, by blocks: with `muster data pack --shuffle` if this muster has it,
            else by this script; the first line says which
With --python, MosaicML's order py1e beside full, both in PyTorch with the same model, batch and schedule (stream_py1e.py): shards as
large as the blocks here, and a shuffle block as large as what all lanes mix.
"""
import gzip
import json
import os
import random
import statistics
import struct
import subprocess

import processes
from stream_tools import HERE, say, words_of, write_file
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
LANES = 8  # of the job
SCALING = "mean: 0.2860, deviation: 0.3530"


def write_idx(folder, samples):
    side = int(len(samples[0][0]) ** 0.5)
    for name, head, contents in (("images", struct.pack(">IIII", 0x803, len(samples), side, side), b"".join(p for p, _ in samples)),
                                 ("labels", struct.pack(">II", 0x801, len(samples)), bytes(label for _, label in samples))):
        with gzip.open(os.path.join(folder, f"{name}.gz"), "wb", compresslevel=1) as f:
            f.write(head + contents)


def pack(args, job, folder):
    """A source with the sorted files shuffled by the product; None if it cannot."""
    done = subprocess.run([os.path.join(args.bin, "muster"), "data", "pack", job, "--shuffle", "--block", args.block, "--out",
                           os.path.join(folder, "packed"), "-o", "json"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    if done.returncode != 0:
        return None
    options = json.loads(done.stdout)[0]["options"]
    return "{ " + ", ".join(f"{key}: {value}" for key, value in options.items()) + " }"


def in_torch(args, folder, data, order, seed, facts):
    """The same model, batch and schedule in PyTorch, with the samples in the order `full` or in MosaicML's py1e."""
    block = facts["samples"] // facts["blocks"]
    out = processes.run([args.python, os.path.join(HERE, "stream_py1e.py"), folder, str(data), order, seed, str(args.passes), str(block),
                         str(block * facts["blocks_of_a_lane"] * LANES)])
    return json.loads(out)["accuracy"]


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
    packed, how = pack(args, jobs["strata"], folder), "by muster data pack --shuffle"
    if packed is None:
        how = "by this script, because muster data pack failed"
        random.Random(1).shuffle(samples)
        packed = kind.source(kind.write_files(os.path.join(folder, "shuffled"), "train", samples, files), (1, 28, 28), options)
    jobs["shuffled"] = job("shuffled", packed)
    say(f"{len(samples):,} samples, {facts['blocks']} blocks, {facts['blocks_of_a_lane']} of a lane; shuffled {how}")
    found = {name: [] for name in jobs}
    for seed in args.seeds.split(","):
        for name, path in jobs.items():
            out = processes.run([os.path.join(args.bin, "muster"), "train", path, "--json", "--run-dir",
                                 os.path.join(folder, f"run-{name}-{seed}"), *words_of([f"seed={seed}"])])
            found[name].append(json.loads(out.strip().splitlines()[-1])["test"]["accuracy"])
    show(found, "full")
    if args.python:
        for name in ("torch, full", "torch, py1e"):
            found[name] = [in_torch(args, folder, data, name.split()[-1], seed, facts) for seed in args.seeds.split(",")]
        show({name: values for name, values in found.items() if name.startswith("torch")}, "torch, full")
    return [dict(part="quality", blocks=facts["blocks"], tracks=facts["blocks_of_a_lane"], how=how, **found)]


def show(found, reference):
    low, high = min(found[reference]), max(found[reference])
    for name, values in found.items():
        mean = statistics.mean(values)
        print(f"quality  {name}: {mean:.4f} ({' '.join(f'{value:.4f}' for value in values)}); from {reference} "
              f"{mean - statistics.mean(found[reference]):+.4f}, whose seeds spread over {high - low:.4f}", flush=True)
