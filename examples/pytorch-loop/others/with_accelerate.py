import torch
from accelerate import Accelerator
from torch.nn import functional as F
from torch.utils.data import DataLoader

from net import Net, data

torch.manual_seed(1)
accelerator = Accelerator(cpu=True)
model = Net()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
loader = DataLoader(data, batch_size=64 // accelerator.num_processes, shuffle=True)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
for epoch in range(3):
    for x, y in loader:
        optimizer.zero_grad()
        accelerator.backward(F.cross_entropy(model(x), y))
        optimizer.step()
