"""Sources of the figures of `watch`.

| source | available | lines | cost |
|---|---|---|---|
| recorder | under `makeroom run` | always | none beyond the recorder's |
| pool | after `makeroom.use_pool()`, if a framework uses makeroom's pool | none | a call into the pool for each step |
| torch | if PyTorch with CUDA is imported | with `lines=True` | counters for each step; with lines, a stack for each allocation |
| jax | if JAX is imported and has a GPU (`_jax.py`) | with `lines=True` | counters for each step; with lines, a profile for each |

All return the same figures for each device, in the format of `watched_json` in `makeroom-report`.
"""

from __future__ import annotations

import json
import os
import pickle
import tempfile
import time
from typing import Any, Callable

from . import _native, _recorder, _torch
from ._settings import is_notebook


# Names the memory for which no line was recorded.
NO_STACK = "no stack recorded"


class WatchError(RuntimeError):
    """Memory cannot be measured, or a `Watch` was used in the wrong order."""

    # Tracebacks show the public name.
    __module__ = "makeroom"


class Source:
    """Interface of a source: `begin`, `mark` at the end of each step, `end` returns the figures."""

    name = ""
    words = ""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def begin(self) -> None:
        raise NotImplementedError

    def mark(self) -> None:
        raise NotImplementedError

    def end(self) -> list[dict[str, Any]]:
        raise NotImplementedError

    def peak_so_far(self) -> int | None:
        """Return the highest peak up to the last mark; `None` if it is known only at the end."""
        return None

    def recording(self) -> tuple[str, _native.Recording] | None:
        """Return the name and the recording of the block after its end, if the source has one."""
        return None


class NoSource(Source):
    """Used if no source is available: the block runs, and a note states why there are no figures."""

    name, words = "none", "none"

    def __init__(self, reason: str) -> None:
        super().__init__()
        self.notes.append(f"GPU memory was not measured: {reason}")

    def begin(self) -> None:
        pass

    def mark(self) -> None:
        pass

    def end(self) -> list[dict[str, Any]]:
        return []


def choose(name: str | None, lines: bool | None) -> Source:
    """Return the source of this name, or the first one that is available."""
    from . import _jax, _pool

    if name is None:
        if _recorder.is_there():
            name = "recorder"
        elif _pool.current_pooled() is not None:
            name = "pool"
        elif _torch.on_cuda() is not None:
            name = "torch"
        else:
            jax = _jax.source(False, lines)
            if jax is None:
                raise WatchError(_nothing())
            return jax
    if name == "recorder":
        if not _recorder.is_there():
            raise WatchError(f"this process is not recorded\n\nhint: {_recording_hint()}")
        return RecorderSource()
    if name == "pool":
        pool = _pool.current()
        if pool is None:
            raise WatchError("makeroom's pool is not in use\n\nhint: call makeroom.use_pool() before the first allocation")
        return CounterSource("pool", "makeroom's pool", pool._counters())
    if name == "torch":
        torch = _torch.on_cuda()
        if torch is None:
            raise WatchError(_torch.why_not())
        return TorchHistorySource(torch) if lines else TorchSource(torch)
    if name == "jax":
        jax = _jax.source(True, lines)
        if jax is None:
            raise WatchError(_jax.why_not() or "JAX found no GPU")
        return jax
    raise WatchError(f"unknown source {name!r}\n\nhint: use 'recorder', 'pool', 'torch' or 'jax'")


