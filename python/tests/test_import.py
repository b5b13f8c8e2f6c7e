"""Importing makeroom is fast, loads nothing, and provides every public name."""

from __future__ import annotations

import subprocess
import sys

import makeroom

HEAVY = {"torch", "numpy", "cupy", "pandas", "polars", "pyarrow", "json", "typing", "ctypes", "makeroom._native"}


def python(script: str) -> str:
    return subprocess.run([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, check=True).stdout


def test_importing_loads_nothing():
    script = "import sys; before = set(sys.modules); import makeroom; print(*set(sys.modules) - before)"
    loaded = set(python(script).split())
    assert "makeroom" in loaded
    assert not loaded & HEAVY


def test_importing_takes_less_than_30_ms():
    script = "import time; start = time.perf_counter(); import makeroom; print(time.perf_counter() - start)"
    # The minimum of a few runs, because the machine may be busy.
    assert min(float(python(script)) for _ in range(5)) < 0.030


def test_every_name_is_there():
    for name in makeroom.__all__:
        assert getattr(makeroom, name).__name__ == name
    assert set(makeroom.__all__) <= set(dir(makeroom))
    assert makeroom.__version__.count(".") == 2


def test_an_unknown_name_is_an_attribute_error():
    try:
        makeroom.make_more
    except AttributeError as error:
        assert "make_more" in str(error)
    else:
        raise AssertionError
