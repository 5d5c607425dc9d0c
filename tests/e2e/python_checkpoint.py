#!/usr/bin/env python3
"""A checkpoint in Python: safetensors loads it into the same architecture written in PyTorch, which then
gives the same outputs as Muster, to 1e-5.

    python_checkpoint.py [--bin build/release/bin]

Needs a Python with torch and safetensors: this one, or the one named by TORCH_PYTHON. Without either it
says so and exits with 77, which ctest counts as skipped.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile

SOURCE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
OTHER = os.environ.get("TORCH_PYTHON")
if OTHER and OTHER != sys.executable and "TORCH_TEST_INNER" not in os.environ:
    os.environ["TORCH_TEST_INNER"] = "1"
    os.execv(OTHER, [OTHER, *sys.argv])
try:
    import torch
    import torch.nn as nn
    import torch.nn.functional as F
    from safetensors.torch import load_file
except ImportError as missing:
    print(f"skipped: {missing}; name a Python that has torch and safetensors in TORCH_PYTHON")
    sys.exit(77)


class Lenet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 20, 5), nn.Conv2d(20, 50, 5)
        self.fc1, self.fc2 = nn.Linear(800, 500), nn.Linear(500, 10)

    def forward(self, x):
        x = F.relu(F.max_pool2d(self.conv1(x), 2))
        x = F.relu(F.max_pool2d(self.conv2(x), 2))
        return self.fc2(F.relu(self.fc1(x.flatten(1))))


class ResBlock(nn.Module):
    def __init__(self, channels, width, stride):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(channels, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width)
        self.conv2, self.bn2 = nn.Conv2d(width, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width)
        self.downsample = None
        if stride != 1 or channels != width:
            self.downsample = nn.Sequential(nn.Conv2d(channels, width, 1, stride, bias=False), nn.BatchNorm2d(width))

    def forward(self, x):
        y = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
        return F.relu(y + (x if self.downsample is None else self.downsample(x)))


class Resnet8(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(1, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16)
        self.layer1 = nn.Sequential(ResBlock(16, 16, 1))
        self.layer2 = nn.Sequential(ResBlock(16, 32, 2))
        self.layer3 = nn.Sequential(ResBlock(32, 64, 2))
        self.fc = nn.Linear(64, 10)

    def forward(self, x):
        x = F.relu(self.bn1(self.conv1(x)))
        return self.fc(self.layer3(self.layer2(self.layer1(x))).mean((2, 3)))


class GptBlock(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.ln_1, self.ln_2 = nn.LayerNorm(width, bias=False), nn.LayerNorm(width, bias=False)
        self.attn = nn.ModuleDict({"c_attn": nn.Linear(width, 3 * width, bias=False),
                                   "c_proj": nn.Linear(width, width, bias=False)})
        self.mlp = nn.ModuleDict({"c_fc": nn.Linear(width, 4 * width, bias=False),
                                  "c_proj": nn.Linear(4 * width, width, bias=False)})

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (part.view(b, t, self.heads, c // self.heads).transpose(1, 2)
                   for part in self.attn["c_attn"](self.ln_1(x)).split(c, 2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, t, c)
        x = x + self.attn["c_proj"](y)
        return x + self.mlp["c_proj"](F.gelu(self.mlp["c_fc"](self.ln_2(x))))


class Gpt(nn.Module):
    def __init__(self, vocabulary, width=64, heads=4, layers=2, context=32):
        super().__init__()
        self.transformer = nn.ModuleDict({
            "wte": nn.Embedding(vocabulary, width), "wpe": nn.Embedding(context, width),
            "h": nn.ModuleList(GptBlock(width, heads) for _ in range(layers)),
            "ln_f": nn.LayerNorm(width, bias=False)})

    def forward(self, tokens):
        t = self.transformer
        x = t["wte"](tokens) + t["wpe"](torch.arange(tokens.shape[1]))
        for block in t["h"]:
            x = block(x)
        return t["ln_f"](x) @ t["wte"].weight.t()


IMAGES = """
data:
  train: { format: idx, images: %(d)s/%(set)s/train-images-idx3-ubyte.gz, labels: %(d)s/%(set)s/train-labels-idx1-ubyte.gz }
  test: { format: idx, images: %(d)s/%(set)s/t10k-images-idx3-ubyte.gz, labels: %(d)s/%(set)s/t10k-labels-idx1-ubyte.gz }
