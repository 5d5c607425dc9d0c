#!/usr/bin/env python3
"""bare_loop.py with DistributedDataParallel over Gloo, as its documentation says to write it.

    torchrun --nproc-per-node 2 bench/ddp_loop.py MODEL BATCH STEPS

BATCH is that of all processes together. Rank 0 prints the seconds of every step as JSON.
"""
import json
import sys
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import bare_loop


def main():
    kind, batch, steps = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    torch.set_num_threads(1)
    torch.manual_seed(1)
    dist.init_process_group("gloo")
    own = batch // dist.get_world_size()
    net, inputs, targets, optimizer = bare_loop.build(kind)
    net = DistributedDataParallel(net)
    times = []
    for step in range(steps):
        start = time.perf_counter()
        at = (step * batch) % (1024 - batch + 1) + dist.get_rank() * own
        bare_loop.train_step(kind, net, optimizer, inputs[at:at + own], targets[at:at + own])
        times.append(time.perf_counter() - start)
    if dist.get_rank() == 0:
        print(json.dumps(times), flush=True)
    dist.destroy_process_group()


main()
