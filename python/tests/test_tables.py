"""Tables: the same rows and groups in pandas, polars, pyarrow and DuckDB, for every recording of the repository."""

from __future__ import annotations

import pickle
from collections import Counter
from datetime import datetime, timezone
from pathlib import Path

import pytest

import makeroom
from makeroom._impl import _native

ROOT = Path(__file__).resolve().parents[2]
PATTERNS = ("traces/**/*.gz", "crates/*/tests/**/*.pickle.gz", "crates/*/tests/**/*.room", "crates/*/tests/**/rmm_log.csv")
# Files that are there to be rejected.
BROKEN = {"header_only.room", "header_cut_off.room"}
RECORDINGS = sorted(path for pattern in PATTERNS for path in ROOT.glob(pattern) if path.name not in BROKEN)
TABLES = ("events", "allocations", "segments", "frames")


def sums(rows: list[dict]) -> Counter:
    """The bytes of each line of code, added up in Python."""
    total: Counter = Counter()
    for row in rows:
        total[row["site"]] += row["size"]
    return total


def test_there_are_recordings_of_all_kinds():
    kinds = {makeroom.open(path).kind for path in RECORDINGS if path.stat().st_size < 1 << 20}
    assert kinds == {"torch-snapshot", "room-trace", "rmm-log", "jax-profile"}
    assert len(RECORDINGS) > 40


@pytest.mark.parametrize("path", RECORDINGS, ids=lambda path: path.name)
def test_groups_are_right_in_every_library(path: Path):
    pandas, polars, pyarrow = (pytest.importorskip(name) for name in ("pandas", "polars", "pyarrow"))
    duckdb = pytest.importorskip("duckdb")
    trace = makeroom.open(path)
    table = trace.allocations
    expected = sums(table[["site", "size"]].to_dicts())

    frame = table.to_pandas()
    assert frame["site"].cat.categories.is_unique
    grouped = frame.groupby("site", dropna=False, observed=True)["size"].sum()
    assert {None if pandas.isna(site) else site: int(size) for site, size in grouped.items()} == expected

    grouped = table.to_polars().group_by("site").agg(polars.col("size").sum())
    assert dict(grouped.rows()) == expected

    grouped = pyarrow.TableGroupBy(table.to_pyarrow(), "site").aggregate([("size", "sum")]).to_pylist()
    assert len(grouped) == len(expected)
    assert {row["site"]: row["size_sum"] for row in grouped} == expected

    arrow = table.to_pyarrow()  # noqa: F841 (DuckDB finds it by name)
    grouped = duckdb.sql("select site, sum(size)::hugeint from arrow group by site").fetchall()
    assert {site: int(size) for site, size in grouped} == expected


@pytest.mark.parametrize("path", RECORDINGS, ids=lambda path: path.name)
@pytest.mark.parametrize("name", TABLES)
def test_every_table_converts(path: Path, name: str):
    for package in ("pandas", "polars", "pyarrow"):
        pytest.importorskip(package)
    table = getattr(makeroom.open(path), name)
    shape = (len(table), len(table.columns))
    assert table.to_pandas().shape == table.to_polars().shape == table.to_pyarrow().shape == shape
    head = table.head(50)
    rows = table.to_pyarrow().slice(0, 50).to_pylist()
    assert head.to_dicts() == rows
    assert head.to_polars().rows() == [tuple(row.values()) for row in rows]
    assert table.columns == list(rows[0]) if rows else True


@pytest.mark.parametrize("name", TABLES)
def test_every_table_can_be_pickled(traces: Path, name: str):
    for file in ("seed004.pickle.gz", "jax_memory.prof.gz", "fit/gpt_4.room.gz"):
        table = getattr(makeroom.open(traces / file), name)
        for part in (table, table[:7], table[5:5], table[table.columns[:2]], table[[]]):
            copy = pickle.loads(pickle.dumps(part))
            assert copy.schema == part.schema and len(copy) == len(part)
            assert copy.to_dicts() == part.to_dicts() and copy == part
            assert (copy == part[1:]) is (len(part) == 0) and copy != part.to_dicts()
            # Null where it was null, and nowhere else.
            assert repr(copy).splitlines()[1:] == repr(part).splitlines()[1:]


def test_a_pickle_with_other_columns_is_an_error():
    build = _native.Table.from_columns
    for rows, column in (
        (2, ("size", "UInt64", False, [1])),
        (1, ("size", "UInt64", False, [-1])),
        (1, ("size", "UInt64", False, [None])),
        (1, ("size", "Int8", False, [1])),
        (1, ("size", "Dictionary(", False, [1])),
        (300, ("action", "Dictionary(UInt8, Utf8)", False, [str(number) for number in range(300)])),
    ):
        with pytest.raises((RuntimeError, OverflowError)):
            build(rows, [column])


