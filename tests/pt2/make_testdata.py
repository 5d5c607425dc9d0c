"""make_testdata.py: writes muster/pt2/testdata/*.pt2, small models for the unit tests, and the example's
examples/pytorch/lenet.pt2.

Run it again after a change here, with a Python that has PyTorch; its output is committed. The traces of the
files name lines of this script.
"""

import json
import os
import re
import runpy
import sys
import zipfile
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

ROOT = Path(__file__).resolve().parents[2]
OUT = ROOT / "muster/pt2/testdata"


class Net(nn.Module):
    """Convolution, batch normalization, dropouts, a tied weight, arithmetic on the number of samples."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 2, 3)
        self.norm = nn.BatchNorm2d(2, momentum=0.2)
        self.channels = nn.Dropout2d(0.25)
        self.fc1 = nn.Linear(8, 8)
        self.fc2 = nn.Linear(8, 8)
        self.fc2.weight = self.fc1.weight
        self.drop = nn.Dropout(0.5)
        self.out = nn.Linear(8, 3)
        self.register_buffer("shift", torch.full((8,), 0.125))

    def forward(self, x):
        x = F.max_pool2d(torch.relu_(self.norm(self.conv(x))), 2)
        x = self.channels(x).permute(0, 2, 3, 1)
        samples = x.shape[0] * x.shape[1]
        x = x.reshape(samples, 4).reshape(-1, 8) + self.shift
        return self.out(self.drop(self.fc2(torch.tanh(self.fc1(x)))))


class Plain(nn.Module):
    """The same without what differs between training and evaluation, to compare with C++."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 2, 3)
        self.out = nn.Linear(8, 3)

    def forward(self, x):
        return self.out(F.max_pool2d(torch.relu(self.conv(x)), 2).flatten(1)) * 2


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(11, 8)
        self.rnn = nn.LSTM(8, 8, num_layers=2, dropout=0.5, batch_first=True)
        self.out = nn.Linear(8, 3)

    def forward(self, tokens):
        x = self.embedding(tokens).unsqueeze(1)
        x = F.scaled_dot_product_attention(x, x, x, dropout_p=0.5, is_causal=True).squeeze(1)
        return self.out(self.rnn(x)[0].mean(1))


class WithLoss(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 3)

    def forward(self, x, target):
        scores = self.fc(x)
        return scores, F.cross_entropy(scores, target, label_smoothing=0.1)


class Random(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 3)

    def forward(self, x):
        return self.fc(x + torch.randn_like(x))


class InPlace(nn.Module):
    """Dropouts that change their input, which is used again."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 4)
        self.drop = nn.Dropout(0.5, inplace=True)
        self.channels = nn.Dropout2d(0.5, inplace=True)

    def forward(self, x):
        x = self.fc(x)
        y = self.drop(x) + x
        z = y.view(-1, 2, 2, 1) * 1
        return (self.channels(z) + z).flatten(1)


class Counter(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 3)
        self.register_buffer("seen", torch.zeros(1))

    def forward(self, x):
        self.seen.add_(1)
        return self.fc(x) / self.seen


class HiddenCounter(nn.Module):
    """Changes a buffer through a view of it."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 3)
        self.register_buffer("seen", torch.zeros(2))

    def forward(self, x):
        self.seen.view(2, 1).add_(1)
        return self.fc(x)


class MaxNorm(nn.Module):
    """Changes a parameter in forward."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(11, 8, max_norm=0.5)
        self.out = nn.Linear(8, 3)

    def forward(self, tokens):
        return self.out(self.embedding(tokens).mean(1))


class Branch(nn.Module):
    """Has a branch that depends on the number of samples: for more than 8, and a multiple of 4."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 3)

    def forward(self, x):
        if x.shape[0] > 8 and x.shape[0] % 4 == 0:
            return self.fc(x) * 2
        return self.fc(x)


class Assertion(nn.Module):
    """Demands something of a size that only the graph knows."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 3)

    def forward(self, x):
        found = (x > 0).nonzero().shape[0]
        torch._check(found >= 3)
        return self.fc(x) * found


class Alias(nn.Module):
    """A buffer that is the memory of a parameter."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 3)
        self.register_buffer("mirror", self.fc.bias.detach())

    def forward(self, x):
        return self.fc(x) + self.mirror


class Unused(nn.Module):
    """Has a layer that forward does not use."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 3)
        self.spare = nn.Linear(4, 3)

    def forward(self, x):
        return self.fc(x)


def without_paths(path, sample_inputs=False):
    """Takes the directories of this machine out of the stack traces, and the sample inputs, without which torch.export
    does not load a file, out of it unless they are wanted."""
    with zipfile.ZipFile(path) as archive:
        entries = {name: archive.read(name) for name in archive.namelist()}
    path.unlink()
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in entries.items():
            if "/sample_inputs/" in name and not sample_inputs:
                continue
            if name.endswith("models/model.json"):
                text = data.decode()
                text = re.sub(r'File \\"[^"\\]*/(site-packages/[^"\\]*)\\"', r'File \\"/\1\\"', text)
                text = text.replace(str(ROOT) + "/", "")
                json.loads(text)
                data = text.encode()
            info = zipfile.ZipInfo(name)
            # Aligned to 64 bytes, as PyTorch's own.
            filling = -(archive.fp.tell() + 30 + len(name) + 4) % 64
            info.extra = b"FB" + filling.to_bytes(2, "little") + b"Z" * filling
            archive.writestr(info, data)


def save_example():
    """As its own script does."""
    folder = ROOT / "examples/pytorch"
    before = os.getcwd()
    os.chdir(folder)
    runpy.run_path(str(folder / "export_lenet.py"), run_name="__main__")
    os.chdir(before)
    without_paths(folder / "lenet.pt2", sample_inputs=True)  # `muster export --pt2` gives it back to PyTorch
    print("examples/pytorch/lenet.pt2", (folder / "lenet.pt2").stat().st_size)


def save(name, module, *inputs, train=True, samples=None):
    torch.manual_seed(1)
    samples = samples or torch.export.Dim("samples")
    program = torch.export.export(module.train(train), inputs, dynamic_shapes=tuple({0: samples} for _ in inputs))
    path = OUT / f"{name}.pt2"
    torch.export.save(program, path)
    without_paths(path)
    print(path.relative_to(ROOT), path.stat().st_size)


def main():
    OUT.mkdir(exist_ok=True)
    torch.manual_seed(1)
    images = torch.randn(4, 1, 6, 6)
    rows = torch.randn(4, 4)
    save("net", Net(), images)
    save("evaluation", Net(), images, train=False)
    save("plain", Plain(), images)
    save("attention", Attention(), torch.randint(11, (4, 5)))
    save("with-loss", WithLoss(), rows, torch.randint(3, (4,)))
    save("random", Random(), rows)
    save("counter", Counter(), rows)
    save("in-place", InPlace(), rows)
    save("hidden-counter", HiddenCounter(), rows)
    save("max-norm", MaxNorm(), torch.randint(11, (4, 5)))
    save("branch", Branch(), torch.randn(12, 4), samples=torch.export.Dim.AUTO)
    save("most", WithLoss(), rows, torch.randint(3, (4,)), samples=torch.export.Dim("samples", max=6))
    save("assertion", Assertion(), torch.ones(4, 4))
    save("alias", Alias(), rows)
    save("unused", Unused(), rows)
    save_example()


if __name__ == "__main__":
    sys.exit(main())
