"""Trains a GPT with a new sequence length every step; prints each loss to the last bit and notes times and peaks.

The allocator is chosen from outside. Arguments: the model's size, the number of steps. The first steps are not timed:
kernels are loaded and the allocator fills its cache."""

import statistics
import sys
import time

import torch

import figures
from gpt import Training

WARM_UP = 10


def main(size, steps):
    training = Training(size)
    times = []
    for step in range(steps):
        begin = time.perf_counter()
        loss = training.step()
        times.append(time.perf_counter() - begin)
        print(f"step {step}: {loss.hex()}")
    torch.cuda.synchronize()
    figures.note(
        "end",
        seconds=sum(times),
        median_step=statistics.median(times[WARM_UP:]),
        peak_reserved=torch.cuda.max_memory_reserved(),
        peak_allocated=torch.cuda.max_memory_allocated(),
        nvml=figures.nvml(),
    )


main(sys.argv[1], int(sys.argv[2]))
