"""A block of code, watched: its peak, the lines that held it, what it and each of its steps left behind.

    with makeroom.watch() as w:
        for batch in batches:
            train(batch)
            w.step()
    print(w)

Where the figures come from is `_sources.py`'s: the recorder, makeroom's pool, or PyTorch's own counters.
"""

from __future__ import annotations

import json
import statistics
import time
from types import TracebackType
from typing import Any, NamedTuple

from ._sizes import show
from ._sources import Source, WatchError, choose

__all__ = ["Site", "Step", "Watch", "WatchError", "WatchedDevice", "watch"]

_MOST_LINES = 8


class Site(NamedTuple):
    """A line of the program that holds memory, with the lines it called."""

    place: str
    bytes: int
    blocks: int
    calls: list[Site]


class Step(NamedTuple):
    """What lies between two calls of `step()`."""

    peak_bytes: int
    after_bytes: int


class WatchedDevice(NamedTuple):
    """One device while it was watched. Bytes are what the program asked for. Lines are empty where the source knows none."""

    device: int
    before_bytes: int
    peak_bytes: int
    after_bytes: int
    left_bytes: int
    left_blocks: int | None
    allocations: int | None
    sites: list[Site]
    left_sites: list[Site]
    leaking: list[Site]
    steps: list[Step]

    @property
    def leak_per_step_bytes(self) -> int | None:
        """How much more is live after each step than after the one before, at the median, the first step aside: it fills
        caches. `None` with fewer than two steps."""
        ends = [step.after_bytes for step in self.steps]
        growth = [after - before for before, after in zip(ends, ends[1:])]
        return int(statistics.median(growth)) if growth else None


class Watch:
    """What `watch` gives: figures when the block is over."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._started: float | None = None
        self._seconds = 0.0
        self._count = 0
        self._devices: list[WatchedDevice] | None = None

    @property
    def source(self) -> str:
        """`recorder`, `pool` or `torch`."""
        return self._source.name

    @property
    def devices(self) -> list[WatchedDevice]:
        """The figures of each device that was used."""
        if self._devices is None:
            raise WatchError("the block is still being watched\n\nhint: ask after the `with` block")
        return self._devices

    @property
    def peak_bytes(self) -> int:
        """The most that was live at once, on the device where that was most."""
        return max((device.peak_bytes for device in self.devices), default=0)

    @property
    def taken_bytes(self) -> int:
        """The most that was live at once beyond what was there before, on the device where that was most."""
        return max((device.peak_bytes - device.before_bytes for device in self.devices), default=0)

    @property
    def left_bytes(self) -> int:
        """What was taken in the block and is still there after it, on all devices."""
        return sum(device.left_bytes for device in self.devices)

    @property
    def leak_per_step_bytes(self) -> int | None:
        """What each step leaves behind, on all devices; `None` with fewer than two steps."""
        leaks = [leak for leak in (device.leak_per_step_bytes for device in self.devices) if leak is not None]
        return sum(leaks) if leaks else None

    def step(self) -> None:
        """Ends a step: call it once in each iteration, at its end."""
        if self._started is None or self._devices is not None:
            raise WatchError("there is no block to end a step of\n\nhint: with makeroom.watch() as w: …; w.step()")
        self._count += 1
        self._source.mark()

    def __enter__(self) -> Watch:
        if self._started is not None:
            raise WatchError("a watch is used once\n\nhint: with makeroom.watch() as another: …")
        self._source.begin()
        self._started = time.perf_counter()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._seconds = time.perf_counter() - (self._started or 0)
        self._devices = [_device(device) for device in self._source.end()]

    def to_dict(self) -> dict[str, Any]:
        """All of it, for a file or a log."""
        named = [{**device._asdict(), "leak_per_step_bytes": device.leak_per_step_bytes} for device in self.devices]
        return json.loads(json.dumps({"source": self.source, "seconds": self._seconds, "devices": named}))

    def __repr__(self) -> str:
        if self._devices is None:
            return f"<makeroom.Watch, not over, by {self._source.name}>"
        lines = [f"watched {self._seconds:.2f} s by {self._source.words}"]
        if not self._devices:
            lines.append("  no GPU memory was used")
        for device in self._devices:
            lines += _text(device)
        lines += [f"  note: {note}" for note in self._source.notes]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        from html import escape

        return f"<pre>{escape(repr(self))}</pre>"


def watch(*, lines: bool | None = None, source: str | None = None) -> Watch:
    """Watches a block of code.

    `source` is where figures come from: `"recorder"` in a process that `makeroom run` started, `"pool"` after
    `makeroom.use_pool()`, `"torch"` with PyTorch on CUDA; without it the first of these that is there.
    `lines=True` asks for the lines that hold memory: the recorder has them anyway, PyTorch records them then, which slows
    it down; `lines=False` goes without.
    """
    return Watch(choose(source, lines))


def _device(figures: dict[str, Any]) -> WatchedDevice:
    steps = [Step(step["peak_bytes"], step["after_bytes"]) for step in figures["steps"]]
    return WatchedDevice(
        device=figures["device"],
        before_bytes=figures["before_bytes"],
        peak_bytes=figures["peak_bytes"],
        after_bytes=figures["after_bytes"],
        left_bytes=figures["left_bytes"],
        left_blocks=figures["left_blocks"],
        allocations=figures["allocations"],
        sites=[_site(site) for site in figures["sites"]],
        left_sites=[_site(site) for site in figures["left_sites"]],
        leaking=[_site(site) for site in figures["leaking"]],
        # What follows the last step() is not a step.
        steps=steps[:-1],
    )


def _site(site: dict[str, Any]) -> Site:
    return Site(site["site"], site["bytes"], site["blocks"], [_site(callee) for callee in site["calls"]])


def _text(device: WatchedDevice) -> list[str]:
    count = "" if device.allocations is None else f", {device.allocations} allocations"
    lines = [
        f"  GPU {device.device}: {show(device.peak_bytes)} at the peak, {show(device.before_bytes)} before, "
        f"{show(device.after_bytes)} after{count}"
    ]
    if device.sites:
        lines += ["  who held it at the peak", *_tree(device.sites)]
    if device.left_bytes:
        blocks = "" if device.left_blocks is None else f" in {device.left_blocks} blocks"
        lines += [f"  left behind: {show(device.left_bytes)}{blocks}", *_tree(device.left_sites)]
    leak = device.leak_per_step_bytes
    if leak is not None:
        grows = f"each leaves {show(leak)} behind" if leak > 0 else "none leaves anything behind"
        lines.append(f"  {len(device.steps)} steps: {grows}")
        if leak > 0:
            lines += _tree(device.leaking)
    return lines


def _tree(sites: list[Site]) -> list[str]:
    """The largest places, what is called under what calls."""
    lines: list[str] = []

    def add(sites: list[Site], depth: int) -> None:
        for site in sites:
            lines.append(f"    {show(site.bytes):>12}  {'  ' * depth}{site.place}")
            add(site.calls, depth + 1)

    add(sites, 0)
    rest = len(lines) - _MOST_LINES
    return lines if rest <= 1 else [*lines[:_MOST_LINES], f"    {'':>12}  and {rest} more"]
