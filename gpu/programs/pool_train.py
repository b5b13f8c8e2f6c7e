"""Trains a GPT with a new sequence length every step; prints each loss to the last bit and notes times and peaks.

The allocator is chosen from outside. Arguments: the model's size, the number of steps, and `stream` for a program that asks
PyTorch for a stream: it makes a whole pool of them then, as it also does for its stream-ordered allocator. The first steps are not timed:
kernels are loaded and the allocator fills its cache. Where the pool measures itself (`MAKEROOM_MEASURE=on`), it is asked
before and after the steps that are timed."""

import statistics
import sys
import time

import torch

import figures
from gpt import Training

WARM_UP = 10


def main(size, steps, has_stream):
    training = Training(size)
    if has_stream:
        torch.cuda.Stream()
    times, pool = [], None
    for step in range(steps):
        if step == WARM_UP:
            torch.cuda.synchronize()
            pool = figures.cost("makeroom_pool_cost")
        begin = time.perf_counter()
        loss = training.step()
        times.append(time.perf_counter() - begin)
        print(f"step {step}: {loss.hex()}")
    torch.cuda.synchronize()
    figures.note(
        "end",
        seconds=sum(times),
        timed_seconds=sum(times[WARM_UP:]),
        pool=figures.difference("makeroom_pool_cost", pool),
        median_step=statistics.median(times[WARM_UP:]),
        peak_reserved=torch.cuda.max_memory_reserved(),
        peak_allocated=torch.cuda.max_memory_allocated(),
        nvml=figures.nvml(),
    )


main(sys.argv[1], int(sys.argv[2]), "stream" in sys.argv[3:])
