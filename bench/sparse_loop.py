#!/usr/bin/env python3
"""The dlrm of examples/dlrm-synthetic.yaml in PyTorch, as its documentation says to write it: one process of bench/sparse_models.py.

    torchrun --nproc-per-node N bench/sparse_loop.py JSON

JSON: {"way": "one" | "ddp" | "rpc", "batch": of all processes, "steps", "rows": of all features, "optimizer": "adam" | "adagrad",
       "lr": of the rows, "embedding": "one" | "each" (EmbeddingBag for all features, or for each), "threads",
       "data": the file that draw_data() wrote, "meeting": a file that is not there yet, by which rpc's processes find each other}

one: a process by itself. ddp: DistributedDataParallel over Gloo, which gathers sparse gradients from all processes. rpc: the last
process is a parameter server with the rows, the others have the dense layers, under DistributedDataParallel; distributed autograd and
DistributedOptimizer, as in PyTorch's tutorial "Combining Distributed DataParallel with Distributed RPC Framework". Each trainer's
gradients are an update of their own there: it is asynchronous.

Rank 0 prints {"times": seconds of every step, "losses": [first, last]} as JSON, after a check that all processes have the same weights.
"""
import json
import os
import sys
import time
import warnings

import numpy
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

FEATURES, NUMBERS, WIDTH, HIDDEN = 8, 4, 16, 32
DENSE_LR = 0.002


def draw_data(path, samples, rows, skew=1.05, seed=1):
    """Samples as those of the format ctr (muster/data/ctr.h): numbers of mean 0 and deviation 1; ids whose frequency falls with the
    power `skew` of their rank, in no order; clicks at a rate of about 0.25, that follow from the numbers and noise."""
    draw = numpy.random.default_rng(seed)
    ids_of_feature = rows // FEATURES
    ends = numpy.cumsum(numpy.arange(1, ids_of_feature + 1, dtype=numpy.float64) ** -skew)
    ids = numpy.empty((samples, FEATURES), dtype=numpy.int64)
    for feature in range(FEATURES):
        ranks = numpy.searchsorted(ends, draw.random(samples) * ends[-1], side="right")
        ids[:, feature] = draw.permutation(ids_of_feature)[ranks]
    numbers = (draw.random((samples, NUMBERS, 3)).sum(2) - 1.5) * 2
    clicks = numbers.sum(1) + 2 * draw.standard_normal(samples) > 1.9
    numpy.savez(path, ids=ids, numbers=numbers.astype(numpy.float32), clicks=clicks.astype(numpy.int64))


