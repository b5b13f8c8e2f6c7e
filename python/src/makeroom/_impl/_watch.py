"""Measure a block of code: its peak, the lines that hold memory, and the leak per step.

    with makeroom.watch() as w:
        for batch in batches:
            train(batch)
            w.step()
    print(w)

The figures come from the recorder, makeroom's pool or PyTorch: see `_sources.py`.
"""

from __future__ import annotations

import json
import statistics
import time
import warnings
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple

from ._sizes import counted, show
from ._sources import NO_STACK, NoSource, Source, WatchError, choose
from ._types import SourceName

if TYPE_CHECKING:
    from ._trace import Trace

__all__ = ["Site", "Step", "Watch", "WatchError", "WatchWarning", "WatchedDevice", "watch"]

_MOST_LINES = 8


class WatchWarning(UserWarning):
    """The memory of a block cannot be measured."""

    # Warnings show the public name.
    __module__ = "makeroom"


class Site(NamedTuple):
    """A line of code that holds memory, with the lines that it called."""

    place: str
    bytes: int
    blocks: int
    calls: list[Site]


class Step(NamedTuple):
    """Peak of one step, and the live memory at its end."""

    peak_bytes: int
    after_bytes: int


class WatchedDevice(NamedTuple):
    """Figures of one device.

    Sizes are as requested, without rounding. `sites` (live at the peak), `left_sites` (still live), `leaking` (leaked by
    steps) and `taken_sites` are empty if the source does not record lines.

    `taken_sites` are the lines that held more at the peak than before the block, without the lines that they called. They add
    up to the peak minus the memory before it, or to more if the block freed memory that was live before.
    """

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
    taken_sites: list[Site]

    @property
    def leak_per_step_bytes(self) -> int | None:
        """Median growth of live memory per step; `None` with fewer than two steps.

        The first step is excluded, because it fills caches.
        """
        ends = [step.after_bytes for step in self.steps]
        growth = [after - before for before, after in zip(ends, ends[1:])]
        return int(statistics.median(growth)) if growth else None


class _Finished(Source):
    """What remains of a source after its block: enough to print and pickle the result."""

    def __init__(self, name: str, words: str, notes: list[str]) -> None:
        super().__init__()
        self.name, self.words, self.notes = name, words, notes


class Watch:
    """Context manager that measures a block. After the block it has the figures, and can be printed, pickled and compared.

    Examples:
        >>> with makeroom.watch() as w:
        ...     train()
        >>> w.peak_bytes, w.left_bytes, w.devices[0].sites
    """

    def __init__(self, source: Source, is_required: bool = False) -> None:
        self._source = source
        self._is_required = is_required
        self._started: float | None = None
        self._seconds = 0.0
        self._count = 0
        self._devices: list[WatchedDevice] | None = None

    @property
    def source(self) -> str:
        """Source of the figures: `recorder`, `pool`, `torch` or `jax`; `none` if memory could not be measured."""
        return self._source.name

    @property
    def notes(self) -> list[str]:
        """Remarks about the figures."""
        return list(self._source.notes)

    @property
    def trace(self) -> Trace | None:
        """The recording of the block, if the source has one: the recorder, and PyTorch with `lines=True`. The recorder's
        begins when the program began. A result that was pickled has none."""
        from ._trace import Trace

        recording = self._source.recording()
        return None if recording is None else Trace(*recording)

    @property
    def devices(self) -> list[WatchedDevice]:
        """Figures of each device that was used."""
        if self._devices is None:
            raise WatchError("the block is still running\n\nhint: read the figures after the `with` block")
        return self._devices

    @property
    def peak_bytes(self) -> int:
        """Peak of live memory, on the device where it was highest."""
        return max((device.peak_bytes for device in self.devices), default=0)

    @property
    def taken_bytes(self) -> int:
        """Peak minus the memory that was live before the block, on the device where this was highest."""
        return max((device.peak_bytes - device.before_bytes for device in self.devices), default=0)

    @property
    def left_bytes(self) -> int:
        """Memory allocated in the block and still live after it, on all devices."""
        return sum(device.left_bytes for device in self.devices)

    @property
    def leak_per_step_bytes(self) -> int | None:
        """Median growth of live memory per step, on all devices; `None` with fewer than two steps."""
        leaks = [leak for leak in (device.leak_per_step_bytes for device in self.devices) if leak is not None]
        return sum(leaks) if leaks else None

    def step(self) -> None:
        """End a step. Call it at the end of each iteration.

        Raises:
            WatchError: It was called outside the `with` block.

        Examples:
            >>> with makeroom.watch() as w:
            ...     for batch in batches:
            ...         train(batch)
            ...         w.step()
        """
        if self._started is None or self._devices is not None:
            raise WatchError("step() was called outside the `with` block\n\nhint: with makeroom.watch() as w: …; w.step()")
        self._count += 1
        self._source.mark()

    def __enter__(self) -> Watch:
        if self._started is not None:
            raise WatchError("a watch can be used only once\n\nhint: create another: with makeroom.watch() as w: …")
        self._source.begin()
        self._started = time.perf_counter()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._seconds = time.perf_counter() - (self._started or 0)
        try:
            self._devices = [_device(device) for device in self._source.end()]
            return
        except Exception as failure:
            # The exception of the block must not be replaced by one of this module.
            if self._is_required and error is None:
                raise WatchError(f"cannot read the figures: {failure}") from failure
            reason = f"cannot read the figures: {failure}"
        self._source, self._devices = NoSource(reason), []
        if error is None:
            warnings.warn(f"GPU memory was not measured: {reason}", WatchWarning, stacklevel=2)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Watch) or self._devices is None or other._devices is None:
            return self is other
        return self._figures() == other._figures()

    # Figures contain lists.
    __hash__ = None  # type: ignore[assignment]

    def _figures(self) -> tuple[Any, ...]:
        return self.source, self._seconds, self._devices, self.notes

    def __getstate__(self) -> dict[str, Any]:
        if self._devices is None:
            raise WatchError("the block is still running\n\nhint: pickle the result after the `with` block")
        source = self._source
        return {**self.__dict__, "_source": _Finished(source.name, source.words, source.notes)}

    def to_dict(self) -> dict[str, Any]:
        """Return all figures, for a file or a log.

        Examples:
            >>> json.dump(w.to_dict(), file)
        """
        named = [{**device._asdict(), "leak_per_step_bytes": device.leak_per_step_bytes} for device in self.devices]
        figures: dict[str, Any] = {"source": self.source, "seconds": self._seconds, "devices": named}
        copied: dict[str, Any] = json.loads(json.dumps(figures))
        return copied

    def __repr__(self) -> str:
        if self._devices is None:
            return f"<makeroom.Watch, not finished, source: {self._source.name}>"
        lines = [f"watched for {self._seconds:.2f} s (source: {self._source.words})"]
        if self._source.name == "none":
            return "\n".join(f"makeroom: {note}" for note in self._source.notes)
        if not self._devices:
            lines.append("  no GPU memory was used")
        for device in self._devices:
            lines += _text(device)
        lines += [f"  note: {note}" for note in self._source.notes]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        from ._html import watched

        return watched(self)


