import horovod.torch as hvd
import torch
from torch.nn import functional as F
from torch.utils.data import DataLoader

from net import Net, data

hvd.init()
torch.manual_seed(1)
model = Net()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
sampler = hvd.elastic.ElasticSampler(data, shuffle=True)
loader = DataLoader(data, batch_size=64 // hvd.size(), sampler=sampler)


@hvd.elastic.run
def train(state):
    for state.epoch in range(state.epoch, 3):
        for batch, (x, y) in enumerate(loader):
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
            state.sampler.record_batch(batch, loader.batch_size)
            state.commit()
        state.sampler.set_epoch(state.epoch + 1)


state = hvd.elastic.TorchState(model=model, optimizer=optimizer, sampler=sampler, epoch=0)
train(state)
