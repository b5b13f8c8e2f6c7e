"""Trains a small network with batches of the size given: activations grow with it, weights do not.

    python batch.py 20000
"""

import sys

import torch
from torch import nn

torch.cuda.memory._record_memory_history()
batch = int(sys.argv[1])
model = nn.Sequential(nn.Linear(100, 500), nn.ReLU(), nn.Linear(500, 10)).cuda()
optimizer = torch.optim.Adam(model.parameters())
# The data stays on the host; only one batch is on the GPU.
data, target = torch.randn(100_000, 100), torch.randn(100_000, 10)
for start in range(0, len(data), batch):
    output = model(data[start : start + batch].cuda())
    nn.functional.mse_loss(output, target[start : start + batch].cuda()).backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
torch.cuda.memory._dump_snapshot("batch.pickle")
