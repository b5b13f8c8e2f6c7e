"""What PyTorch takes on a device outside of its own count, step by step: context, kernels, cuBLAS, cuDNN.

Writes figures only: they are the ground truth of the ledger's line for context and code."""

import torch

import figures


def moment(name):
    torch.cuda.synchronize()
    figures.note(name, torch=figures.torch_counts(), nvml=figures.nvml())


figures.note("before", nvml=figures.nvml())
torch.cuda.init()
figures.note("initialised", nvml=figures.nvml())
x = torch.empty(1024, 1024, device="cuda")
moment("first tensor")
x.normal_()
moment("first kernel")
y = x @ x
moment("first product (cuBLAS)")
images = torch.nn.functional.conv2d(torch.ones(8, 16, 64, 64, device="cuda"), torch.ones(16, 16, 3, 3, device="cuda"))
moment("first convolution (cuDNN)")
print(tuple(y.shape), tuple(images.shape))
