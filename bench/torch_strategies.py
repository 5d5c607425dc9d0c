#!/usr/bin/env python3
"""What a PyTorch user would run on a slow network, for comparison with bench/strategies.py: DistributedDataParallel over Gloo,
plain and with its communication hooks, post-local SGD, and torchft's DiLoCo (package torchft-nightly), on the mlp of
examples/mlp-fashion.yaml.

    bench/torch_strategies.py --python /path/with/torch/bin/python [--hosts 2] [--rate 100mbit] [--delay 1ms] [--steps 60]
                              [--settings ddp,fp16,...] [--bin build/release/bin] [--accuracy [--table FILE]]

Needs root: one process of one thread on each host of a laboratory (tests/lab/lab.py). Prints, for each setting, the mean time
of a step after a start (PowerSGD begins with some plain steps, post-local SGD averages only now and then: so a mean, over
whole periods), the bytes that a host sends for a step, and with --accuracy, which trains 3 passes, the accuracy at the end, and
in FILE (--table) that after each sixth of a pass; take a fast link for that, it does not depend on it.
"""
import argparse
import contextlib
import gzip
import json
import os
import subprocess
import sys
import tempfile
import time

SOURCE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.append(os.path.join(SOURCE, "tests/lab"))
DATA = os.path.join(SOURCE, "data/fashion-mnist")
PLAIN = 10  # plain steps before PowerSGD and local SGD begin, if a job is trained to its end
FEW_PLAIN = 4  # if only time is measured
SETTINGS = {"ddp": {}, "fp16": {"hook": "fp16"}, "bf16": {"hook": "bf16"},
            "powersgd1": {"rank": 1}, "powersgd2": {"rank": 2}, "powersgd4": {"rank": 4},
            "powersgd2-fp16": {"rank": 2, "fp16": True},
            "local16": {"period": 16}, "local48": {"period": 48}, "local100": {"period": 100},
            "torchft48": {"torchft": 48}, "torchft100": {"torchft": 100}}
LIGHTHOUSE = 29510  # the port of torchft's


def read_idx(name):
    import torch
    with gzip.open(os.path.join(DATA, name)) as file:
        data = file.read()
    dims = data[3]
    shape = [int.from_bytes(data[4 + 4 * i:8 + 4 * i], "big") for i in range(dims)]
    return torch.frombuffer(bytearray(data[4 + 4 * dims:]), dtype=torch.uint8).reshape(shape)


def interface_of(address):
    for line in subprocess.run(["ip", "-o", "-4", "addr"], capture_output=True, text=True, check=True).stdout.splitlines():
        words = line.split()
        if words[3].split("/")[0] == address:
            return words[1]
    sys.exit(f"no interface has {address}")


def sent_by(interface):
    with open("/proc/self/net/dev") as file:  # of this network namespace
        line = next(line for line in file if line.strip().startswith(interface + ":"))
    return int(line.split(":")[1].split()[8])


def add_hook(net, setting, start):
    """The optimizer's wrapper, or None."""
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
    from torch.distributed.algorithms.ddp_comm_hooks.post_localSGD_hook import PostLocalSGDState, post_localSGD_hook
    if setting.get("hook") == "fp16":
        net.register_comm_hook(None, default_hooks.fp16_compress_hook)
    if setting.get("hook") == "bf16":
        net.register_comm_hook(None, default_hooks.bf16_compress_hook)
    if "rank" in setting:
        state = powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=setting["rank"], start_powerSGD_iter=start)
        hook = powerSGD_hook.powerSGD_hook
        net.register_comm_hook(state, default_hooks.fp16_compress_wrapper(hook) if setting.get("fp16") else hook)
    if "period" in setting:
        from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
        from torch.distributed.optim import PostLocalSGDOptimizer
        state = PostLocalSGDState(None, subgroup=None, start_localSGD_iter=start, post_local_gradient_allreduce=False)
        net.register_comm_hook(state, post_localSGD_hook)
        averager = PeriodicModelAverager(period=setting["period"], warmup_steps=start)
        return lambda optimizer: PostLocalSGDOptimizer(optimizer, averager)
    return None


