#!/usr/bin/env python3
"""ddp_loop.py that can be killed: it goes on from its snapshot, as PyTorch's tutorial on torchrun says to write it.

    torchrun --standalone --nproc-per-node N --max-restarts 100 bench/ddp_resume.py MODEL BATCH EVERY FOLDER

BATCH is that of all processes together. Every step is written to a file in FOLDER, where the snapshot is too: made by
rank 0 every so many steps (0: never), a copy beside the old one that then takes its name. It trains until it is ended.
"""
import itertools
import os
import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import bare_loop
from processes import StepWriter


def main():
    kind, batch, every, folder = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
    torch.set_num_threads(1)
    torch.manual_seed(1)
    dist.init_process_group("gloo")
    rank, own = dist.get_rank(), batch // dist.get_world_size()
    net, inputs, targets, optimizer = bare_loop.build(kind)
    copies = -(-own // len(inputs))  # a batch may be larger than the data, which is random anyway
    inputs, targets = torch.cat([inputs] * copies), torch.cat([targets] * copies)
    snapshot, first = os.path.join(folder, "snapshot.pt"), 0
    if os.path.exists(snapshot):
        saved = torch.load(snapshot)
        net.load_state_dict(saved["net"])
        optimizer.load_state_dict(saved["optimizer"])
        first = saved["step"]
    net = DistributedDataParallel(net)
    writer = StepWriter(folder, rank=rank, life=int(os.environ.get("TORCHELASTIC_RESTART_COUNT", 0)))
    for step in itertools.count(first):
        at = (step * batch + rank * own) % (len(inputs) - own + 1)
        bare_loop.train_step(kind, net, optimizer, inputs[at:at + own], targets[at:at + own])
        writer.note(step + 1)
        if rank == 0 and every and (step + 1) % every == 0:
            torch.save({"net": net.module.state_dict(), "optimizer": optimizer.state_dict(), "step": step + 1},
                       snapshot + ".new")
            os.replace(snapshot + ".new", snapshot)


main()
