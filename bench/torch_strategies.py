#!/usr/bin/env python3
"""What a PyTorch user would run on a slow network, for comparison with bench/strategies.py: DistributedDataParallel over Gloo,
plain and with its communication hooks, and post-local SGD, on the mlp of examples/mlp-fashion.yaml.

    bench/torch_strategies.py --python /path/with/torch/bin/python [--hosts 2] [--rate 100mbit] [--delay 1ms] [--steps 60]
                              [--settings ddp,fp16,...] [--bin build/release/bin] [--accuracy]

Needs root: one process of one thread on each host of a laboratory (tests/lab/lab.py). Prints, for each setting, the mean time
of a step after a start (PowerSGD begins with some plain steps, post-local SGD averages only now and then: so a mean, over
whole periods), the bytes that a host sends for a step, and with --accuracy, which trains 3 passes, the accuracy at the end.
"""
import argparse
import gzip
import json
import os
import subprocess
import sys
import time

SOURCE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.append(os.path.join(SOURCE, "tests/lab"))
DATA = os.path.join(SOURCE, "data/fashion-mnist")
START = 10  # plain steps before PowerSGD and local SGD begin
SETTINGS = {"ddp": {}, "fp16": {"hook": "fp16"}, "bf16": {"hook": "bf16"},
            "powersgd1": {"rank": 1}, "powersgd2": {"rank": 2}, "powersgd4": {"rank": 4},
            "powersgd2-fp16": {"rank": 2, "fp16": True},
            "local16": {"period": 16}, "local48": {"period": 48}, "local100": {"period": 100}}


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


def add_hook(net, setting):
    """The optimizer's wrapper, or None."""
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
    from torch.distributed.algorithms.ddp_comm_hooks.post_localSGD_hook import PostLocalSGDState, post_localSGD_hook
    if setting.get("hook") == "fp16":
        net.register_comm_hook(None, default_hooks.fp16_compress_hook)
    if setting.get("hook") == "bf16":
        net.register_comm_hook(None, default_hooks.bf16_compress_hook)
    if "rank" in setting:
        state = powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=setting["rank"], start_powerSGD_iter=START)
        hook = powerSGD_hook.powerSGD_hook
        net.register_comm_hook(state, default_hooks.fp16_compress_wrapper(hook) if setting.get("fp16") else hook)
    if "period" in setting:
        from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
        from torch.distributed.optim import PostLocalSGDOptimizer
        state = PostLocalSGDState(None, subgroup=None, start_localSGD_iter=START, post_local_gradient_allreduce=False)
        net.register_comm_hook(state, post_localSGD_hook)
        averager = PeriodicModelAverager(period=setting["period"], warmup_steps=START)
        return lambda optimizer: PostLocalSGDOptimizer(optimizer, averager)
    return None


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
    if "rank" in setting:  # with several buckets its collectives get out of order and fail: PyTorch 2.15, 4 hosts
        dist._DEFAULT_FIRST_BUCKET_BYTES = sys.maxsize
        net = DistributedDataParallel(net, bucket_cap_mb=1000)
    else:
        net = DistributedDataParallel(net)
    wrap = add_hook(net, setting)
    optimizer = wrap(inner) if wrap else inner
    batch = 256
    steps = 3 * len(images) // batch if options["accuracy"] else START + options["steps"]
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(inner, 3 * len(images) // batch)
    loss_of = torch.nn.CrossEntropyLoss()
    own = batch // options["hosts"]
    generator = torch.Generator().manual_seed(1)
    order, at = torch.randperm(len(images), generator=generator), 0
    begin, sent = time.perf_counter(), sent_by(interface)
    for step in range(steps):
        if step == START:
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
    dist.barrier()
    seconds, sent = time.perf_counter() - begin, sent_by(interface) - sent
    result = {"seconds": seconds / (steps - START), "bytes": sent / (steps - START)}
    if options["accuracy"]:
        if "period" in setting:  # the replicas differ
            for parameter in net.parameters():
                dist.all_reduce(parameter.data)
                parameter.data /= options["hosts"]
        test, targets = read_idx("t10k-images-idx3-ubyte.gz"), read_idx("t10k-labels-idx1-ubyte.gz").long()
        with torch.no_grad():
            right = (net.module((test.float() / 255 - 0.2860) / 0.3530).argmax(1) == targets).float().mean()
        result["accuracy"] = right.item()
    if options["rank"] == 0:
        print(json.dumps(result), flush=True)
    dist.destroy_process_group()


def run_in_lab(args, setting):
    """{"seconds": of a step, "bytes": that a host sends for it, maybe "accuracy"}"""
    from lab import Lab
    names = [f"host{i}" for i in range(args.hosts)]
    with Lab(f"rate: {args.rate}\ndelay: {args.delay}\nhosts: [{', '.join(names)}]", bin_dir=args.bin) as lab:
        workers = []
        for rank, name in enumerate(names):
            options = {"setting": setting, "rank": rank, "hosts": args.hosts, "address": lab.address(name),
                       "master": lab.address(names[0]), "steps": args.steps, "accuracy": args.accuracy}
            workers.append(lab.run(name, [args.python, os.path.abspath(__file__), "worker", json.dumps(options)],
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
        done = [worker.communicate(timeout=3600) for worker in workers]
        if any(worker.returncode != 0 for worker in workers):
            said = [f"rank {rank}: {err.splitlines()[-1] if err else ''}" for rank, (_, err) in enumerate(done)]
            raise RuntimeError(f"{setting}: PyTorch has failed\n" + "\n".join(said))
        return json.loads(done[0][0].splitlines()[-1])



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
    args = parser.parse_args()
    for setting in args.settings.split(","):
        result = run_in_lab(args, setting)
        print(f"{setting:16} {result['seconds'] * 1e3:9.1f} ms a step {result['bytes'] / 1e3:11.1f} kB a step"
              + (f"  accuracy {result['accuracy']:.4f}" if "accuracy" in result else ""), flush=True)


if __name__ == "__main__":
    main()
