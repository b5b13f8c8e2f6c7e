"""Runs the queries of docs/fleet.md on an index, with DuckDB, Polars and Spark, and reads its rows with two of them."""

from __future__ import annotations

import contextlib
import io
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]


def blocks(language: str) -> list[str]:
    """The code of the section about SQL."""
    text = (ROOT / "docs" / "fleet.md").read_text(encoding="utf-8")
    section = text.split("\n## SQL\n", 1)[1].split("\n## ", 1)[0]
    return re.findall(rf"```{language}\n(.*?)```", section, re.DOTALL)


@contextlib.contextmanager
def working_directory(index: Path) -> Iterator[None]:
    """The queries read the index by a relative path."""
    assert index.name == "index", index
    before = Path.cwd()
    os.chdir(index.parent)
    try:
        yield
    finally:
        os.chdir(before)


def sql(index: Path) -> int:
    """Runs the queries for DuckDB. Returns how many there are."""
    import duckdb

    queries = [query for block in blocks("sql") for query in block.split(";") if query.strip()]
    with working_directory(index):
        for query in queries:
            assert duckdb.sql(query).fetchall(), f"no rows: {query}"
    return len(queries)


def python(index: Path, spark: Any = None) -> int:
    """Runs the queries in Python: those for Spark if there is a session, else the others."""
    queries = [block for block in blocks("python") if ("spark" in block) == (spark is not None)]
    for query in queries:
        printed = io.StringIO()
        # A cluster does not share the working directory of this process.
        query = query.replace('parquet("index")', f"parquet({str(index)!r})")
        with working_directory(index), contextlib.redirect_stdout(printed):
            exec(compile(query, "docs/fleet.md", "exec"), {"spark": spark})
        assert len(printed.getvalue().splitlines()) > 4, f"no rows: {query}"
    return len(queries)


def rows(index: Path) -> int:
    """The rows, which DuckDB and Polars must read alike."""
    import duckdb
    import polars

    pattern = str(index / "objects" / "*.parquet")
    columns = "source, object_bytes, etag, cause, ran_out"
    ours = duckdb.sql(f"SELECT {columns} FROM read_parquet('{pattern}') ORDER BY source, recording").fetchall()
    frame = polars.scan_parquet(pattern).sort("source", "recording").select(columns.split(", ")).collect()
    assert ours == frame.rows(), "DuckDB and Polars read different rows"
    assert any(row[-1] for row in ours), "no recording ran out of memory"
    return len(ours)
