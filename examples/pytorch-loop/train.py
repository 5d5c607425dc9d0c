"""LeNet with dropout and batch normalization on the sample of MNIST in examples/data.

    python train.py                                                   trains alone
    muster train --program train.py --workers 4                       with four workers: the same bits
    muster verify --program train.py --workers 4 --faults kill:5      proves it
"""

import gzip
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import muster

DATA = Path(__file__).resolve().parent.parent / "data" / "mnist"


class LeNet(nn.Sequential):
    def __init__(self) -> None:
        super().__init__(
            nn.Conv2d(1, 20, 5), nn.BatchNorm2d(20), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(20, 50, 5), nn.BatchNorm2d(50), nn.ReLU(), nn.MaxPool2d(2),
            nn.Flatten(), nn.Linear(800, 256), nn.ReLU(), nn.Dropout(0.3), nn.Linear(256, 10))


def read_idx(name: str) -> Tensor:
    data = gzip.decompress((DATA / name).read_bytes())
    shape = [int.from_bytes(data[4 + 4 * i:8 + 4 * i], "big") for i in range(data[3])]
    return torch.frombuffer(bytearray(data[4 + 4 * len(shape):]), dtype=torch.uint8).reshape(shape)


def samples(part: str) -> tuple[Tensor, Tensor]:
    images = (read_idx(f"{part}-images-idx3-ubyte.gz").float() / 255 - 0.1307) / 0.3081
    return images.unsqueeze(1), read_idx(f"{part}-labels-idx1-ubyte.gz").long()


def main() -> None:
    run = muster.join(lanes=8, seed=7, options={"checkpoint": {"every": "50 steps"}})
    model = run.attach(LeNet(), muster.AdamW(lr=2e-3, schedule=muster.Cosine(warmup=20)))
    for step in run.steps(samples("train"), batch=64, passes=6):
        for images, labels in step:
            step.backward(F.cross_entropy(model(images), labels))

    model.eval()
    images, labels = samples("t10k")
    with torch.no_grad():
        correct = (model(images).argmax(dim=1) == labels).float().mean().item()
    print(f"test accuracy: {correct:.3f}")


if __name__ == "__main__":
    main()
