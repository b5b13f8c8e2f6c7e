"""Checks the engines of `makeroom.spark` and `makeroom.ray`; started by `.ci/fleet`.

Each engine indexes the same folder of snapshots, logs, damaged and foreign files. One of its executors is killed while its
task runs. The index must have the same files, byte for byte, as that of `makeroom index`, and no executor may start a
process: the code must run in the native module.
"""

from __future__ import annotations

import gzip
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import clouds
import engines
import recipes
import stores
from makeroom._impl import _index

ROOT = Path(__file__).resolve().parents[2]
TRACES = ROOT / "traces"
#: Large recordings, which keep an executor busy while another one is killed.
LARGE = 8


def recordings(folder: Path) -> Path:
    """Recordings of different sizes, and what else lies in a bucket."""
    folder.mkdir()
    large = gzip.decompress((TRACES / "gpt2_varlen.pickle.gz").read_bytes())
    for number in range(LARGE):
        (folder / f"large{number}").mkdir()
        (folder / f"large{number}" / "rank0.pickle").write_bytes(large)
    for path in sorted(TRACES.glob("*.pickle.gz")):
        if path.name != "gpt2_varlen.pickle.gz":
            shutil.copy(path, folder / path.name)
    (folder / "torn.pickle").write_bytes(large[: len(large) // 2])
    (folder / "empty.log").write_bytes(b"")
    (folder / "foreign.room").write_bytes(os.urandom(4096))
    (folder / "wörld of logs.log").write_text("RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB\n")
    (folder / "train.py").write_text("import torch\n")
    return folder


def command(source: Path, index: Path) -> None:
    """The index of `makeroom index`. Its status says that some files are not recordings."""
    program = Path(os.environ.get("MAKEROOM_COMMAND", ROOT / "target" / "debug" / "makeroom"))
    ended = subprocess.run([program, "index", source, "-o", index], capture_output=True, text=True)
    assert ended.returncode in (0, 1) and index.is_dir(), ended.stderr


def local(source: Path, index: Path) -> _index.Indexed:
    """The index, made in this process without an engine."""
    objects, found = _index.new_objects(str(source), str(index))
    return _index.conclude(objects, len(found), _index.index_all(found, str(index)))


def files(index: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (index / "objects").iterdir()}


def equal(name: str, index: Path, wanted: Path) -> None:
    found, right = files(index), files(wanted)
    assert found.keys() == right.keys(), f"{name}: {len(found)} files, and {len(right)} in the local index"
    different = [file for file in right if found[file] != right[file]]
    assert not different, f"{name}: {different} differ"


def step(text: str, began: float) -> None:
    print(f"{text} ({time.monotonic() - began:.0f} s)", flush=True)


def main() -> None:
    wanted = sys.argv[1:] or ["local", "spark", "ray", "store", "clouds", "sql"]
    with tempfile.TemporaryDirectory(prefix="makeroom-fleet-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        source, index = recordings(folder / "recordings"), folder / "index"
        began = time.monotonic()
        made = local(source, index)
        assert made.written == made.objects == len(files(index)), made
        assert len(made.unreadable) >= 2, made
        assert local(source, index).written == 0, "an object that is indexed is not read again"
        command(source, folder / "command")
        equal("makeroom index", folder / "command", index)
        step(f"local: {made.objects} objects, {len(made.unreadable)} of them unreadable, as with the command", began)
        for engine in ("spark", "ray"):
            if engine in wanted:
                began = time.monotonic()
                with engines.ENGINES[engine](folder / f"{engine}-files") as running:
                    killed = running.index_and_kill(source, folder / engine, len(files(index)))
                    equal(engine, folder / engine, index)
                    running.check_change()
                    if engine == "spark":
                        assert recipes.python(index, running.session), "docs/fleet.md has no query for Spark"
                step(f"{engine}: killed {killed} while its task ran; the index equals the local one", began)
        if "store" in wanted:
            began = time.monotonic()
            stores.check(folder, source)
            step("store: signatures, wrong and missing credentials, throttling", began)
        if "clouds" in wanted:
            began = time.monotonic()
            clouds.check(folder, source)
            step("clouds: s3:// on s3s-fs, az:// on Azurite and gs:// on moto, with right and wrong keys", began)
        if "sql" in wanted:
            began = time.monotonic()
            rows, queries = recipes.rows(index), recipes.sql(index) + recipes.python(index)
            step(f"sql: DuckDB and Polars read the same {rows} rows and run {queries} queries of docs/fleet.md", began)


if __name__ == "__main__":
    main()
