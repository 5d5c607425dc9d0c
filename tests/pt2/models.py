"""Twelve models as people write them in PyTorch, for the tests of `model.file`.

Each entry of MODELS has a function that returns a Case: the module, sample inputs, and the loss. Kept
small, so that all twelve are exported and trained for a step within a minute.
"""

import dataclasses
import math
from typing import Callable

import torch
import torch.nn.functional as F
from torch import nn


@dataclasses.dataclass
class Case:
    module: nn.Module
    # Shape of one sample and its dtype: "float32" or "int64" with the number of classes of each element.
    input_shape: tuple
    target_shape: tuple = ()
    vocabulary: int = 0  # of integer inputs; 0: float32
    classes: int = 10  # of integer targets; 0: float32
    loss: str = "cross_entropy"  # mse, or file: the model returns (output, loss)

    def inputs(self, batch, generator):
        shape = (batch, *self.input_shape)
        if self.vocabulary:
            return torch.randint(self.vocabulary, shape, generator=generator)
        return torch.randn(shape, generator=generator)

    def targets(self, batch, generator):
        shape = (batch, *self.target_shape)
        if self.classes:
            return torch.randint(self.classes, shape, generator=generator)
        return torch.randn(shape, generator=generator)

    def compute_loss(self, module, inputs, targets):
        if self.loss == "file":
            return module(inputs, targets)[1]
        output = module(inputs)
        if self.loss == "mse":
            return F.mse_loss(output.reshape(targets.shape), targets)
        return F.cross_entropy(output.reshape(-1, output.shape[-1]), targets.reshape(-1))


class LeNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 20, 5)
        self.conv2 = nn.Conv2d(20, 50, 5)
        self.fc1 = nn.Linear(800, 500)
        self.dropout = nn.Dropout(0.5)
        self.fc2 = nn.Linear(500, 10)

    def forward(self, x):
        x = F.relu(F.max_pool2d(self.conv1(x), 2))
        x = F.relu(F.max_pool2d(self.conv2(x), 2))
        return self.fc2(self.dropout(F.relu(self.fc1(x.flatten(1)))))


def mlp():
    layers = [nn.Flatten(), nn.Linear(784, 256), nn.GELU(), nn.LayerNorm(256), nn.Linear(256, 128), nn.Sigmoid(), nn.Linear(128, 10)]
    return nn.Sequential(*layers)


class SelfAttention(nn.Module):
    def __init__(self, width, heads, dropout):
        super().__init__()
        self.c_attn = nn.Linear(width, 3 * width, bias=False)
        self.c_proj = nn.Linear(width, width, bias=False)
        self.resid_dropout = nn.Dropout(dropout)
        self.heads = heads
        self.dropout = dropout

    def forward(self, x):
        batch, length, width = x.size()
        parts = [part.view(batch, length, self.heads, width // self.heads).transpose(1, 2) for part in self.c_attn(x).split(width, dim=2)]
        y = F.scaled_dot_product_attention(*parts, dropout_p=self.dropout if self.training else 0, is_causal=True)
        return self.resid_dropout(self.c_proj(y.transpose(1, 2).contiguous().view(batch, length, width)))


class Block(nn.Module):
    def __init__(self, width, heads, dropout):
        super().__init__()
        self.ln_1 = nn.LayerNorm(width)
        self.attn = SelfAttention(width, heads, dropout)
        self.ln_2 = nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width), nn.Dropout(dropout))

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class NanoGpt(nn.Module):
    """As nanoGPT: learned positions, and the output layer shares its weight with the embedding."""

    def __init__(self, vocabulary=65, context=32, width=64, heads=4, layers=2, dropout=0.1):
        super().__init__()
        self.wte = nn.Embedding(vocabulary, width)
        self.wpe = nn.Embedding(context, width)
        self.drop = nn.Dropout(dropout)
        self.h = nn.ModuleList([Block(width, heads, dropout) for _ in range(layers)])
        self.ln_f = nn.LayerNorm(width)
        self.lm_head = nn.Linear(width, vocabulary, bias=False)
        self.lm_head.weight = self.wte.weight

    def forward(self, tokens):
        positions = torch.arange(0, tokens.size(1), dtype=torch.long)
        x = self.drop(self.wte(tokens) + self.wpe(positions))
        for block in self.h:
            x = block(x)
        return self.lm_head(self.ln_f(x))


class Recurrent(nn.Module):
    def __init__(self, kind, dropout):
        super().__init__()
        self.embedding = nn.Embedding(100, 32)
        self.rnn = kind(32, 48, num_layers=2, batch_first=True, dropout=dropout)
        self.head = nn.Linear(48, 10)

    def forward(self, tokens):
        output, _ = self.rnn(self.embedding(tokens))
        return self.head(output[:, -1])


class Encoder(nn.Module):
    def __init__(self, dropout=0.1):
        super().__init__()
        self.embedding = nn.Embedding(100, 32)
        layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=dropout, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(32, 10)

    def forward(self, tokens):
        return self.head(self.encoder(self.embedding(tokens) * math.sqrt(32)).mean(1))


