#!/usr/bin/env python3
"""bare_loop.cc in Python: the same models, data, optimizers and protocol, with PyTorch.

    bare_loop.py MODEL BATCH THREADS        MODEL: lenet, mlp, gpt
"""
import json
import sys
import time

import torch
import torch.nn as nn
import torch.nn.functional as F


class Lenet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 20, 5)
        self.conv2 = nn.Conv2d(20, 50, 5)
        self.fc1 = nn.Linear(800, 500)
        self.fc2 = nn.Linear(500, 10)

    def forward(self, x):
        x = F.relu(F.max_pool2d(self.conv1(x), 2))
        x = F.relu(F.max_pool2d(self.conv2(x), 2))
        return self.fc2(F.relu(self.fc1(x.flatten(1))))


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.ln_1 = nn.LayerNorm(width)
        self.ln_2 = nn.LayerNorm(width)
        self.c_attn = nn.Linear(width, 3 * width, bias=False)
        self.attn_proj = nn.Linear(width, width, bias=False)
        self.c_fc = nn.Linear(width, 4 * width, bias=False)
        self.mlp_proj = nn.Linear(4 * width, width, bias=False)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (part.view(b, t, self.heads, c // self.heads).transpose(1, 2)
                   for part in self.c_attn(self.ln_1(x)).split(c, 2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.attn_proj(y.transpose(1, 2).contiguous().view(b, t, c))
        return x + self.mlp_proj(F.gelu(self.c_fc(self.ln_2(x))))


class Gpt(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte = nn.Embedding(65, 128)
        self.wpe = nn.Embedding(64, 128)
        self.h = nn.ModuleList(Block(128, 4) for _ in range(4))
        self.ln_f = nn.LayerNorm(128)

    def forward(self, x):
        h = self.wte(x) + self.wpe(torch.arange(x.shape[1]))
        for block in self.h:
            h = block(h)
        return self.ln_f(h) @ self.wte.weight.t()


def build(kind):
    """The net, inputs, targets and the optimizer."""
    if kind == "gpt":
        net = Gpt()
        inputs = torch.randint(65, (1024, 64))
        targets = torch.randint(65, (1024, 64))
        return net, inputs, targets, torch.optim.AdamW(net.parameters(), lr=1e-3, betas=(0.9, 0.99), weight_decay=0.1)
    net = Lenet() if kind == "lenet" else nn.Sequential(
        nn.Flatten(), nn.Linear(784, 2048), nn.ReLU(), nn.Linear(2048, 2048), nn.ReLU(), nn.Linear(2048, 10))
    inputs = torch.randn(1024, 1, 28, 28)
    targets = torch.randint(10, (1024,))
    return net, inputs, targets, torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)


def train_step(kind, net, optimizer, x, y):
    optimizer.zero_grad()
    output = net(x)
    if kind == "gpt":
        output = output.view(-1, 65)
    loss = F.cross_entropy(output, y.reshape(-1))
    loss.backward()
    if kind == "gpt":
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    optimizer.step()
    return loss.item()


def main():
    kind, batch, threads = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    torch.set_num_threads(threads)
    torch.manual_seed(1)
    net, inputs, targets, optimizer = build(kind)
    step = 0
    for line in sys.stdin:
        times = []
        for _ in range(int(line)):
            start = time.perf_counter()
            at = (step * batch) % (1024 - batch + 1)
            train_step(kind, net, optimizer, inputs[at:at + batch], targets[at:at + batch])
            times.append(time.perf_counter() - start)
            step += 1
        print(json.dumps(times), flush=True)


if __name__ == "__main__":
    main()
