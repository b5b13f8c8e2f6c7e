"""Arrow tables, for polars, pandas, pyarrow and DuckDB, and readable without any of them."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from html import escape
from typing import TYPE_CHECKING, Any, Iterator, overload

from . import _native
from ._sizes import show

if TYPE_CHECKING:
    import pandas
    import polars
    import pyarrow

    from ._native import CapsuleType

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
# Rows that `repr` shows.
_SHOWN = 5
# Longest cell that `repr` shows.
_LONGEST = 40
# Rows that an iterator converts at a time.
_CHUNK = 1024


class Table:
    """An Arrow table.

    It implements Arrow's PyCapsule interface: `polars.DataFrame(table)`, `pyarrow.table(table)` and DuckDB use its
    columns without copying them. No other package is needed to create one.

    `table["size"]` is a column as a list, `table[0]` a row as a dictionary, `table[:10]` and `table[["site", "size"]]` are
    tables, and iterating yields rows. Tables can be pickled and compared.

    Examples:
        >>> table = makeroom.open("run.room").allocations
        >>> table.columns, len(table), sum(table["size"])
    """

    def __init__(self, name: str, columns: _native.Table) -> None:
        self._name = name
        self._columns = columns

    @property
    def columns(self) -> list[str]:
        """Names of the columns."""
        return self._columns.column_names

    @property
    def schema(self) -> dict[str, str]:
        """Arrow type of each column."""
        return dict(zip(self._columns.column_names, self._columns.column_types))

    @property
    def shape(self) -> tuple[int, int]:
        """Number of rows and columns."""
        return len(self), len(self.columns)

    @property
    def nbytes(self) -> int:
        """Size of the columns in memory, in bytes."""
        return self._columns.nbytes

    def head(self, rows: int = 5) -> Table:
        """Return the first rows.

        Args:
            rows: Number of rows.

        Examples:
            >>> trace.allocations.head(3)["size"]
        """
        return self[:rows]

    def __len__(self) -> int:
        return len(self._columns)

    @overload
    def __getitem__(self, key: str) -> list[Any]: ...
    @overload
    def __getitem__(self, key: int) -> dict[str, Any]: ...
    @overload
    def __getitem__(self, key: slice | list[str]) -> Table: ...
    def __getitem__(self, key: str | int | slice | list[str]) -> list[Any] | dict[str, Any] | Table:
        if isinstance(key, str):
            self._check(key)
            values = self._columns.values(key)
            return [_moment(value) for value in values] if self._is_time(key) else values
        if isinstance(key, slice):
            start, stop, step = key.indices(len(self))
            if step != 1:
                raise ValueError("a table can be sliced only with step 1")
            return Table(self._name, self._columns.slice(start, max(start, stop)))
        if isinstance(key, list):
            for name in key:
                self._check(name)
            return Table(self._name, self._columns.select(key))
        index = key + len(self) if key < 0 else key
        if not 0 <= index < len(self):
            raise IndexError(f"row {key} of {len(self)}")
        return next(self._rows(index, index + 1))

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for start in range(0, len(self), _CHUNK):
            yield from self._rows(start, start + _CHUNK)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Table):
            return NotImplemented
        return len(self) == len(other) and self._columns.columns() == other._columns.columns()

    # Tables are compared by their values, which are too many to hash.
    __hash__ = None  # type: ignore[assignment]

    def __reduce__(self) -> tuple[Any, ...]:
        return _restore, (self._name, len(self), self._columns.columns())

    def __arrow_c_schema__(self) -> CapsuleType:
        return self._columns.__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> CapsuleType:
        return self._columns.__arrow_c_stream__(requested_schema)

    def to_polars(self) -> polars.DataFrame:
        """Return a polars DataFrame.

        Examples:
            >>> trace.allocations.to_polars().group_by("site").agg(polars.col("size").sum())
        """
        frame: polars.DataFrame = _module("polars").DataFrame(self)
        return frame

    def to_pyarrow(self) -> pyarrow.Table:
        """Return a pyarrow Table, which DuckDB reads too.

        Examples:
            >>> allocations = trace.allocations.to_pyarrow()
            >>> duckdb.sql("select site, sum(size) from allocations group by site")
        """
        table: pyarrow.Table = _module("pyarrow").table(self)
        return table

    def to_pandas(self) -> pandas.DataFrame:
        """Return a pandas DataFrame.

        Integer columns with missing values, such as `freed_event`, get pandas' type `UInt64`. pandas copies them into its own
        types; `to_pyarrow().to_pandas(types_mapper=pandas.ArrowDtype)` copies nothing.

        Examples:
            >>> trace.allocations.to_pandas().groupby("site", observed=True)["size"].sum()
        """
        nullable = _module("pandas").UInt64Dtype()
        table = self.to_pyarrow()
        frame: pandas.DataFrame = table.to_pandas()
        for field in table.schema:
            # Otherwise pandas would make them floating-point numbers.
            if field.nullable and str(field.type) == "uint64":
                frame[field.name] = table.column(field.name).to_pandas(types_mapper=lambda _: nullable)
        return frame

    def to_dicts(self) -> list[dict[str, Any]]:
        """Return all rows as dictionaries.

        Examples:
            >>> trace.segments.to_dicts()[0]["size"]
        """
        return list(self)

    def __repr__(self) -> str:
        title = f"{self._name}: {_counted(len(self), 'row')}, {show(self.nbytes)}"
        cells = [self.columns, *(self._shown(row) for row in self.head(_SHOWN))]
        widths = [max(len(row[column]) for row in cells) for column in range(len(self.columns))]
        rows = ["  " + "  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths)).rstrip() for row in cells]
        rest = len(self) - _SHOWN
        return "\n".join([title, *rows, *([f"  … {_counted(rest, 'more row')}"] if rest > 0 else [])])

    def _repr_html_(self) -> str:
        sides = ["right" if kind.startswith("UInt") and name != "address" else "left" for name, kind in self.schema.items()]
        row = "".join
        head = row(f'<th style="text-align:{side}">{escape(name)}</th>' for name, side in zip(self.columns, sides))
        body = row(
            "<tr>" + row(f'<td style="text-align:{side}">{escape(cell)}</td>' for cell, side in zip(self._shown(each), sides)) + "</tr>"
            for each in self.head(2 * _SHOWN)
        )
        title = f"{escape(self._name)}: {_counted(len(self), 'row')}, {show(self.nbytes)}"
        rest = len(self) - 2 * _SHOWN
        more = f"<div>… {_counted(rest, 'more row')}</div>" if rest > 0 else ""
        return f"<div><div>{title}</div><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}</div>"

    def _rows(self, start: int, stop: int) -> Iterator[dict[str, Any]]:
        names = self.columns
        times = {name for name in names if self._is_time(name)}
        for row in self._columns.rows(start, min(stop, len(self))):
            yield {name: _moment(value) if name in times else value for name, value in zip(names, row)}

    def _is_time(self, name: str) -> bool:
        return self.schema[name].startswith("Timestamp")

    def _check(self, name: str) -> None:
        if name not in self.columns:
            raise KeyError(f"no column {name!r}; use one of {', '.join(self.columns)}")

    def _shown(self, row: dict[str, Any]) -> list[str]:
        return [_cell(name, value) for name, value in row.items()]


def _restore(name: str, rows: int, columns: list[tuple[str, str, bool, list[Any]]]) -> Table:
    return Table(name, _native.Table.from_columns(rows, columns))


def _cell(name: str, value: Any) -> str:
    if value is None:
        return "-"
    if name == "address":
        return f"{value:#x}"
    if isinstance(value, datetime):
        return value.strftime("%H:%M:%S.%f")
    text = str(value)
    return text if len(text) <= _LONGEST else "…" + text[1 - _LONGEST :]


def _moment(microseconds: int | None) -> datetime | None:
    return None if microseconds is None else _EPOCH + timedelta(microseconds=microseconds)


def _counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def _module(name: str) -> Any:
    from importlib import import_module

    try:
        return import_module(name)
    except ImportError as error:
        raise ImportError(f"cannot import {name}\n\nhint: pip install {name}") from error
