"""The time of training steps, for comparing runs. Arguments: the model's size, the number of steps, and `history` to run
the same steps once more with PyTorch's own recording on: it is makeroom's peer, in the same process.

The first steps are not timed: kernels are loaded and the allocator fills its cache. Where a recorder measures itself
(`MAKEROOM_MEASURE=on`), it is asked before and after the steps that are timed: what it did once, before them, is no part of
its cost for training."""

import random
import sys
import time

import torch

import figures
from gpt import Training

WARM_UP = 8


def timed(training, steps):
    training.lengths = random.Random(1)
    times = []
    for _ in range(steps):
        begin = time.perf_counter()
        training.step()
        times.append(time.perf_counter() - begin)
    torch.cuda.synchronize()
    return times


def main(size, steps, with_history):
    training = Training(size)
    timed(training, WARM_UP)
    before = figures.torch_counts().get("allocation.all.allocated", 0)
    recorder_before = figures.cost("makeroom_recorder_cost")
    plain = timed(training, steps)
    recorder = figures.difference("makeroom_recorder_cost", recorder_before)
    allocations = figures.torch_counts().get("allocation.all.allocated", 0) - before
    history = None
    if with_history:
        torch.cuda.memory._record_memory_history(stacks="python", context="all")
        timed(training, 2)
        history = timed(training, steps)
    figures.note("end", seconds=plain, history_seconds=history, allocations=allocations, recorder=recorder)


main(sys.argv[1], int(sys.argv[2]), "history" in sys.argv[3:])
