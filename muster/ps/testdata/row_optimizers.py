#!/usr/bin/env python3
"""Makes row_optimizers.txt: what torch's optimizers do to the rows of an embedding, for row_optimizer_reference_test.cc.

    row_optimizers.py > row_optimizers.txt

The file in the repository was made with Python 3.11.7 and torch 2.15.0 (CPU), by torch.optim.SGD, Adagrad and SparseAdam with sparse
gradients. Its lines; numbers of rows are the bits of floats, in hexadecimal:

    case NAME WIDTH EPS              eps of the optimizer
    row KEY WEIGHTS                  before the first step
    step LR                          a step begins
    add LANE KEY GRADIENT            a key may be there in several lanes, and torch gets it several times
    after KEY WEIGHTS STATE          of all rows of this step, when it is done; no other row has changed

Gradients are small multiples of 2^-10, so their sums are exact in any order. One step has no gradient at all: it counts for SparseAdam.
"""
import random
import struct

import torch

KEYS = 6
LANES = 2
STEPS = 8
EMPTY = 4  # the step without a gradient
# Name: optimizer, width, eps, its state in the order of a row, whether the learning rate changes.
CASES = {
    "sgd": (torch.optim.SGD, 3, None, [], True),
    "adagrad": (torch.optim.Adagrad, 3, 1e-10, ["sum"], True),
    "adam": (torch.optim.SparseAdam, 3, 1e-8, ["exp_avg", "exp_avg_sq"], True),
    "adagrad_of_width_1": (torch.optim.Adagrad, 1, 1e-10, ["sum"], True),
    "adagrad_with_eps_1": (torch.optim.Adagrad, 3, 1.0, ["sum"], False),
}


def bits(values):
    return " ".join(struct.pack(">f", value).hex() for value in values)


def draw_step(draw, width):
    """(lane, key, gradient): in each lane some of the keys, each once."""
    for lane in range(LANES):
        for key in sorted(draw.sample(range(KEYS), 2)):
            yield lane, key, [draw.randrange(-1024, 1025) / 1024 for _ in range(width)]


def write_case(name):
    kind, width, eps, state, schedule = CASES[name]
    draw = random.Random(name)
    rows = [[draw.randrange(-512, 513) / 1024 for _ in range(width)] for _ in range(KEYS)]
    weights = torch.nn.Parameter(torch.tensor(rows, dtype=torch.float32))
    optimizer = kind([weights], lr=0.05, **({} if eps is None else {"eps": eps}))
    print("case", name, width, eps or 0)
    for key, row in enumerate(rows):
        print("row", key, bits(row))
    for step in range(STEPS):
        lr = 0.05 / (1 + step % 3) if schedule else 0.05
        adds = [] if step == EMPTY else list(draw_step(draw, width))
        print("step", lr)
        for lane, key, gradient in adds:
            print("add", lane, key, bits(gradient))
        indices = torch.tensor([[key for _, key, _ in adds]], dtype=torch.int64)
        values = torch.tensor([gradient for _, _, gradient in adds], dtype=torch.float32).reshape(-1, width)
        weights.grad = torch.sparse_coo_tensor(indices, values, weights.shape, check_invariants=True)
        optimizer.param_groups[0]["lr"] = lr
        optimizer.step()
        for key in sorted({key for _, key, _ in adds}):
            parts = [weights, *(optimizer.state[weights][part] for part in state)]
            print("after", key, " ".join(bits(part[key].tolist()) for part in parts))


def main():
    print(f"# Made by row_optimizers.py with torch {torch.__version__.split('+')[0]}; it says what the lines mean.")
    for name in CASES:
        write_case(name)


main()