class UNet(nn.Module):
    """Two levels with skip connections and batch normalization; a value for each pixel."""

    def __init__(self):
        super().__init__()

        def double(inputs, outputs):
            return nn.Sequential(nn.Conv2d(inputs, outputs, 3, padding=1), nn.BatchNorm2d(outputs), nn.ReLU(inplace=True),
                                 nn.Conv2d(outputs, outputs, 3, padding=1), nn.BatchNorm2d(outputs), nn.ReLU(inplace=True))

        self.down1, self.down2, self.bottom = double(1, 8), double(8, 16), double(16, 32)
        self.up2, self.up1 = nn.ConvTranspose2d(32, 16, 2, stride=2), nn.ConvTranspose2d(16, 8, 2, stride=2)
        self.merge2, self.merge1 = double(32, 16), double(16, 8)
        self.out = nn.Conv2d(8, 1, 1)

    def forward(self, x):
        one = self.down1(x)
        two = self.down2(F.max_pool2d(one, 2))
        x = self.bottom(F.max_pool2d(two, 2))
        x = self.merge2(torch.cat([two, self.up2(x)], 1))
        return self.out(self.merge1(torch.cat([one, self.up1(x)], 1)))


class Autoencoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.encode = nn.Sequential(nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 16))
        self.decode = nn.Sequential(nn.Linear(16, 128), nn.ReLU(), nn.Linear(128, 784), nn.Tanh())

    def forward(self, x):
        return self.decode(self.encode(x.flatten(1))).view(x.shape)


class DeepFm(nn.Module):
    """Eight columns of ids, each with an embedding in one table; first-order weights beside it."""

    def __init__(self, columns=8, ids=50, width=8):
        super().__init__()
        self.register_buffer("offsets", torch.arange(columns) * ids)
        self.first = nn.Embedding(columns * ids, 1)
        self.factors = nn.Embedding(columns * ids, width)
        self.deep = nn.Sequential(nn.Linear(columns * width, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Dropout(0.2), nn.Linear(32, 1))

    def forward(self, ids):
        rows = ids + self.offsets
        factors = self.factors(rows)
        pairs = 0.5 * (factors.sum(1).square() - factors.square().sum(1)).sum(1, keepdim=True)
        score = self.first(rows).sum(1) + pairs + self.deep(factors.flatten(1))
        return torch.cat([torch.zeros_like(score), score], 1)


class WithLoss(nn.Module):
    """The loss is part of the model: smoothed labels and a penalty on the hidden layer."""

    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(784, 64)
        self.norm = nn.BatchNorm1d(64)
        self.fc2 = nn.Linear(64, 10)

    def forward(self, x, target):
        hidden = torch.relu(self.norm(self.fc1(x.flatten(1))))
        scores = self.fc2(hidden)
        loss = F.cross_entropy(scores, target, label_smoothing=0.1) + 0.01 * hidden.square().mean()
        return scores, loss


def resnet18():
    import torchvision

    return torchvision.models.resnet18(num_classes=10)


def vit():
    import torchvision

    return torchvision.models.VisionTransformer(image_size=32, patch_size=8, num_layers=2, num_heads=4, hidden_dim=64,
                                                mlp_dim=128, num_classes=10, dropout=0.1, attention_dropout=0.1)


MODELS: dict[str, Callable[[], Case]] = {
    "lenet": lambda: Case(LeNet(), (1, 28, 28)),
    "mlp": lambda: Case(mlp(), (1, 28, 28)),
    "resnet18": lambda: Case(resnet18(), (3, 32, 32)),
    "vit": lambda: Case(vit(), (3, 32, 32)),
    "nanogpt": lambda: Case(NanoGpt(), (32,), (32,), vocabulary=65, classes=65),
    "lstm": lambda: Case(Recurrent(nn.LSTM, 0.2), (12,), vocabulary=100),
    "gru": lambda: Case(Recurrent(nn.GRU, 0), (12,), vocabulary=100),
    "encoder": lambda: Case(Encoder(), (12,), vocabulary=100),
    "unet": lambda: Case(UNet(), (1, 16, 16), (1, 16, 16), classes=0, loss="mse"),
    "autoencoder": lambda: Case(Autoencoder(), (1, 28, 28), (1, 28, 28), classes=0, loss="mse"),
    "deepfm": lambda: Case(DeepFm(), (8,), vocabulary=50, classes=2),
    "custom-loss": lambda: Case(WithLoss(), (1, 28, 28), loss="file"),
}


def without_randomness(module):
    """Sets the probability of every dropout to 0: what remains must have PyTorch's bits."""
    for part in module.modules():
        if isinstance(part, nn.modules.dropout._DropoutNd):
            part.p = 0.0
        elif isinstance(getattr(part, "dropout", None), float):
            part.dropout = 0.0
    return module


def export(case, path, batch=4):
    """Writes the model as a user would."""
    generator = torch.Generator().manual_seed(0)
    args = [case.inputs(batch, generator)]
    if case.loss == "file":
        args.append(case.targets(batch, generator))
    samples = torch.export.Dim("samples")
    program = torch.export.export(case.module.train(), tuple(args), dynamic_shapes=tuple({0: samples} for _ in args))
    torch.export.save(program, path)
    return program
