"""Recordings as tables: `open` reads one, and its columns are Arrow's, which polars, pandas and pyarrow take as they are."""

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
    """Columns of equal length. Whatever understands Arrow's PyCapsule interface takes it: `polars.DataFrame(table)`,
    `pyarrow.table(table)`, DuckDB; none of them is needed to make one, and nothing is copied."""

    def __init__(self, name: str, columns: _native.Table) -> None:
        self._name = name
        self._columns = columns

    @property
    def columns(self) -> list[str]:
        """The names of the columns."""
        return self._columns.column_names

    @property
    def nbytes(self) -> int:
        """What the columns take in memory."""
        return self._columns.nbytes

    def __len__(self) -> int:
        return len(self._columns)

    def __arrow_c_schema__(self) -> Any:
        return self._columns.__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> Any:
        return self._columns.__arrow_c_stream__(requested_schema)

    def to_polars(self) -> polars.DataFrame:
        """A DataFrame of polars."""
        return _module("polars").DataFrame(self)

    def to_pyarrow(self) -> pyarrow.Table:
        """A table of pyarrow."""
        return _module("pyarrow").table(self)

    def to_pandas(self) -> pandas.DataFrame:
        """A DataFrame of pandas. Without `types_mapper`, pandas copies columns that can be null into types of its own:
        `to_pyarrow().to_pandas(types_mapper=pandas.ArrowDtype)` copies nothing."""
        _module("pandas")
        return self.to_pyarrow().to_pandas()

    def __repr__(self) -> str:
        width = max((len(name) for name in self.columns), default=0)
        kinds = zip(self.columns, self._columns.column_types)
        lines = [f"  {name:<{width}}  {kind}" for name, kind in kinds]
        return "\n".join([f"{self._name}: {len(self)} rows, {show(self.nbytes)}", *lines])


class Trace:
    """A recording: what a program asked of its GPUs."""

    def __init__(self, path: str, recording: _native.Recording) -> None:
        self._path = path
        self._recording = recording
        self._tables: dict[str, Table] = {}

    @property
    def kind(self) -> str:
        """`torch-snapshot`, `rmm-log` or `room-trace`."""
        return self._recording.kind

    @property
    def devices(self) -> list[int]:
        """The devices that it holds."""
        return self._recording.devices

    @property
    def notes(self) -> list[str]:
        """What the reader should know about it."""
        return self._recording.notes

    @property
    def events(self) -> Table:
        """Every event. `stack` is a number that `frames` has."""
        return self._table("events")

    @property
    def allocations(self) -> Table:
        """Every allocation once: when it was made and freed, and the line of the program that asked for it."""
        return self._table("allocations")

    @property
    def segments(self) -> Table:
        """The memory of PyTorch's allocator when the recording ended."""
        return self._table("segments")

    @property
    def frames(self) -> Table:
        """The frames of every stack, innermost first."""
        return self._table("frames")

    def why(self, *, memory: Size | None = None, card: Size | None = None, device: int | None = None) -> Explanation:
        """Says why memory ran out."""
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
        """Runs the recording under allocators."""
        sizes = parse_optional(memory), parse_optional(card)
        return Replay(self._recording.replay(list(allocators), *sizes, device, check, smallest))

    def tune(self, *, memory: Size | None = None, card: Size | None = None, device: int | None = None) -> Tuning:
        """Finds the setting of PyTorch's allocator that serves the recording best."""
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
    """Reads a recording: a `.room` file, a PyTorch memory snapshot, an RMM log, each plain or compressed.

    Nothing in a file is ever executed: a snapshot is a pickle, and Python's own `pickle` would.
    """
    opened = _native.read(path)
    if isinstance(opened, str):
        raise _native.InputError(f"{path}: this is a text, not a recording\n\nhint: makeroom.explain({str(path)!r})")
    return Trace(str(path), opened)


def as_trace(source: Path | Trace) -> Trace:
    """A recording, or the one in a file."""
    return source if isinstance(source, Trace) else open(source)


def _module(name: str) -> Any:
    from importlib import import_module

    try:
        return import_module(name)
    except ImportError as error:
        raise ImportError(f"{name} is needed for this and is not there\n\nhint: pip install {name}") from error