@pytest.fixture(scope="module")
def table(traces: Path) -> makeroom.Table:
    return makeroom.open(traces / "seed004.pickle.gz").allocations


def test_a_table_says_what_it_has(table):
    assert table.columns[:3] == ["device", "address", "size"]
    lines = repr(table).splitlines()
    assert lines[0].startswith(f"allocations: {len(table)} rows, ")
    assert lines[1].split()[:3] == ["device", "address", "size"]
    assert lines[2].split()[1].startswith("0x") and len(lines) == 8
    html = table._repr_html_()
    assert html.count("<tr>") == 11 and "<script" not in html and f"… {len(table) - 10} more rows" in html
    assert '<th style="text-align:right">size</th>' in html and '<th style="text-align:left">site</th>' in html
    assert table.schema["site"] == "Dictionary(UInt32, Utf8)"
    # Of its own rows, not of the buffers that it shares.
    assert 0 < table[["size"]].head(5).nbytes == 5 * 8 < table[["size"]].nbytes == len(table) * 8


def test_a_table_is_indexed_as_one_expects(table):
    assert table[0]["size"] == table["size"][0] == table.head(1)["size"][0]
    assert table[-1] == table.to_dicts()[-1] == list(table)[-1]
    assert len(table[10:20]) == 10 and table[10:20][0] == table[10]
    assert len(table[5:2]) == 0 and len(table[-3:]) == 3
    assert table[["site", "size"]].columns == ["site", "size"]
    assert sum(row["size"] for row in table) == sum(table["size"])
    moment = next(each for each in table["allocated_at"] if each is not None)
    assert isinstance(moment, datetime) and moment.tzinfo == timezone.utc
    with pytest.raises(KeyError, match="no column 'bytes'; use one of device, address"):
        table["bytes"]
    with pytest.raises(IndexError):
        table[len(table)]
    with pytest.raises(ValueError, match="step 1"):
        table[::2]


@pytest.mark.parametrize("name", ["seed004.pickle.gz", "oom_fragmented.pickle.gz", "fit/gpt_4.room.gz"])
def test_the_peak_is_a_table(traces: Path, name: str):
    trace = makeroom.open(traces / name)
    live = peak = 0
    before = sum(size for size, born in zip(trace.allocations["size"], trace.allocations["allocated_event"]) if born is None)
    live = peak = before
    at = 0
    # The frees that match an allocation, as allocations have them.
    changes: Counter = Counter()
    for row in trace.allocations:
        if row["allocated_event"] is not None:
            changes[row["allocated_event"]] += row["size"]
        if row["freed_event"] is not None:
            changes[row["freed_event"]] -= row["size"]
    for event in range(len(trace)):
        live += changes[event]
        if live > peak:
            peak, at = live, event
    assert sum(trace.live()["size"]) == peak == sum(trace.live(at)["size"])
    end = [row for row in trace.allocations if row["is_live"]]
    assert trace.live(len(trace) - 1).to_dicts() == end
    with pytest.raises(makeroom.UsageError, match="no event"):
        trace.live(len(trace))


def test_a_trace_is_html(traces: Path):
    html = makeroom.open(traces / "seed004.pickle.gz")._repr_html_()
    assert "torch-snapshot" in html and "GPU 0: 223.13 MiB" in html


@pytest.mark.parametrize("path", RECORDINGS, ids=lambda path: path.name)
def test_allocations_have_the_groups_of_the_trace(path: Path):
    pyarrow = pytest.importorskip("pyarrow")
    trace = makeroom.open(path)
    for device in trace.devices:
        live = trace.live(device=device).to_pyarrow()
        for by in ("kind", "module", "stage", "thread"):
            groups = trace.by(by, device=device)
            if groups.moment != "peak":
                continue
            rows = pyarrow.TableGroupBy(live, by).aggregate([("size", "sum")]).to_pylist()
            found = {row[by]: row["size_sum"] for row in rows}
            # Memory without a group has a description of its own in `by`.
            named = {group.name: group.bytes for group in groups if group.name in found}
            assert {name: size for name, size in found.items() if name is not None} == named
            assert sum(found.values()) == groups.live_bytes


def test_missing_integers_stay_integers_in_pandas(traces: Path):
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    table = makeroom.open(traces / "oom_fragmented.pickle.gz").allocations
    frame = table.to_pandas()
    assert str(frame["freed_event"].dtype) == "UInt64" and str(frame["size"].dtype) == "uint64"
    assert [None if pandas.isna(event) else event for event in frame["freed_event"]] == table["freed_event"]
    assert frame.shape == table.shape
