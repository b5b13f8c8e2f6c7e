"""Allocates and frees tensors in a loop, then allocates a larger one. PyTorch reuses what was freed, so this does not
fragment; empty_cache() in the loop only makes it slower."""

import torch

for _ in range(100):
    small = torch.randn(1024, 1024, device="cuda")
    del small
    torch.cuda.empty_cache()
large = torch.randn(2048, 2048, device="cuda")

torch.cuda.memory._dump_snapshot("reuse.pickle")
