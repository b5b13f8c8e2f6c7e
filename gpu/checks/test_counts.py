"""Every allocation is recorded: compares PyTorch's own counters with the recording."""

import pytest

from support import training
from support.runs import at, need

torch = pytest.mark.needs("torch")
equal = pytest.mark.goal("PyTorch's own count of allocations equals the recording's")
OVERHEAD = 128 << 20


def allocations(run):
    """PyTorch's own count."""
    return at(run.figures, "end", "torch", "allocation.all.allocated")


def recorded(run, kind):
    """The number of calls of one kind in the recording."""
    return at(run.replay, "trace", "calls", kind, "done")


def compare(show, theirs, ours, who="PyTorch"):
    show(f"{who} counts {theirs} allocations, the recording {ours}", theirs=theirs, ours=ours)
    assert theirs == ours is not None, "the counts differ"


@torch
@equal
@pytest.mark.parametrize("mode", ["native", "expandable"], ids="train_{}".format)
def test_train(runs, show, mode):
    run = training.recorded(runs, mode)
    compare(show, allocations(run), recorded(run, "tensor_alloc"))


@torch
@equal
def test_workers_fork(runs, show):
    run = runs.recorded("workers_fork", runs.python("torch_workers.py", "fork"))
    compare(show, allocations(run), recorded(run, "tensor_alloc"))


@torch
@equal
def test_train_async(runs, show):
    # This backend does not count. The program is the same, so the count of the native allocator applies.
    native, stream_ordered = training.recorded(runs, "native"), training.recorded(runs, "async")
    compare(show, allocations(native), recorded(stream_ordered, "stream_alloc"), "PyTorch's native allocator")


@torch
@pytest.mark.goal("the recorded peak is PyTorch's reserved memory plus less than 128 MiB")
def test_train_native_peak(runs, show):
    run = training.recorded(runs, "native")
    reserved = need(run.figures, "end", "torch", "reserved_bytes.all.peak")
    allocated = at(run.figures, "end", "torch", "allocated_bytes.all.peak")
    ours = need(run.why, "run", "peaks", 0, "bytes")
    show(f"at its peak PyTorch reserved {reserved >> 20} MiB; the process used {ours >> 20} MiB",
         allocated=allocated, reserved=reserved, ours=ours)
    assert reserved <= ours <= reserved + OVERHEAD, "the peaks differ"


@pytest.mark.needs("nvcc")
@pytest.mark.goal("no free is pending after the program has synchronized each of its streams")
def test_streams_waited(runs, show):
    run = runs.recorded("streams", [runs.build("streams", "streams.cu")])
    frees, pending = recorded(run, "stream_free"), at(run.why, "run", "pending_frees")
    show(f"{frees} frees in stream order, all known to be complete after cudaStreamSynchronize", frees=frees)
    assert frees == 201, f"{frees} frees in stream order are recorded instead of 201"
    assert pending == [], "frees are reported as pending after their streams were synchronized"
