"""Trains a GPT with a new sequence length every step, and prints each loss to the last bit.

The allocator is chosen from outside (PYTORCH_CUDA_ALLOC_CONF). Arguments: the model's size, the number of steps."""

import sys

import torch

import figures
from gpt import Training


def main(size, steps):
    training = Training(size)
    figures.note("model", torch=figures.torch_counts(), nvml=figures.nvml())
    for step in range(steps):
        print(f"step {step}: {training.step().hex()}")
    torch.cuda.synchronize()
    figures.note("end", torch=figures.torch_counts(), nvml=figures.nvml())


main(sys.argv[1], int(sys.argv[2]))
