"""PyTorch is refused memory a hundred times and goes on: compares its statistics before and after, and prints JSON.

Argument: the pattern of the refused requests: `plain`, `autograd` (in the backward pass, on another thread), `capture` (while
a CUDA graph is captured) or `cached` (requests that only blocks in the cache can serve, after other memory has filled the
GPU). Run it under `makeroom run --limit`, which refuses growth in the driver."""

import json
import sys

import torch

TIMES = 100
HUGE = 1 << 40


def refused(action):
    try:
        action()
    except (torch.OutOfMemoryError, RuntimeError) as error:
        return "out of memory" in str(error).lower()
    return False


def fill(step):
    """Allocates until PyTorch is refused."""
    held = []
    while not refused(lambda: held.append(torch.empty(step, dtype=torch.uint8, device="cuda"))):
        pass
    return held


class Wasteful(torch.autograd.Function):
    @staticmethod
    def forward(context, tensor):
        return tensor.clone()

    @staticmethod
    def backward(context, gradient):
        torch.empty(HUGE, dtype=torch.uint8, device="cuda")
        return gradient


def plain():
    return refused(lambda: torch.empty(HUGE, dtype=torch.uint8, device="cuda"))


def autograd():
    tensor = torch.ones(8, device="cuda", requires_grad=True)
    return refused(lambda: Wasteful.apply(tensor).sum().backward())


def capture():
    graph = torch.cuda.CUDAGraph()

    def record():
        with torch.cuda.graph(graph):
            torch.empty(HUGE, dtype=torch.uint8, device="cuda")

    return refused(record)


def cached():
    # The cache keeps the first tensor's memory; everything else is taken.
    tensor = torch.empty(256 << 20, dtype=torch.uint8, device="cuda")
    del tensor
    held = fill(64 << 20)
    was_refused = plain()
    del held
    return was_refused


def counts():
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    statistics = torch.cuda.memory_stats()
    names = ["allocated_bytes", "reserved_bytes", "active_bytes", "requested_bytes", "allocation", "segment", "active"]
    found = {name: statistics[f"{name}.all.current"] for name in names}
    return found, statistics["num_ooms"]


def main():
    action = {"plain": plain, "autograd": autograd, "capture": capture, "cached": cached}[sys.argv[1]]
    keep = torch.ones(1 << 20, device="cuda")
    action()
    before, ooms_before = counts()
    times = sum(action() for _ in range(TIMES if sys.argv[1] != "cached" else 10))
    after, ooms_after = counts()
    differences = {name: (before[name], after[name]) for name in before if before[name] != after[name]}
    print(json.dumps({"pattern": sys.argv[1], "refused": times, "counted": ooms_after - ooms_before,
                      "differences": differences, "works": int(keep.sum()) == 1 << 20,
                      "sum": int(torch.arange(100, device="cuda").sum())}))


main()
