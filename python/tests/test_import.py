"""Importing makeroom is fast, loads nothing, and provides every public name."""

from __future__ import annotations

import subprocess
import sys
from typing import get_args

import makeroom
from makeroom._impl import _native, _types

TYPES = {"Cause", "Certainty", "Fate", "Framework", "JobCause", "Kind", "SourceName"}
HEAVY = {"torch", "numpy", "cupy", "pandas", "polars", "pyarrow", "json", "typing", "ctypes", "makeroom._impl._native"}


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
        value = getattr(makeroom, name)
        assert name in TYPES or value.__name__ == {"why": "explain"}.get(name, name)
    assert set(makeroom.__all__) <= set(dir(makeroom))
    assert {"open", "callbacks", "ray", "spark", "__version__"} <= set(dir(makeroom))
    assert not [name for name in dir(makeroom) if name.startswith("_") and not name.startswith("__") or name.isupper()]
    assert makeroom.__version__.count(".") == 2


def test_a_star_import_keeps_the_builtin_open():
    assert python("from makeroom import *; import builtins; print(open is builtins.open, explain.__module__)") == "True makeroom._impl._explanation\n"


def test_the_types_name_what_the_native_module_has():
    causes, certainties = _native.names()
    assert list(get_args(_types.Cause)) == causes
    assert list(get_args(_types.Certainty)) == certainties


def test_help_lists_public_modules_and_names():
    text = python("import pydoc, makeroom; print(pydoc.plaintext.document(makeroom))")
    contents = text.split("PACKAGE CONTENTS\n")[1].split("\n\n")[0]
    assert contents.split() == ["__main__", "_impl", "(package)", "callbacks", "pytest_plugin", "ray", "spark"]
    assert "    class Explanation(" in text and "    explain(source:" in text


def test_exceptions_have_their_public_names():
    names = ("InputError", "OutOfMemoryError", "PoolError", "UsageError", "WatchError", "WatchWarning")
    assert {getattr(makeroom, name).__module__ for name in names} == {"makeroom"}


def test_an_unknown_name_is_an_attribute_error():
    try:
        makeroom.make_more
    except AttributeError as error:
        assert "make_more" in str(error)
    else:
        raise AssertionError