class Rows(nn.Module):
    """Ids [samples, features], each counted from 0 in its feature, to vectors [samples, features, width]."""

    def __init__(self, rows, way):
        super().__init__()
        tables = FEATURES if way == "each" else 1
        self.tables = nn.ModuleList(nn.EmbeddingBag(rows // tables, WIDTH, mode="sum", sparse=True) for _ in range(tables))
        for table in self.tables:
            nn.init.uniform_(table.weight, -0.05, 0.05)
        self.starts = torch.arange(FEATURES) * (rows // FEATURES)

    def forward(self, ids):
        if len(self.tables) == 1:
            return self.tables[0]((ids + self.starts).view(-1, 1)).view(len(ids), FEATURES, WIDTH)
        return torch.stack([table(column.unsqueeze(1)) for table, column in zip(self.tables, ids.unbind(1))], 1)


class Dense(nn.Module):
    """Bottom, interactions and top of the zoo's dlrm (muster/model/dlrm.cc)."""

    def __init__(self):
        super().__init__()
        count = FEATURES + 1
        self.bottom = nn.Sequential(nn.Linear(NUMBERS, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, WIDTH), nn.ReLU())
        self.top = nn.Sequential(nn.Linear(WIDTH + count * (count - 1) // 2, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, 2))
        self.pairs = torch.tensor([i * count + j for i in range(count) for j in range(i)])

    def forward(self, numbers, vectors):
        dense = self.bottom(numbers)
        every = torch.cat([dense.unsqueeze(1), vectors], 1)
        products = every.bmm(every.transpose(1, 2)).flatten(1).index_select(1, self.pairs)
        return self.top(torch.cat([dense, products], 1))


class Dlrm(nn.Module):
    def __init__(self, options):
        super().__init__()
        self.rows, self.dense = Rows(options["rows"], options["embedding"]), Dense()

    def forward(self, numbers, ids):
        return self.dense(numbers, self.rows(ids))


def row_optimizer(options):
    return torch.optim.SparseAdam if options["optimizer"] == "adam" else torch.optim.Adagrad


def timed_steps(options, rank, trainers, step):
    """step(numbers, ids, clicks), which returns the loss, for this process's share of each batch."""
    data = {name: torch.from_numpy(values) for name, values in numpy.load(options["data"]).items()}
    own, times, losses = options["batch"] // trainers, [], []
    for number in range(options["steps"]):
        at = number * options["batch"] + rank * own
        begin = time.perf_counter()
        loss = step(*(data[name][at:at + own] for name in ("numbers", "ids", "clicks")))
        times.append(time.perf_counter() - begin)
        losses.append(loss.item())
    few = max(1, len(losses) // 10)
    return {"times": times, "losses": [sum(losses[:few]) / few, sum(losses[-few:]) / few]}


def check_equal(tensors, group=None):
    """Ends the process unless all of the group have the same weights."""
    sums = torch.stack([tensor.detach().sum(dtype=torch.float64) for tensor in tensors])
    every = [torch.empty_like(sums) for _ in range(dist.get_world_size(group))]
    dist.all_gather(every, sums, group=group)
    if not all(torch.equal(one, sums) for one in every):
        sys.exit("the processes have different weights")


def train(options):
    """The ways one and ddp."""
    alone = options["way"] == "one"
    rank, trainers = (0, 1) if alone else (dist.get_rank(), dist.get_world_size())
    raw = Dlrm(options)
    net = raw if alone else DistributedDataParallel(raw)
    optimizers = [row_optimizer(options)(raw.rows.parameters(), lr=options["lr"]),
                  torch.optim.Adam(raw.dense.parameters(), lr=DENSE_LR, fused=True)]

    def step(numbers, ids, clicks):
        for optimizer in optimizers:
            optimizer.zero_grad()
        loss = nn.functional.cross_entropy(net(numbers, ids), clicks)
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
        return loss

    result = timed_steps(options, rank, trainers, step)
    if not alone:
        check_equal(list(raw.parameters()))
    return result


SERVED = []  # the rows, in the server's process


def serve(options):
    torch.set_num_threads(1)
    SERVED.append(Rows(options["rows"], options["embedding"]))


def look_up(ids):
    return SERVED[0](ids)


def served_parameters():
    from torch.distributed.rpc import RRef
    return [RRef(parameter) for parameter in SERVED[0].parameters()]


def train_with_server(options, rank, trainers, group):
    from torch.distributed import autograd, rpc
    from torch.distributed.optim import DistributedOptimizer
    if rank == 0:
        rpc.rpc_sync("server", serve, args=(options,))
    dist.barrier(group)
    dense = DistributedDataParallel(Dense(), process_group=group)
    optimizers = [DistributedOptimizer(row_optimizer(options), rpc.rpc_sync("server", served_parameters),
                                       lr=options["lr"]),
                  DistributedOptimizer(torch.optim.Adam, [rpc.RRef(p) for p in dense.parameters()], lr=DENSE_LR,
                                       fused=True)]

    def step(numbers, ids, clicks):
        with autograd.context() as context:
            loss = nn.functional.cross_entropy(dense(numbers, rpc.rpc_sync("server", look_up, args=(ids,))), clicks)
            autograd.backward(context, [loss])
            for optimizer in optimizers:
                optimizer.step(context)
        return loss

    result = timed_steps(options, rank, trainers, step)
    check_equal(list(dense.parameters()), group)
    return result


def run_rpc(options):
    from torch.distributed import rpc
    rank, trainers = dist.get_rank(), dist.get_world_size() - 1
    group = dist.new_group(list(range(trainers)))
    rpc.init_rpc("server" if rank == trainers else f"trainer{rank}", rank=rank, world_size=trainers + 1,
                 rpc_backend_options=rpc.TensorPipeRpcBackendOptions(init_method=f"file://{options['meeting']}", rpc_timeout=600))
    result = train_with_server(options, rank, trainers, group) if rank < trainers else None
    rpc.shutdown()
    return result


def main():
    options = json.loads(sys.argv[1])
    warnings.filterwarnings("ignore", "Sparse invariant checks")
    torch.set_num_threads(options["threads"])
    torch.manual_seed(1)
    if options["way"] != "one":
        dist.init_process_group("gloo")
    result = run_rpc(options) if options["way"] == "rpc" else train(options)
    if int(os.environ.get("RANK", "0")) == 0:
        print(json.dumps(result), flush=True)
    if options["way"] != "one":
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
