"""The host time of the pool's policy per allocation and free, for the patterns that PyTorch's allocator was measured with.

PyTorch's figures are from another machine (the host of an H200): they are a guide, not a comparison. `gpu/check --only speed`
compares both in one process, on a GPU; the goal is at most a third of PyTorch's time.
"""
from harness import Figure, build, figure, once, ratio_at_most

# Nanoseconds of PyTorch's native allocator.
PYTORCH = {"the same size again": 422, "1000 of 512 B-1 MiB": 931, "400 of 1-256 MiB": 784, "1000 of 512 B-256 MiB": 1104,
           "4000 of 512 B-64 MiB": 1115}


@figure
def time(options):
    for name, nanoseconds in build.cargo_bench("makeroom-place", "policy").items():
        pattern = name.removeprefix("pair / ")
        yield Figure(f"time of a pair, {pattern}", nanoseconds, "ns", "PyTorch (H200)", PYTORCH[pattern], ratio_at_most(0.333))


@once
def counted(options):
    """For each pattern: calls of the backing per pair, and reserved ÷ live memory. The same in every run."""
    lines = build.call([build.example("makeroom-place", "pool_counts")]).splitlines()[1:]
    return [(name, float(calls), float(reserved)) for name, calls, reserved in (line.split("\t") for line in lines)]


@figure
def driver_calls(options):
    for name, calls, _ in counted(options):
        yield Figure(f"driver calls per pair, {name}", calls, "")


@figure
def reserved(options):
    for name, _, reserved in counted(options):
        yield Figure(f"reserved ÷ live, {name}", reserved, "")
