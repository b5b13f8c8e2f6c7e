"""Trains on sequences of varying length until memory is fragmented: each length needs blocks of other sizes.

    python varying.py                                                            runs out of memory
    PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True python varying.py           the fix
"""

import random

import torch
from torch import nn

torch.cuda.memory._record_memory_history()
torch.cuda.set_per_process_memory_fraction(6 * 2**30 / torch.cuda.get_device_properties(0).total_memory)

layer = nn.TransformerEncoderLayer(1024, 16, 4096, batch_first=True)
model = nn.Sequential(nn.Embedding(32000, 1024), nn.TransformerEncoder(layer, 6), nn.Linear(1024, 32000)).cuda()
optimizer = torch.optim.AdamW(model.parameters())
lengths = random.Random(0)
try:
    for step in range(60):
        tokens = torch.randint(32000, (8, lengths.randint(64, 900)), device="cuda")
        loss = nn.functional.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
finally:
    torch.cuda.memory._dump_snapshot("varying.pickle")
