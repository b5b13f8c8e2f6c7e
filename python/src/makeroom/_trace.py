"""Recordings as Arrow tables, for polars, pandas and pyarrow."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import _native
from ._explanation import Explanation, Path
from ._replay import Replay, Tuning
from ._sizes import Size, parse_optional, show

if TYPE_CHECKING:
    import pandas
    import polars
    import pyarrow


class Table:
    """An Arrow table.

    It implements Arrow's PyCapsule interface: `polars.DataFrame(table)`, `pyarrow.table(table)` and DuckDB use its
    columns without copying them. No other package is needed to create one.
    """

    def __init__(self, name: str, columns: _native.Table) -> None:
        self._name = name
        self._columns = columns

    @property
    def columns(self) -> list[str]:
        """Names of the columns."""
        return self._columns.column_names

    @property
    def nbytes(self) -> int:
        """Size of the columns in memory, in bytes."""
        return self._columns.nbytes

    def __len__(self) -> int:
        return len(self._columns)

    def __arrow_c_schema__(self) -> Any:
        return self._columns.__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> Any:
        return self._columns.__arrow_c_stream__(requested_schema)

    def to_polars(self) -> polars.DataFrame:
        """Return a polars DataFrame."""
        return _module("polars").DataFrame(self)

    def to_pyarrow(self) -> pyarrow.Table:
        """Return a pyarrow Table."""
        return _module("pyarrow").table(self)

    def to_pandas(self) -> pandas.DataFrame:
        """Return a pandas DataFrame.

        pandas copies nullable columns into its own types; `to_pyarrow().to_pandas(types_mapper=pandas.ArrowDtype)`
        copies nothing.
        """
        _module("pandas")
        return self.to_pyarrow().to_pandas()

    def __repr__(self) -> str:
        width = max((len(name) for name in self.columns), default=0)
        kinds = zip(self.columns, self._columns.column_types)
        lines = [f"  {name:<{width}}  {kind}" for name, kind in kinds]
        return "\n".join([f"{self._name}: {len(self)} rows, {show(self.nbytes)}", *lines])


class Trace:
    """A recording of a program's GPU allocations."""

    def __init__(self, path: str, recording: _native.Recording) -> None:
        self._path = path
        self._recording = recording
        self._tables: dict[str, Table] = {}

    @property
    def kind(self) -> str:
        """Kind of recording: `torch-snapshot`, `rmm-log` or `room-trace`."""
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
        """Table of all events, in order. Join it with `frames` on `stack`."""
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

    def why(self, *, memory: Size | None = None, card: Size | None = None, device: int | None = None) -> Explanation:
        """Explain an out-of-memory failure; see `makeroom.why`."""
        return Explanation(self._recording.why(parse_optional(memory), parse_optional(card), device))

    def replay(
        self,
        *allocators: str,
        memory: Size | None = None,
        card: Size | None = None,
        device: int | None = None,
        check: bool = False,
        smallest: bool = True,
    ) -> Replay:
        """Replay the recording under other allocators; see `makeroom.replay`."""
        sizes = parse_optional(memory), parse_optional(card)
        return Replay(self._recording.replay(list(allocators), *sizes, device, check, smallest))

    def tune(self, *, memory: Size | None = None, card: Size | None = None, device: int | None = None) -> Tuning:
        """Find the best settings of PyTorch's allocator for the recording; see `makeroom.tune`."""
        return Tuning(self._recording.tune(parse_optional(memory), parse_optional(card), device))

    def __len__(self) -> int:
        return len(self._recording)

    def __repr__(self) -> str:
        devices = ", ".join(map(str, self.devices)) or "none"
        return f"<makeroom.Trace {self._path}: {self.kind}, {len(self)} events, devices {devices}>"

    def _table(self, name: str) -> Table:
        if name not in self._tables:
            self._tables[name] = Table(name, getattr(self._recording, name)())
        return self._tables[name]


def open(path: Path) -> Trace:
    """Read a recording. Unlike `pickle.load`, this does not execute anything in the file.

    Args:
        path: A `.room` file, a PyTorch snapshot or an RMM log, plain or compressed.

    Raises:
        OSError: The file cannot be opened.
        InputError: The file is not a recording.

    Example:
        >>> trace = makeroom.open("run.room")
        >>> trace.allocations.to_polars()
    """
    opened = _native.read(path)
    if isinstance(opened, str):
        raise _native.InputError(f"{path}: text, not a recording\n\nhint: makeroom.explain({str(path)!r})")
    return Trace(str(path), opened)


def as_trace(source: Path | Trace) -> Trace:
    """Return a `Trace` unchanged, or open a file."""
    return source if isinstance(source, Trace) else open(source)


def _module(name: str) -> Any:
    from importlib import import_module

    try:
        return import_module(name)
    except ImportError as error:
        raise ImportError(f"cannot import {name}\n\nhint: pip install {name}") from error
