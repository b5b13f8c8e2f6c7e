"""Measures what an engine adds to indexing, for `bench/fleet-engines`. Prints seconds as JSON.

    measure.py spark DIRECTORY       index DIRECTORY, without an engine and with it, and run a map that does nothing

The engine has two executors of one core each, so the time without an engine is that of two processes.
"""

from __future__ import annotations

import concurrent.futures
import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import engines
from makeroom._impl import _index

PROCESSES = 2


def seconds(work: Callable[[], object]) -> float:
    began = time.monotonic()
    work()
    return time.monotonic() - began


def index_part(found: list[_index.Found], index: str) -> int:
    done = list(_index.index_all(found, index))
    assert all(one.status != "failed" for one in done), done
    return len(done)


def without_engine(source: str, index: str) -> None:
    _, found = _index.new_objects(source, index)
    with concurrent.futures.ProcessPoolExecutor(PROCESSES) as pool:
        parts = [pool.submit(index_part, found[number::PROCESSES], index) for number in range(PROCESSES)]
        assert sum(part.result() for part in parts) == len(found)


def main() -> None:
    engine, source = sys.argv[1], Path(sys.argv[2]).resolve()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        folder = Path(name)
        local = seconds(lambda: without_engine(str(source), str(folder / "local")))
        with engines.ENGINES[engine](folder / "files") as running:
            empty = seconds(running.empty)
            indexed = seconds(lambda: running.run(source, folder / "index"))
    print(json.dumps({"local": local, "empty": empty, "engine": indexed}))


if __name__ == "__main__":
    main()
