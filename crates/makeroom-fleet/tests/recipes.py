"""Runs the SQL, Polars and Spark recipes of docs/fleet.md on an index: recipes.py INDEX [--spark].

Every recipe must run, and must find rows: an index with a recording that ran out of memory is enough. Needs duckdb and polars, and
pyspark for --spark.
"""
import contextlib
import io
import os
import re
import sys
import tempfile
from pathlib import Path

PAGE = Path(__file__).resolve().parents[3] / "docs" / "fleet.md"


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)


def printed(code, **names):
    """What a block of Python prints."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(compile(code, str(PAGE), "exec"), names)
    return out.getvalue()


def main():
    index, with_spark = Path(sys.argv[1]).resolve(), "--spark" in sys.argv[2:]
    # The recipes read the folder `index`.
    folder = Path(tempfile.mkdtemp())
    (folder / "index").symlink_to(index, target_is_directory=True)
    os.chdir(folder)
    import duckdb

    queries = [query for block in blocks("sql") for query in block.split(";") if query.strip()]
    assert len(queries) >= 3, queries
    for query in queries:
        rows = duckdb.sql(query).fetchall()
        assert rows, f"no rows: {query}"
        print(f"DuckDB: {len(rows)} rows: {query.strip().splitlines()[0]}")
    python = blocks("python")
    polars = [code for code in python if "polars" in code]
    spark = [code for code in python if "pyspark" in code]
    assert polars and spark, python
    for code in polars:
        assert re.search(r"shape: \([1-9]", printed(code)), code
        print("Polars: 1 recipe")
    if with_spark:
        from pyspark.sql import SparkSession

        session = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
        for code in spark:
            assert printed(code, spark=session).count("|") > 6, code
            print("Spark: 1 recipe")
        session.stop()


if __name__ == "__main__":
    main()
