"""compare.py: the twelve models of models.py in Muster and in eager PyTorch, both on one thread.

    ./dev build release pt2_step
    python tests/pt2/compare.py build/release/bin/pt2_step [MODEL ..]

Needs PyTorch, torchvision and safetensors. For each model: whether all gradients of the first step are those of
PyTorch bit for bit, without the randomness of dropout, and the time of a step (forward, loss, backward) relative to
PyTorch's, the median of rounds that alternate. The exit code is 1 if a gradient differs.
"""

import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from models import MODELS, export, without_randomness

BATCH = 16
ROUNDS = 9
SECONDS = 0.4  # of a round


def step(case, inputs, targets):
    for parameter in case.module.parameters():
        parameter.grad = None
    case.compute_loss(case.module, inputs, targets).backward()


def seconds_in_python(case, inputs, targets, count):
    seconds = []
    for _ in range(count):
        begin = time.perf_counter()
        step(case, inputs, targets)
        seconds.append(time.perf_counter() - begin)
    return seconds


def compare(program, name, folder):
    torch.manual_seed(1)
    case = MODELS[name]()
    without_randomness(case.module)
    case.module.train()
    export(case, folder / f"{name}.pt2")
    generator = torch.Generator().manual_seed(7)
    inputs, targets = case.inputs(BATCH, generator), case.targets(BATCH, generator)
    save_file({"inputs": inputs, "targets": targets}, folder / "data")
    words = [program, folder / f"{name}.pt2", case.loss, folder / "data", folder / "gradients"]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:

        def seconds_in_muster(count):
            process.stdin.write(f"{count}\n")
            process.stdin.flush()
            return json.loads(process.stdout.readline())

        seconds_in_muster(1)
        step(case, inputs, targets)
        found = load_file(folder / "gradients")
        expected = {key: value.grad for key, value in case.module.named_parameters()}
        differing = [key for key in expected if key not in found or not torch.equal(found[key], expected[key])]
        if set(found) - set(expected):
            differing += sorted(set(found) - set(expected))
        count = max(3, int(SECONDS / statistics.median(seconds_in_python(case, inputs, targets, 3))))
        ours, theirs, ratios = [], [], []
        for _ in range(ROUNDS):
            theirs.append(statistics.median(seconds_in_python(case, inputs, targets, count)))
            ours.append(statistics.median(seconds_in_muster(count)))
            ratios.append(ours[-1] / theirs[-1])
        process.stdin.close()
    return len(expected), differing, min(ours), min(theirs), statistics.median(ratios)


def main():
    program, names = sys.argv[1], sys.argv[2:] or list(MODELS)
    torch.set_num_threads(1)
    wrong = 0
    print(f"{'model':12} {'gradients':>9}  equal  {'Muster':>9} {'PyTorch':>9}  ratio")
    with tempfile.TemporaryDirectory() as folder:
        for name in names:
            count, differing, ours, theirs, ratio = compare(program, name, Path(folder))
            wrong += len(differing)
            print(f"{name:12} {count:9}  {'no: ' + ', '.join(differing[:3]) if differing else 'yes':5}  "
                  f"{1e3 * ours:6.2f} ms {1e3 * theirs:6.2f} ms  {ratio:5.2f}", flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
