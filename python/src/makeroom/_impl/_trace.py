"""Recordings of a program's GPU allocations, with their tables and analyses."""

from __future__ import annotations

import os
from html import escape
from pickle import PicklingError
from typing import TYPE_CHECKING, Any, Iterator, Union, overload

from . import _native
from ._explanation import Explanation
from ._groups import By, Groups
from ._replay import Replay, Tuning
from ._sizes import Size, counted, parse_optional, show
from ._table import Table
from ._types import Kind, Path

if TYPE_CHECKING:
    from ._view import View

TraceOrPath = Union["Trace", Path]
"""A recording, or the path of one."""


class Trace:
    """A recording of a program's GPU allocations: a sequence of events, with tables and analyses.

    `trace[0]` is an event as a dictionary, `trace[:10]` a table of events, and iterating yields events. A pickled trace
    contains the path of its file, which is read again.

    Examples:
        >>> trace = makeroom.open("run.room")
        >>> trace.allocations.to_polars()
        >>> trace.explain().cause, trace.replay("makeroom")[0].peak_reserved_bytes
    """

    def __init__(self, path: str, recording: _native.Recording, file: str | None = None) -> None:
        self._path = path
        self._recording = recording
        self._file = file
        self._tables: dict[str, Table] = {}

    @property
    def path(self) -> str:
        """Path of the file, or the source of a recording that is not in a file."""
        return self._path

    @property
    def kind(self) -> Kind:
        """Kind of recording: `torch-snapshot`, `rmm-log`, `room-trace` or `jax-profile`."""
        return self._recording.kind

    @property
    def devices(self) -> list[int]:
        """Indices of the recorded devices."""
        return self._recording.devices

    @property
    def notes(self) -> list[str]:
        """Remarks about the recording."""
        return self._recording.notes

    @property
    def events(self) -> Table:
        """Table of all events, in order. `event` is the index that the page and `live` use; join `frames` on `stack`."""
        return self._table("events")

    @property
    def allocations(self) -> Table:
        """Table of all allocations: when each was made and freed, and the line that made it."""
        return self._table("allocations")

    @property
    def segments(self) -> Table:
        """Table of the segments of PyTorch's allocator at the end of the recording."""
        return self._table("segments")

    @property
    def frames(self) -> Table:
        """Table of the frames of all stacks, innermost first."""
        return self._table("frames")

    def live(self, event: int | None = None, *, device: int | None = None) -> Table:
        """Return the allocations that are live at one moment, as a table with the columns of `allocations`.

        Args:
            event: The moment after this event, an index of the column `event` [default: the peak of each device].
            device: GPU [default: all for the peak; for an event, the one that failed, else the fullest].

        Raises:
            UsageError: There is no such event or device.

        Examples:
            >>> trace.live().to_polars().group_by("site").agg(polars.col("size").sum())
        """
        return Table("live", self._recording.live(event, device))

    def head(self, rows: int = 5) -> Table:
        """Return the first events, as a table.

        Args:
            rows: Number of events.

        Examples:
            >>> trace.head(3)[["action", "size"]].to_dicts()
        """
        return self.events.head(rows)

    def explain(
        self, *, memory: Size | None = None, card: Size | None = None, device: int | None = None
    ) -> Explanation:
        """Explain an out-of-memory failure, as `makeroom.explain` does.

        Args:
            memory: Memory available to the allocator, in bytes or as a string such as `"24GiB"`.
            card: Size of the GPU; memory for the driver and the CUDA context is subtracted. Use this or `memory`.
            device: GPU to analyze [default: the one that failed, else the fullest].

        Returns:
            The explanation; `print` it for the text of `makeroom why`.

        Examples:
            >>> trace.explain(memory="24GiB").cause
        """
        return Explanation(self._recording.why(parse_optional(memory), parse_optional(card), device))

    why = explain

    def by(self, by: By, *, device: int | None = None) -> Groups:
        """Return live memory in groups, at the failure, else at the peak, as `makeroom why --by` does.

        Args:
            by: `kind` (parameters, gradients, optimizer state, activations, …), `line`, `module` (source file), `stage`
                (labels and scopes of the program, else phases of training), `thread`, `stream` or `process`.
            device: GPU [default: the one that failed, else the fullest].

        Raises:
            UsageError: There is no such group or device, or the recording is empty.

        Examples:
            >>> trace.by("kind")["activations"].bytes
        """
        return Groups(self._recording.grouped(by, device))

    def replay(
        self,
        *allocators: str,
        memory: Size | None = None,
        card: Size | None = None,
        device: int | None = None,
        check: bool = False,
        smallest: bool = True,
    ) -> Replay:
        """Replay the recording under other allocators, as `makeroom.replay` does.

        Args:
            *allocators: Allocators to simulate, such as `"pytorch"` or `"makeroom"` [default: the common ones].
            memory: Memory available to the allocator, in bytes or as a string such as `"24GiB"`.
            card: Size of the GPU; memory for the driver and the CUDA context is subtracted. Use this or `memory`.
            device: GPU to analyze [default: the one that failed, else the fullest].
            check: Compare the simulation of the recorded allocator with the recording.
            smallest: Search for the least memory with which each run completes.

        Returns:
            One run for each allocator; `print` it for the text of `makeroom replay`.

        Examples:
            >>> trace.replay("pytorch", "makeroom")["makeroom"].peak_reserved_bytes
        """
        sizes = parse_optional(memory), parse_optional(card)
        return Replay(self._recording.replay(list(allocators), *sizes, device, check, smallest))

    def tune(self, *, memory: Size | None = None, card: Size | None = None, device: int | None = None) -> Tuning:
        """Find the best settings of PyTorch's allocator for the recording, as `makeroom.tune` does.

        Args:
            memory: Memory available to the allocator, in bytes or as a string such as `"24GiB"`.
            card: Size of the GPU; memory for the driver and the CUDA context is subtracted. Use this or `memory`.
            device: GPU to analyze [default: the one that failed, else the fullest].

        Returns:
            One run for each setting; `print` it for the text of `makeroom tune`.

        Examples:
            >>> trace.tune(memory="24GiB").best
        """
        return Tuning(self._recording.tune(parse_optional(memory), parse_optional(card), device))

    def view(
        self, *, memory: Size | None = None, card: Size | None = None, what_if: bool = False, height: int = 900
    ) -> View:
        """Return the interactive page of the recording, which a notebook shows in the cell, as `makeroom.view` does.

        Args:
            memory: Memory available to the allocator, in bytes or as a string such as `"24GiB"`.
            card: Size of the GPU; memory for the driver and the CUDA context is subtracted. Use this or `memory`.
            what_if: Include how much other allocators would have reserved. This replays the recording.
            height: Height in the notebook, in pixels.

        Examples:
            >>> trace.view(memory="24GiB")
        """
        from ._view import view

        return view(self, memory=memory, card=card, what_if=what_if, height=height)

    def __len__(self) -> int:
        return len(self._recording)

    def __bool__(self) -> bool:
        # A profile of live buffers has no events, but it is a recording.
        return True

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self.events)

    @overload
    def __getitem__(self, key: int) -> dict[str, Any]: ...
    @overload
    def __getitem__(self, key: slice) -> Table: ...
    def __getitem__(self, key: int | slice) -> dict[str, Any] | Table:
        if not isinstance(key, slice) and not hasattr(key, "__index__"):
            raise TypeError(f"a trace is indexed by event, not by {type(key).__name__}: trace.allocations[{key!r}] is a column")
        return self.events[key]

    def __reduce__(self) -> tuple[Any, ...]:
        if self._file is None:
            raise PicklingError(f"{self._path} is not in a file, so it cannot be pickled\n\nhint: pickle its tables")
        return _restore, (self._path, self._file)

    def __repr__(self) -> str:
        devices = ", ".join(map(str, self.devices)) or "none"
        return f"<makeroom.Trace {self._path}: {self.kind}, {counted(len(self), 'event')}, devices {devices}>"

    def _repr_html_(self) -> str:
        peaks = ", ".join(f"GPU {device}: {show(bytes)}" for device, _, bytes in self._recording.peaks())
        facts = {
            "recording": self._path,
            "kind": self.kind,
            "events": f"{len(self):,}",
            "allocations": f"{len(self.allocations):,}",
            "devices": ", ".join(map(str, self.devices)) or "none",
            "peak of live memory": peaks or "none",
        }
        rows = "".join(
            f'<tr><th style="text-align:left">{escape(name)}</th><td style="text-align:left">{escape(value)}</td></tr>'
            for name, value in facts.items()
        )
        notes = "".join(f'<div style="opacity:.7">note: {escape(note)}</div>' for note in self.notes)
        return (
            f"<div><table>{rows}</table>{notes}<div><code>.explain()</code> finds the cause of a failure, "
            "<code>.view()</code> shows the page, <code>.allocations</code> is a table.</div></div>"
        )

    def _table(self, name: str) -> Table:
        if name not in self._tables:
            self._tables[name] = Table(name, getattr(self._recording, name)())
        return self._tables[name]


def open(path: Path) -> Trace:
    """Read a recording. Unlike `pickle.load`, this does not execute anything in the file.

    Args:
        path: A `.room` file, a PyTorch snapshot, an RMM log or a JAX memory profile, plain or compressed.

    Returns:
        The recording, with its tables and analyses.

    Raises:
        OSError: The file cannot be opened.
        InputError: The file is not a recording.

    Examples:
        >>> trace = makeroom.open("run.room")
        >>> trace.allocations.to_polars()
    """
    opened = _native.read(path)
    if isinstance(opened, str):
        raise _native.InputError(f"{path}: text, not a recording\n\nhint: makeroom.explain({str(path)!r})")
    return Trace(str(path), opened, os.path.abspath(path))


def _restore(path: str, file: str) -> Trace:
    trace = open(file)
    trace._path = path
    return trace


def as_trace(source: TraceOrPath) -> Trace:
    """Return a `Trace` unchanged, or open a file."""
    return source if isinstance(source, Trace) else open(source)