class RecordingSource(Source):
    """A recording that is read at the end and divided at the marks."""

    def __init__(self) -> None:
        super().__init__()
        self._times: list[int] = []
        self._read: _native.Recording | None = None

    def read(self) -> _native.Recording | None:
        raise NotImplementedError

    def changes_after(self) -> dict[int, list[int]]:
        """Return the number of allocations and frees after each mark, by device. They locate marks better than timestamps."""
        return {}

    def begin(self) -> None:
        self.mark()

    def mark(self) -> None:
        # Recordings have microsecond resolution, and their clock is within a microsecond of this one. Keep a distance of
        # more than that between the mark and the events before and after it, so that their order is unambiguous.
        self._times.append(time.time_ns() // 1000 + 2)
        waits_until = time.monotonic_ns() + 3000
        while time.monotonic_ns() < waits_until:
            pass

    def end(self) -> list[dict[str, Any]]:
        self.mark()
        recording = self._read = self.read()
        if recording is None:
            return []
        self.notes += recording.notes
        watched: list[dict[str, Any]] = json.loads(recording.watched(self._times, self.changes_after()))
        return watched

    def recording(self) -> tuple[str, _native.Recording] | None:
        return None if self._read is None else (self.words, self._read)


class RecorderSource(RecordingSource):
    """The recording of this process."""

    name, words = "recorder", "recorder"

    def __init__(self) -> None:
        super().__init__()
        self._has_begun = False

    def begin(self) -> None:
        self._has_begun = _recorder.flush()
        super().begin()

    def read(self) -> _native.Recording | None:
        recording = _recorder.read_or_raise()
        if recording is None and self._has_begun:
            raise WatchError("the recording ended during the block: its file was deleted, or the disk is full")
        return recording


class Counter:
    """Counters of one device. `read` returns live bytes and their peak; `reset` restarts the peak."""

    def __init__(self, device: int, read: Callable[[], tuple[int, int]], reset: Callable[[], None]) -> None:
        self.device, self.read, self.reset = device, read, reset
        self.before, _ = self.read()
        self.steps: list[dict[str, int]] = []
        self.reset()

    def mark(self) -> None:
        live, peak = self.read()
        self.steps.append({"peak_bytes": peak, "after_bytes": live})
        self.reset()

    def figures(self) -> dict[str, Any]:
        after = self.steps[-1]["after_bytes"]
        return {
            "device": self.device,
            "before_bytes": self.before,
            "peak_bytes": max(step["peak_bytes"] for step in self.steps),
            "after_bytes": after,
            "left_bytes": max(after - self.before, 0),
            "left_blocks": None,
            "allocations": None,
            "sites": [],
            "taken": [],
            "left_sites": [],
            "leaking": [],
            "steps": self.steps,
        }


class CounterSource(Source):
    """Counters of an allocator, read at each step."""

    def __init__(self, name: str, words: str, make: Callable[[], list[Counter]]) -> None:
        super().__init__()
        self.name, self.words = name, words
        self._make = make
        self._counters: list[Counter] = []

    def begin(self) -> None:
        self._counters = self._make()

    def mark(self) -> None:
        for counter in self._counters:
            counter.mark()

    def end(self) -> list[dict[str, Any]]:
        self.mark()
        figures = [counter.figures() for counter in self._counters]
        return [each for each in figures if each["peak_bytes"] or each["after_bytes"]]

    def peak_so_far(self) -> int | None:
        return max((step["peak_bytes"] for counter in self._counters for step in counter.steps), default=0)


class TorchSource(CounterSource):
    """PyTorch's counters. Its peak is reset at each step."""

    def __init__(self, torch: Any) -> None:
        super().__init__("torch", "PyTorch's counters", lambda: _torch_counters(torch))
        self.notes.append("to see the lines that hold memory, use makeroom run -- python …, or makeroom.watch(lines=True)")


class TorchHistorySource(RecordingSource):
    """Take amounts from PyTorch's counters and lines from its memory history.

    The history uses another clock, and a tensor can be freed in less than a microsecond, so timestamps cannot locate a mark in
    it. Instead, marks are located by the number of allocations and frees at the mark and at the snapshot.
    """

    name, words = "torch", "PyTorch's memory history"

    def __init__(self, torch: Any) -> None:
        super().__init__()
        self._torch = torch
        self._was_on = False
        self._counters: list[Counter] = []
        # Allocations and frees of each device, for each mark and for the snapshot.
        self._changes: list[list[int | None]] = []
        self._in_history: list[int] = []

    def begin(self) -> None:
        memory = self._torch.cuda.memory
        is_enabled = getattr(self._torch._C, "_cuda_isHistoryEnabled", None)
        # If the program enabled the history, use it and leave it on.
        self._was_on = bool(is_enabled()) if is_enabled is not None else False
        if not self._was_on:
            try:
                memory._record_memory_history("all", context="all", stacks="python")
            except TypeError:
                # PyTorch before 2.1
                raise WatchError(
                    "this version of PyTorch cannot record lines: 2.1 or later is needed\n\n"
                    "hint: use makeroom run -- python …, or makeroom.watch(lines=False)"
                ) from None
        self._counters = _torch_counters(self._torch)
        self._count()
        super().mark()

    def mark(self) -> None:
        for counter in self._counters:
            counter.mark()
        self._count()
        super().mark()

    def end(self) -> list[dict[str, Any]]:
        watched = super().end()
        for device in watched:
            if device["device"] < len(self._counters):
                _say_how_much(device, self._counters[device["device"]].figures())
        return watched

    def peak_so_far(self) -> int | None:
        return max((step["peak_bytes"] for counter in self._counters for step in counter.steps), default=0)

    def changes_after(self) -> dict[int, list[int]]:
        found: dict[int, list[int]] = {}
        for device in range(len(self._counters)):
            counts = [count for each in self._changes if (count := each[device]) is not None]
            # If the program reset the counters, or a thread allocated during the snapshot, fall back to times.
            is_whole = len(counts) == len(self._changes) and counts == sorted(counts)
            if is_whole and counts[-2] == counts[-1]:
                found[device] = [counts[-1] - count for count in counts[:-1]]
        if any(found[device][0] > self._in_history[device] for device in found if device < len(self._in_history)):
            self.notes.append("PyTorch's memory history dropped its oldest entries, so some lines are missing")
        return found

    def _count(self) -> None:
        self._changes.append([_changes(self._torch.cuda, counter.device) for counter in self._counters])

    def read(self) -> _native.Recording | None:
        memory = self._torch.cuda.memory
        snapshot = memory._snapshot()
        self._count()
        actions = ("alloc", "free_completed")
        self._in_history = [sum(event["action"] in actions for event in trace) for trace in snapshot["device_traces"]]
        if not self._was_on:
            memory._record_memory_history(None)
        handle, path = tempfile.mkstemp(suffix=".pickle")
        try:
            with os.fdopen(handle, "wb") as file:
                pickle.dump(snapshot, file, protocol=4)
            recording = _native.read(path)
        finally:
            os.unlink(path)
        assert not isinstance(recording, str)
        return recording


def _torch_counters(torch: Any) -> list[Counter]:
    cuda = torch.cuda
    if not cuda.is_initialized():
        cuda.init()
    return [_torch_counter(cuda, device) for device in range(cuda.device_count())]


def _torch_counter(cuda: Any, device: int) -> Counter:
    # Requested bytes, without rounding, if this version counts them (2.0 and later).
    key = "requested_bytes" if "requested_bytes" in _statistics(cuda, device) else "allocated_bytes"

    def read() -> tuple[int, int]:
        stats = _statistics(cuda, device)
        counted = _all(stats, key)
        # Freed memory that another stream still uses counts toward the peak but is not live.
        waits = _all(stats, "active_bytes").get("current", 0) - _all(stats, "allocated_bytes").get("current", 0)
        live = counted.get("current", 0) - (waits if key == "requested_bytes" else 0)
        return max(int(live), 0), int(counted.get("peak", 0))

    return Counter(device, read, lambda: cuda.reset_peak_memory_stats(device))


def _changes(cuda: Any, device: int) -> int | None:
    """Return the number of allocations and completed frees, which are events of the history."""
    active = _all(_statistics(cuda, device), "active")
    allocated, freed = active.get("allocated"), active.get("freed")
    return None if allocated is None or freed is None else allocated + freed


def _statistics(cuda: Any, device: int) -> dict[str, Any]:
    # `memory_stats` flattens about two hundred figures, which is too slow to do at each step.
    stats: dict[str, Any] = cuda.memory_stats_as_nested_dict(device)
    return stats


def _all(stats: dict[str, Any], name: str) -> dict[str, int]:
    """Return a statistic for blocks of all sizes."""
    counted: dict[str, int] = stats.get(name, {}).get("all", {})
    return counted


def _say_how_much(watched: dict[str, Any], counted: dict[str, Any]) -> None:
    """Replace the amounts from a history, which may have dropped its oldest entries, with those from the counters."""
    # If the program reset PyTorch's peak, only the history has it.
    watched["peak_bytes"] = max(watched["peak_bytes"], counted["peak_bytes"])
    watched["left_bytes"] = max(watched["left_bytes"], counted["left_bytes"])
    watched.update({name: counted[name] for name in ("before_bytes", "after_bytes", "steps")})


def _nothing() -> str:
    from . import _jax

    found = [_torch.why_not(), *filter(None, [_jax.why_not()])]
    reasons, hints = zip(*(each.split("\n\nhint: ") for each in found))
    # If a framework that is imported finds no GPU, the recorder would find none either.
    imported = [hint for hint in hints if not hint.startswith("import ")]
    hint = imported[0] if imported else _recording_hint()
    return f"this process is not recorded, makeroom's pool is not in use, {' and '.join(reasons)}\n\nhint: {hint}"


def _recording_hint() -> str:
    """Return how to record this program. A notebook's kernel is recorded if the notebook server is."""
    if is_notebook():
        return "start the notebook server with makeroom run -- jupyter lab, which records its kernels, with every framework"
    return "run it with makeroom run -- python …, which works with every framework"
