"""`watch(lines=True)` with the memory history of a simulated PyTorch allocator."""

from __future__ import annotations

import json
import sys
import types

import pytest

import makeroom
from allocator import MIB, Cuda
from makeroom._impl import _sources


class Clock:
    """A clock in nanoseconds that advances with each call."""

    def __init__(self, each):
        self.now, self.each = 1_763_220_000_000_000_000, each

    def __call__(self):
        self.now += self.each
        return self.now


@pytest.fixture(params=[130, 170, 230, 900])
def cuda(monkeypatch, request):
    clock = Clock(request.param)
    monkeypatch.setattr(_sources, "time", types.SimpleNamespace(time_ns=clock, monotonic_ns=clock))
    torch = types.ModuleType("torch")
    torch.cuda = Cuda(clock)
    torch._C = types.SimpleNamespace(_cuda_isHistoryEnabled=lambda: torch.cuda._is_recording)
    torch.version = types.SimpleNamespace(cuda="13.0")
    monkeypatch.setitem(sys.modules, "torch", torch)
    torch.cuda.take(4)
    return torch.cuda


def train(cuda, kept, is_used_elsewhere=False):
    buffer = cuda.take(64 * MIB)
    kept.append(cuda.take(3 * MIB))
    cuda.give(buffer, is_used_elsewhere)


def check(w, peak_bytes, steps=5):
    (device,) = w.devices
    assert w.leak_per_step_bytes == 3 * MIB
    assert [step.after_bytes for step in device.steps] == [4 + 3 * MIB * count for count in range(1, steps + 1)]
    assert device.before_bytes == 4
    assert device.after_bytes == 4 + 3 * MIB * steps
    assert (device.left_bytes, w.peak_bytes) == (3 * MIB * steps, peak_bytes)
    return device


def test_a_buffer_given_back_just_before_a_step_ends_is_no_leak(cuda):
    kept = []
    with makeroom.watch(lines=True) as w:
        for _ in range(5):
            train(cuda, kept)
            w.step()
    device = check(w, 4 + (5 * 3 + 64) * MIB)
    assert [step.peak_bytes for step in device.steps] == [4 + (3 * count + 64) * MIB for count in range(1, 6)]
    # Without the first step: all of it is at the line that keeps it, none at the line of the buffer.
    (leaking,) = device.leaking
    assert (leaking.bytes, leaking.blocks) == (4 * 3 * MIB, 4)
    assert "allocator" not in leaking.place and f":{train.__code__.co_firstlineno + 2} train" in leaking.place
    assert device.left_blocks == 5 and device.allocations == 10
    assert not cuda._is_recording


def test_a_buffer_that_waits_for_another_stream_is_no_leak(cuda):
    kept = []
    with makeroom.watch(lines=True) as w:
        for count in range(5):
            # In some steps only: a constant amount of waiting memory would not show.
            train(cuda, kept, is_used_elsewhere=count in (1, 4))
            w.step()
    device = check(w, 4 + (5 * 3 + 64) * MIB)
    assert sum(site.bytes for site in device.left_sites) == 15 * MIB
    assert device.left_blocks == 5


def test_the_same_without_lines(cuda):
    kept = []
    with makeroom.watch() as w:
        for count in range(5):
            train(cuda, kept, is_used_elsewhere=count in (1, 4))
            w.step()
    check(w, 4 + (5 * 3 + 64) * MIB)


def test_a_history_that_has_lost_its_beginning_is_told(cuda):
    kept = []
    # Enabled by the program, with seven entries: less than two steps.
    cuda._record(max_entries=7)
    with makeroom.watch(lines=True) as w:
        for _ in range(5):
            train(cuda, kept)
            w.step()
    device = check(w, 4 + (5 * 3 + 64) * MIB)
    assert [step.peak_bytes for step in device.steps] == [4 + (3 * count + 64) * MIB for count in range(1, 6)]
    assert "PyTorch's memory history dropped its oldest entries" in repr(w)
    assert "train" in json.dumps(device.leaking)
    assert cuda._is_recording


def test_counters_begun_anew_leave_the_times(cuda):
    kept = []
    with makeroom.watch(lines=True) as w:
        for count in range(5):
            train(cuda, kept)
            if count == 3:
                for counts in cuda._counts.values():
                    counts[2:] = [0, 0]
            w.step()
    device = check(w, 4 + (5 * 3 + 64) * MIB)
    assert sum(site.bytes for site in device.leaking) == 4 * 3 * MIB
