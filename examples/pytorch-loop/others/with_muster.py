from torch.nn import functional as F

import muster
from net import Net, data

run = muster.join(lanes=4, seed=1)
model = run.attach(Net(), muster.AdamW(lr=1e-3))
for step in run.steps(data, batch=64, passes=3):
    for x, y in step:
        step.backward(F.cross_entropy(model(x), y))
