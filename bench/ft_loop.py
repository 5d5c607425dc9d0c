#!/usr/bin/env python3
"""bare_loop.py as one replica of torchft, as its example train_ddp.py has it: one process, Gloo.

    TORCHFT_LIGHTHOUSE=http://127.0.0.1:PORT bench/ft_loop.py MODEL BATCH FOLDER NAME

BATCH is that of this replica. Every committed step is written to a file in FOLDER, with how many replicas took part.
It trains until it is ended.
"""
import sys
from datetime import timedelta

import torch
import torch.distributed as dist
from torchft import DistributedDataParallel, Manager, Optimizer, ProcessGroupGloo

import bare_loop
from processes import StepWriter


def main():
    kind, batch, folder, name = sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4]
    torch.set_num_threads(1)
    torch.manual_seed(1)
    net, inputs, targets, optimizer = bare_loop.build(kind)

    def load(state):
        net.load_state_dict(state["net"])
        optimizer.load_state_dict(state["optimizer"])

    def save():
        return {"net": net.state_dict(), "optimizer": optimizer.state_dict()}

    # What torchrun would offer to a group of one.
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    manager = Manager(pg=ProcessGroupGloo(timeout=timedelta(seconds=5)), min_replica_size=1, load_state_dict=load,
                      state_dict=save, replica_id=name, timeout=timedelta(seconds=30), store_addr="127.0.0.1",
                      store_port=store.port, rank=0, world_size=1, hostname="127.0.0.1")
    wrapped = DistributedDataParallel(manager, net)
    guarded = Optimizer(manager, optimizer)
    writer = StepWriter(folder, name=name)
    before = manager.current_step()
    while True:
        at = (before * batch) % (1024 - batch + 1)
        bare_loop.train_step(kind, wrapped, guarded, inputs[at:at + batch], targets[at:at + batch])
        if manager.current_step() != before:  # else it was not committed, and is done again
            writer.note(manager.current_step(), replicas=manager.num_participants())
        before = manager.current_step()


main()
