"""The time of training steps, for comparing runs. Arguments: the model's size, the number of steps, and `history` to run
the same steps once more with PyTorch's own recording on: it is makeroom's peer, in the same process.

The first steps are not timed: kernels are loaded and the allocator fills its cache. Where a recorder measures itself
(`MAKEROOM_MEASURE=on`), it is asked before and after the steps that are timed: what it did once, before them, is no part of
its cost for training."""

import ctypes
import random
import sys
import time

import torch

import figures
from gpt import Training

WARM_UP = 8


def recorder_cost():
    """Nanoseconds inside the recorder, its calls, its events up to now; None without a recorder that measures."""
    figures = (ctypes.c_uint64 * 3)()
    try:
        answer = ctypes.CDLL(None).makeroom_recorder_cost(figures)
    except AttributeError:
        return None
    return list(figures) if answer == 0 else None


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
    before, cost_before = figures.torch_counts()["allocation.all.allocated"], recorder_cost()
    plain = timed(training, steps)
    allocations, cost = figures.torch_counts()["allocation.all.allocated"] - before, recorder_cost()
    recorder = cost and cost_before and dict(zip(("inside_ns", "calls", "events"), (b - a for a, b in zip(cost_before, cost))))
    history = None
    if with_history:
        torch.cuda.memory._record_memory_history(stacks="python", context="all")
        timed(training, 2)
        history = timed(training, steps)
    figures.note("end", seconds=plain, history_seconds=history, allocations=allocations, recorder=recorder)


main(sys.argv[1], int(sys.argv[2]), "history" in sys.argv[3:])
