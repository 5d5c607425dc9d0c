#!/usr/bin/env python3
"""bare_loop.py with the Python package muster (docs/python.md), as compare.py starts it:

    muster train --program bench/python_loop.py --workers 2

The environment says what: BENCH_MODEL (mlp), BENCH_BATCH (128), BENCH_LANES (2).
"""
import os

import bare_loop
import muster
from torch.nn import functional as F


def main():
    kind = os.environ.get("BENCH_MODEL", "mlp")
    run = muster.join(lanes=int(os.environ.get("BENCH_LANES", "2")), seed=1)
    net, inputs, targets, _ = bare_loop.build(kind)
    if kind == "gpt":
        optimizer = muster.AdamW(lr=1e-3, betas=(0.9, 0.99), weight_decay=0.1, clip_norm=1.0)
    else:
        optimizer = muster.SGD(lr=0.01, momentum=0.9)
    model = run.attach(net, optimizer)
    for step in run.steps((inputs, targets), batch=int(os.environ.get("BENCH_BATCH", "128")), steps=100):
        for x, y in step:
            output = model(x)
            step.backward(F.cross_entropy(output.view(-1, 65) if kind == "gpt" else output, y.reshape(-1)))


main()