def torchft_diloco(net, inner, setting, options):
    """A context in which inner.step() is one of DiLoCo."""
    import socket
    from datetime import timedelta
    socket.gethostname = lambda: options["address"]  # by which others find it: hosts of a laboratory have no names
    import torch
    import torch.distributed as dist
    from torchft.local_sgd import DiLoCo
    from torchft.manager import Manager
    from torchft.process_group import ProcessGroupGloo
    hour, address = timedelta(hours=1), options["address"]
    store = dist.TCPStore(address, 29600 + options["rank"], is_master=True, wait_for_workers=False)
    manager = Manager(pg=ProcessGroupGloo(timeout=hour), load_state_dict=net.load_state_dict, state_dict=net.state_dict,
                      min_replica_size=options["hosts"], use_async_quorum=False, timeout=hour, quorum_timeout=hour, rank=0,
                      world_size=1, store_addr=address, store_port=store.port, hostname=address, init_sync=False,
                      lighthouse_addr=f"http://{options['master']}:{LIGHTHOUSE}", replica_id=f"replica{options['rank']}")
    outer = torch.optim.SGD(net.parameters(), lr=0.7, momentum=0.9, nesterov=True)
    diloco = DiLoCo(manager, [net], inner, outer, sync_every=setting["torchft"], pin_memory=False)
    diloco.kept = store  # or it would end
    return diloco


def accuracy_of(net, hosts, average):
    """On the test data. `average`: the replicas differ, and their mean is meant."""
    import torch
    import torch.distributed as dist
    own = [parameter.detach().clone() for parameter in net.parameters()]
    if average:
        for parameter in net.parameters():
            dist.all_reduce(parameter.data)
            parameter.data /= hosts
    test, targets = read_idx("t10k-images-idx3-ubyte.gz"), read_idx("t10k-labels-idx1-ubyte.gz").long()
    with torch.no_grad():
        right = (net((test.float() / 255 - 0.2860) / 0.3530).argmax(1) == targets).float().mean()
        for parameter, value in zip(net.parameters(), own):
            parameter.copy_(value)
    return right.item()


