import os
from datetime import timedelta

import torch
from torch.nn import functional as F
from torch.utils.data import DataLoader
from torchft import DistributedDataParallel, DistributedSampler, Manager, Optimizer, ProcessGroupGloo

from net import Net, data

torch.manual_seed(1)
model = Net()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)


def load(state):
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])


def save():
    return {"model": model.state_dict(), "optimizer": optimizer.state_dict()}


group, groups = int(os.environ["REPLICA_GROUP_ID"]), int(os.environ["NUM_REPLICA_GROUPS"])
manager = Manager(pg=ProcessGroupGloo(timeout=timedelta(seconds=5)), min_replica_size=1, load_state_dict=load,
                  state_dict=save, replica_id=f"train_{group}", timeout=timedelta(seconds=30))
wrapped = DistributedDataParallel(manager, model)
guarded = Optimizer(manager, optimizer)
sampler = DistributedSampler(data, replica_group=group, num_replica_groups=groups, rank=0, num_replicas=1, shuffle=True)
loader = DataLoader(data, batch_size=64 // groups, sampler=sampler)
while manager.current_step() < 3 * len(data) // 64:
    for x, y in loader:
        guarded.zero_grad()
        F.cross_entropy(wrapped(x), y).backward()
        guarded.step()