def watch(*, lines: bool | None = None, source: SourceName | None = None, required: bool = False) -> Watch:
    """Measure the GPU memory of a block of code.

    If memory cannot be measured, as on a machine without a GPU, the block still runs: a `WatchWarning` states the reason,
    all figures are 0, and `source` is `none`.

    Args:
        lines: Record the lines that hold memory. This slows PyTorch down. The recorder always has lines; the pool never does.
        source: `"recorder"` (under `makeroom run`), `"pool"` (after `makeroom.use_pool()`), `"torch"` (PyTorch on CUDA) or
            `"jax"` (JAX on CUDA) [default: the first that is available].
        required: Raise an exception instead of a warning if memory cannot be measured.

    Returns:
        A context manager that provides the figures after the block; `print` it for a summary.

    Raises:
        WatchError: The named source is not available, or with `required`, no source is.

    Examples:
        >>> with makeroom.watch() as w:
        ...     for batch in batches:
        ...         train(batch)
        ...         w.step()
        >>> w.peak_bytes, w.leak_per_step_bytes
    """
    try:
        return Watch(choose(source, lines), required)
    except WatchError as error:
        if required or source is not None:
            raise
        reason = str(error)
    # Outside of the handler, so that the warning is not "during handling" of the error.
    warnings.warn(f"GPU memory cannot be measured: {reason}", WatchWarning, stacklevel=2)
    return Watch(NoSource(reason))


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
        sites=[as_site(site) for site in figures["sites"]],
        left_sites=[as_site(site) for site in figures["left_sites"]],
        leaking=[as_site(site) for site in figures["leaking"]],
        # The part after the last step() is not a step.
        steps=steps[:-1],
        taken_sites=[as_site(site) for site in figures["taken"]],
    )


def as_site(site: dict[str, Any]) -> Site:
    """Return a site of the native module's JSON."""
    return Site(site["site"] or NO_STACK, site["bytes"], site["blocks"], [as_site(callee) for callee in site["calls"]])


def _text(device: WatchedDevice) -> list[str]:
    count = "" if device.allocations is None else f", {counted(device.allocations, 'allocation')}"
    lines = [
        f"  GPU {device.device}: peak {show(device.peak_bytes)}, before {show(device.before_bytes)}, "
        f"after {show(device.after_bytes)}{count}"
    ]
    if device.sites:
        lines += ["  live at the peak, by line", *_tree(device.sites)]
    if device.left_bytes:
        blocks = "" if device.left_blocks is None else f" in {counted(device.left_blocks, 'block')}"
        lines += [f"  still live: {show(device.left_bytes)}{blocks}", *_tree(device.left_sites)]
    leak = device.leak_per_step_bytes
    if leak is not None:
        grows = f"each leaks {show(leak)}" if leak > 0 else "no leak"
        lines.append(f"  {len(device.steps)} steps: {grows}")
        if leak > 0:
            lines += _tree(device.leaking)
    return lines


def _tree(sites: list[Site]) -> list[str]:
    """Format the largest sites, with callees indented under their callers."""
    lines: list[str] = []

    def add(sites: list[Site], depth: int) -> None:
        for site in sites:
            lines.append(f"    {show(site.bytes):>12}  {'  ' * depth}{site.place}")
            add(site.calls, depth + 1)

    add(sites, 0)
    rest = len(lines) - _MOST_LINES
    return lines if rest <= 1 else [*lines[:_MOST_LINES], f"    {'':>12}  and {rest} more"]
