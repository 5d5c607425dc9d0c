"""The model and the data of the scripts beside it: theirs is the loop."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from torch.utils.data import TensorDataset

from train import LeNet as Net
from train import samples

data = TensorDataset(*samples("train"))
