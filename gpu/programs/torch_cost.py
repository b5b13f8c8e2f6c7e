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


# What each function says of the time up to now; both are there only under a recorder that measures.
COSTS = {"makeroom_recorder_cost": ("inside_ns", "calls", "events"), "makeroom_pool_cost": ("inside_ns", "calls")}


def cost(function):
    """What a function of the recorder's says; None without one that measures."""
    figures = (ctypes.c_uint64 * len(COSTS[function]))()
    try:
        answer = getattr(ctypes.CDLL(None), function)(figures)
    except AttributeError:
        return None
    return list(figures) if answer == 0 else None


def difference(function, before):
    """What was added since."""
    after = cost(function)
    return before and after and dict(zip(COSTS[function], (b - a for a, b in zip(before, after))))


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
    recorder_before, pool_before = cost("makeroom_recorder_cost"), cost("makeroom_pool_cost")
    plain = timed(training, steps)
    recorder = difference("makeroom_recorder_cost", recorder_before)
    pool = difference("makeroom_pool_cost", pool_before)
    allocations = figures.torch_counts().get("allocation.all.allocated", 0) - before
    history = None
    if with_history:
        torch.cuda.memory._record_memory_history(stacks="python", context="all")
        timed(training, 2)
        history = timed(training, steps)
    figures.note("end", seconds=plain, history_seconds=history, allocations=allocations, recorder=recorder, pool=pool)


main(sys.argv[1], int(sys.argv[2]), "history" in sys.argv[3:])
