"""Run the examples of docs/python.md."""

from __future__ import annotations

import doctest
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def test_the_documents_show_what_happens(monkeypatch: pytest.MonkeyPatch):
    for package in ("polars", "numpy"):
        pytest.importorskip(package)
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("COLUMNS", "100")
    results = doctest.testfile(str(ROOT / "docs/python.md"), module_relative=False, encoding="utf-8")
    assert results.attempted > 10
    assert results.failed == 0