batch: 32
lanes: 4
steps: 20
optimizer: { kind: sgd, lr: 0.05, momentum: 0.9 }
"""
TEXT = """
data:
  train: { format: text, path: %(d)s/tinyshakespeare/input.txt, context: 32, part: [0, 0.9] }
  test: { format: text, path: %(d)s/tinyshakespeare/input.txt, context: 32, part: [0.9, 1] }
batch: 16
lanes: 4
steps: 20
optimizer: { kind: adamw, lr: 0.001 }
"""


def images(folder, name, count):
    import gzip
    with gzip.open(os.path.join(folder, name)) as f:
        raw = f.read()
    return torch.frombuffer(bytearray(raw[16:16 + count * 784]), dtype=torch.uint8).float().view(-1, 1, 28, 28) / 255


def tokens(path, start, count, context):
    with open(path, encoding="utf-8", newline="") as f:
        text = f.read()
    number = {c: i for i, c in enumerate(sorted(set(text)))}
    first = int(len(text) * start)
    return len(number), torch.tensor([[number[c] for c in text[first + i:first + i + context]] for i in range(count)])


def check(name, job, make, bin_dir, folder):
    path = os.path.join(folder, name + ".yaml")
    run = os.path.join(folder, name)
    with open(path, "w") as f:
        f.write(f"muster: 1\nname: {name}\n{job}")
    muster = os.path.join(bin_dir, "muster")
    subprocess.run([muster, "train", path, "--run-dir", run, "--quiet"], check=True)
    exported = os.path.join(folder, name + ".safetensors")
    subprocess.run([muster, "export", run, "--checkpoint", "newest", "--out", exported], check=True,
                   stdout=subprocess.DEVNULL)
    said = subprocess.run([muster, "predict", run, "--checkpoint", "newest", "--samples", "0-7", "--raw", "-o", "json"],
                          check=True, capture_output=True, text=True).stdout
    ours = torch.tensor([row["output"] for row in json.loads(said)])
    net, inputs = make()
    net.load_state_dict(load_file(exported), strict=True)
    net.eval()
    with torch.no_grad():
        theirs = net(inputs).flatten(1)
    worst = (ours.flatten(1) - theirs).abs().max().item()
    print(f"{name}: largest difference of {theirs.numel()} outputs: {worst:.2e}")
    if not worst <= 1e-5:
        sys.exit(f"{name}: more than 1e-5")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", default=os.environ.get("MUSTER_BIN_DIR", os.path.join(SOURCE, "build/release/bin")))
    args = parser.parse_args()
    data = os.path.join(SOURCE, "examples/data")
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="muster-") as folder:
        check("lenet", "model: { zoo: lenet }" + IMAGES % {"d": data, "set": "mnist"},
              lambda: (Lenet(), images(data, "mnist/t10k-images-idx3-ubyte.gz", 8)), args.bin, folder)
        check("resnet", "model: { zoo: resnet, args: { size: 8 } }" + IMAGES % {"d": data, "set": "fashion-mnist"},
              lambda: (Resnet8(), images(data, "fashion-mnist/t10k-images-idx3-ubyte.gz", 8)), args.bin, folder)

        def gpt():
            text = os.path.join(data, "tinyshakespeare/input.txt")
            vocabulary, inputs = tokens(text, 0.9, 8, 32)
            return Gpt(vocabulary), inputs
        check("gpt", "model: { zoo: gpt, args: { layers: 2, heads: 4, width: 64 } }" + TEXT % {"d": data}, gpt,
              args.bin, folder)


main()
