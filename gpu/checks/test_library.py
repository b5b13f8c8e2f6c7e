"""The pool as a library: the C example, the Rust example, and PyTorch on the pool through its pluggable allocator, with the
same losses as PyTorch's own allocator, bit for bit.

Needs the library and the example next to makeroom (cargo build --release -p makeroom-pool-c, cargo build --release -p
makeroom-pool --examples) or named by MAKEROOM_POOL_LIBRARY and MAKEROOM_POOL_EXAMPLE."""

import json

import pytest

from support.needs import ROOT, pool_example, pool_library
from support.runs import at, execute, last_line

needs, goal = pytest.mark.needs, pytest.mark.goal


def one_line(text):
    return "; ".join(text.strip().splitlines())


def snapshot(runs, show, name, expected=""):
    """`makeroom why` reads the pool's snapshot, and its verdict contains a text."""
    answer, status = runs.call(f"{name}.why", "why", "--json", runs.directory / f"{name}.pickle")
    summary = at(answer, "verdict", "summary") or ""
    show(f"why reads it: {summary}")
    assert status == 0 and at(answer, "input", "kind") == "torch-snapshot", f"why failed: {runs.error_of(f'{name}.why')}"
    assert expected in summary, f"not in the verdict: {expected}"


@pytest.fixture(scope="module")
def c_example(runs):
    library, program, log = pool_library(runs.makeroom).resolve(), runs.directory / "pool_c", runs.directory / "pool_c.build"
    command = ["cc", ROOT / "examples/c/pool.c", f"-I{ROOT / 'crates/makeroom-pool-c/include'}", library,
               f"-Wl,-rpath,{library.parent}", "-ldl", "-o", program]
    assert execute(command, log, log.with_suffix(".errors")) == 0, f"build failed: {log.with_suffix('.errors').read_text()[:200]}"
    return runs.plain("pool_c", [program, runs.directory / "pool_c.pickle"])


@needs("pool library", "cc")
@goal("the C example runs")
def test_pool_c(c_example, show):
    show(one_line(c_example.out))
    assert c_example.status == 0 and "MiB reserved" in c_example.out, f"exit status {c_example.status}: {last_line(c_example.err)}"


@needs("pool library", "cc")
@goal("why explains the snapshot of the C example")
def test_pool_c_snapshot(runs, c_example, show):
    snapshot(runs, show, "pool_c", "the pool's limit of 512.00 MiB")


@needs("pool example")
@goal("the Rust example runs")
def test_pool_rust(runs, show):
    run = runs.plain("pool_rust", [pool_example(runs.makeroom)])
    show(one_line(run.out))
    assert run.status == 0, f"exit status {run.status}: {last_line(run.err)}"


@pytest.fixture(scope="module")
def pluggable(runs):
    return runs.plain("pluggable", runs.python("pluggable.py", pool_library(runs.makeroom), runs.directory))


@needs("pool library", "torch")
@goal("PyTorch on the pool has the same losses, bit for bit")
def test_pluggable(pluggable, show):
    assert pluggable.out, last_line(pluggable.err)
    found = json.loads(pluggable.out)
    show(f"{found['steps']} losses are bit-for-bit equal; peak reserved {found['pool_peak_reserved'] / 2**30:.2f} GiB, "
         f"PyTorch {found['native_peak_reserved'] / 2**30:.2f} GiB",
         pool_peak_reserved=found["pool_peak_reserved"], pool_peak_live=found["pool_peak_live"],
         native_peak_reserved=found["native_peak_reserved"], driver_ms=found["pool_driver_milliseconds"])
    assert pluggable.status == 0 and not found["differs"], f"differs: {found['differs']}; {last_line(pluggable.err)}"


@needs("pool library", "torch")
@goal("why explains the snapshot of the pool under PyTorch")
def test_pluggable_snapshot(runs, pluggable, show):
    snapshot(runs, show, "pluggable")
