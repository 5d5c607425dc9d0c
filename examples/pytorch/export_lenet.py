"""Writes lenet.pt2: a model in PyTorch, with its initial weights, for a job of Muster.

    pip install torch
    python export_lenet.py

PyTorch 2.8 or newer. Nothing of it is needed for training.
"""

import torch
import torch.nn.functional as F
from torch import nn


class LeNet(nn.Module):
    """LeNet-5 with batch normalization and dropout."""

    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 6, 5, padding=2)
        self.bn1 = nn.BatchNorm2d(6)
        self.conv2 = nn.Conv2d(6, 16, 5)
        self.fc1 = nn.Linear(16 * 5 * 5, 120)
        self.dropout = nn.Dropout(0.25)
        self.fc2 = nn.Linear(120, 84)
        self.fc3 = nn.Linear(84, 10)

    def forward(self, images):
        x = F.max_pool2d(torch.relu(self.bn1(self.conv1(images))), 2)
        x = F.max_pool2d(torch.relu(self.conv2(x)), 2)
        x = torch.relu(self.fc1(x.flatten(1)))
        x = torch.relu(self.fc2(self.dropout(x)))
        return self.fc3(x)


def main():
    torch.manual_seed(1)  # the initial weights
    model = LeNet()
    images = torch.zeros(4, 1, 28, 28)  # as the data of the job has them; their number is left open
    samples = torch.export.Dim("samples")
    program = torch.export.export(model.train(), (images,), dynamic_shapes=({0: samples},))
    torch.export.save(program, "lenet.pt2")


if __name__ == "__main__":
    main()
