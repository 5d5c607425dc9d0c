"""LeNet in PyTorch on data that is sorted by class, in a random order or in MosaicML's py1e; for bench/stream_quality.py.

    stream_py1e.py FOLDER TEST full|py1e SEED PASSES SHARD BLOCK

FOLDER has images.gz and labels.gz, the sorted training data as IDX; TEST has the test data. SHARD: samples of a shard; BLOCK: samples
of a shuffle block. Prints {"accuracy": 0.9}. Needs torch, numpy and, for py1e, mosaicml-streaming.
"""
import gzip
import json
import math
import sys

import numpy
import torch
import torch.nn.functional as F
from torch import nn

BATCH, LR, WARMUP, MEAN, DEVIATION = 128, 0.02, 50, 0.2860, 0.3530


class Lenet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 20, 5), nn.Conv2d(20, 50, 5)
        self.fc1, self.fc2 = nn.Linear(800, 500), nn.Linear(500, 10)

    def forward(self, x):
        x = F.relu(F.max_pool2d(self.conv1(x), 2))
        x = F.relu(F.max_pool2d(self.conv2(x), 2))
        return self.fc2(F.relu(self.fc1(x.flatten(1))))


def read(images, labels):
    with gzip.open(images) as f:
        pixels = torch.frombuffer(bytearray(f.read()[16:]), dtype=torch.uint8).view(-1, 1, 28, 28)
    with gzip.open(labels) as f:
        return pixels, torch.frombuffer(bytearray(f.read()[8:]), dtype=torch.uint8).long()


def scaled(pixels):
    return (pixels.float() / 255 - MEAN) / DEVIATION


def order_of(kind, count, seed, number, shard, block):
    if kind == "full":
        return numpy.random.default_rng([seed, number]).permutation(count)
    from streaming.base.shuffle import get_shuffle
    sizes = numpy.full(math.ceil(count / shard), shard, numpy.int64)
    sizes[-1] = count - shard * (len(sizes) - 1)
    return get_shuffle("py1e", sizes, 1, seed, number, block)


def main():
    folder, test, kind, seed, passes, shard, block = sys.argv[1:]
    seed, passes, shard, block = int(seed), float(passes), int(shard), int(block)
    torch.manual_seed(seed)
    pixels, labels = read(f"{folder}/images.gz", f"{folder}/labels.gz")
    count = len(labels)
    stream = numpy.concatenate([order_of(kind, count, seed, number, shard, block) for number in range(math.ceil(passes))])
    stream = torch.from_numpy(stream[:int(passes * count)].copy())
    net = Lenet()
    optimizer = torch.optim.SGD(net.parameters(), LR, momentum=0.9)
    steps = math.ceil(len(stream) / BATCH)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1, (step + 1) / WARMUP) * (
        1 if step < WARMUP else 0.5 * (1 + math.cos(math.pi * (step - WARMUP) / max(1, steps - WARMUP)))))
    for step in range(steps):
        chosen = stream[step * BATCH:(step + 1) * BATCH]
        optimizer.zero_grad()
        F.cross_entropy(net(scaled(pixels[chosen])), labels[chosen]).backward()
        optimizer.step()
        schedule.step()
    pixels, labels = read(f"{test}/t10k-images-idx3-ubyte.gz", f"{test}/t10k-labels-idx1-ubyte.gz")
    with torch.no_grad():
        right = sum((net(scaled(pixels[i:i + 1000])).argmax(1) == labels[i:i + 1000]).sum().item() for i in range(0, len(labels), 1000))
    print(json.dumps({"accuracy": right / len(labels)}))


if __name__ == "__main__":
    main()