def train(options):
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel
    setting, address = SETTINGS[options["setting"]], options["address"]
    interface = interface_of(address)
    os.environ["GLOO_SOCKET_IFNAME"] = interface
    torch.set_num_threads(1)
    torch.manual_seed(1)
    dist.init_process_group("gloo", init_method=f"tcp://{options['master']}:29500", rank=options["rank"],
                            world_size=options["hosts"])
    net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(784, 2048), torch.nn.ReLU(), torch.nn.Linear(2048, 2048),
                              torch.nn.ReLU(), torch.nn.Linear(2048, 10))
    images, labels = read_idx("train-images-idx3-ubyte.gz"), read_idx("train-labels-idx1-ubyte.gz").long()
    inner = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    raw, synced = net, contextlib.nullcontext()
    if "torchft" in setting:
        synced = torchft_diloco(net, inner, setting, options)
    elif "rank" in setting:  # with several buckets its collectives get out of order and fail: PyTorch 2.15, 4 hosts
        dist._DEFAULT_FIRST_BUCKET_BYTES = sys.maxsize
        net = DistributedDataParallel(net, bucket_cap_mb=1000)
    else:
        net = DistributedDataParallel(net)
    start = setting.get("torchft", PLAIN if options["accuracy"] else FEW_PLAIN)
    wrap = add_hook(net, setting, start)
    optimizer = wrap(inner) if wrap else inner
    batch = 256
    steps = 3 * len(images) // batch if options["accuracy"] else start + options["steps"]
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(inner, 3 * len(images) // batch)
    loss_of = torch.nn.CrossEntropyLoss()
    own = batch // options["hosts"]
    generator = torch.Generator().manual_seed(1)
    order, at = torch.randperm(len(images), generator=generator), 0
    begin, sent, curve = time.perf_counter(), sent_by(interface), []
    synced.__enter__()
    for step in range(steps):
        if step == start:
            dist.barrier()
            begin, sent = time.perf_counter(), sent_by(interface)
        if at + batch > len(order):
            order, at = torch.randperm(len(images), generator=generator), 0
        chosen = order[at + options["rank"] * own:at + (options["rank"] + 1) * own]
        at += batch
        inputs = (images[chosen].float() / 255 - 0.2860) / 0.3530
        optimizer.zero_grad()
        loss_of(net(inputs), labels[chosen]).backward()
        optimizer.step()
        schedule.step()
        if options["accuracy"] and (step + 1) % 39 == 0:
            curve.append([step + 1, accuracy_of(raw, options["hosts"], "period" in setting or "torchft" in setting)])
    dist.barrier()
    seconds, sent = time.perf_counter() - begin, sent_by(interface) - sent
    result = {"seconds": seconds / (steps - start), "bytes": sent / (steps - start)}
    if options["accuracy"]:
        result["accuracy"], result["curve"] = curve[-1][1], curve
    if options["rank"] == 0:
        print(json.dumps(result), flush=True)
    dist.barrier()
    if "torchft" in setting:
        os._exit(0)  # its threads go on
    dist.destroy_process_group()


def run_in_lab(args, setting):
    """{"seconds": of a step, "bytes": that a host sends for it, maybe "accuracy"}"""
    from lab import Lab
    names = [f"host{i}" for i in range(args.hosts)]
    with Lab(f"rate: {args.rate}\ndelay: {args.delay}\nhosts: [{', '.join(names)}]", bin_dir=args.bin) as lab:
        workers, logs = [], []
        if "torchft" in SETTINGS[setting]:
            lab.run(names[0], [os.path.join(os.path.dirname(args.python), "torchft_lighthouse"), "--min_replicas",
                               str(args.hosts), "--bind", f"[::]:{LIGHTHOUSE}"],
                    stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for rank, name in enumerate(names):
            options = {"setting": setting, "rank": rank, "hosts": args.hosts, "address": lab.address(name),
                       "master": lab.address(names[0]), "steps": args.steps, "accuracy": args.accuracy}
            logs.append(tempfile.TemporaryFile("w+"))  # a pipe that nobody reads would be full
            workers.append(lab.run(name, [args.python, os.path.abspath(__file__), "worker", json.dumps(options)],
                                   stdout=subprocess.PIPE, stderr=logs[-1], text=True))
        done = [worker.communicate(timeout=3600)[0] for worker in workers]
        if any(worker.returncode != 0 for worker in workers):
            said = []
            for rank, log in enumerate(logs):
                log.seek(0)
                said.append(f"rank {rank}: {(log.read().splitlines() or [''])[-1]}")
            raise RuntimeError(f"{setting}: PyTorch has failed\n" + "\n".join(said))
        return json.loads(done[0].splitlines()[-1])


def main():
    if len(sys.argv) == 3 and sys.argv[1] == "worker":
        return train(json.loads(sys.argv[2]))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", required=True)
    parser.add_argument("--hosts", type=int, default=2)
    parser.add_argument("--rate", default="100mbit")
    parser.add_argument("--delay", default="1ms")
    parser.add_argument("--steps", type=int, default=48)
    parser.add_argument("--settings", default=",".join(SETTINGS))
    parser.add_argument("--bin", default=os.path.join(SOURCE, "build/release/bin"))
    parser.add_argument("--accuracy", action="store_true")
    parser.add_argument("--table", help="where the results are written, as JSON")
    args = parser.parse_args()
    table = {}
    for setting in args.settings.split(","):
        result = table[setting] = run_in_lab(args, setting)
        if args.table:
            with open(args.table, "w") as file:
                json.dump(table, file, indent=1)
        print(f"{setting:16} {result['seconds'] * 1e3:9.1f} ms a step {result['bytes'] / 1e3:11.1f} kB a step"
              + (f"  accuracy {result['accuracy']:.4f}" if "accuracy" in result else ""), flush=True)


if __name__ == "__main__":
    main()
