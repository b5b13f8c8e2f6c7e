"""`explain` takes exceptions, texts and files, and prints what the command prints."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import makeroom

TEXT = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.17 GiB. GPU 0 has a total capacity of 139.80 GiB of "
    "which 340.00 MiB is free. Process 1 has 139.46 GiB memory in use. Of the allocated memory 55.66 GiB is allocated by "
    "PyTorch, and 83.29 GiB is reserved by PyTorch but unallocated."
)


def test_a_text_is_explained():
    explanation = makeroom.explain(TEXT)
    assert (explanation.cause, explanation.certainty) == ("fragmentation", "certain")
    assert explanation.request_bytes == round(1.17 * 2**30)
    assert explanation.fixes[0].command == "export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"


def test_the_account_adds_up():
    ledger = makeroom.explain(TEXT).ledger
    assert ledger.total_bytes == sum(line.bytes for line in ledger.lines) + ledger.unaccounted_bytes
    for line in ledger.lines:
        assert not line.lines or line.bytes == sum(part.bytes for part in line.lines)


def test_the_repr_is_the_command_s_text(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    text = repr(makeroom.explain(TEXT))
    assert text.startswith("\n  FRAGMENTATION (certain)\n")
    assert "\x1b" not in text
    assert max(map(len, text.splitlines())) <= 80
    assert "\x1b" in makeroom.explain(TEXT).text(styled=True)


def test_the_html_is_whole_and_escaped():
    html = makeroom.explain(TEXT)._repr_html_()
    assert "FRAGMENTATION" in html and "expandable_segments:True" in html
    opened, closed = re.findall(r"<(div|table|tr|td|ol|li|b|code|span)\b", html), re.findall(r"</(\w+)>", html)
    assert sorted(opened) == sorted(closed)
    hostile = makeroom.explain(TEXT.replace("GPU 0", "GPU 0</div><script>alert(1)</script>"))._repr_html_()
    assert "<script" not in hostile


def test_the_html_has_the_command_s_title(examples: Path):
    explanation = makeroom.explain(examples / "other-process.txt")
    title = explanation.text().split(" (")[0].strip()
    assert title == "OTHER PROCESSES HOLD THE MEMORY"
    assert title in explanation._repr_html_()


def test_an_exception_is_explained():
    class OutOfMemoryError(RuntimeError):
        pass

    with pytest.raises(OutOfMemoryError) as caught:
        raise OutOfMemoryError(TEXT)
    assert makeroom.explain(caught.value).cause == "fragmentation"


def test_files_are_explained(examples: Path, traces: Path):
    assert makeroom.explain(examples / "other-process.txt").cause == "other_processes"
    assert makeroom.explain(str(traces / "seed004.pickle.gz")).cause == "none"
    assert makeroom.why(traces / "oom_fragmented.pickle.gz", memory="6GiB").cause == "fragmentation"


def test_nothing_to_explain_is_said(monkeypatch):
    monkeypatch.delattr("sys.last_value", raising=False)
    monkeypatch.delattr("sys.last_exc", raising=False)
    with pytest.raises(makeroom.UsageError, match="no exception"):
        makeroom.explain()
    assert makeroom.explain("all is well").cause == "none"
    with pytest.raises(TypeError, match="int"):
        makeroom.explain(17)


def test_files_that_cannot_be_read_are_named(tmp_path: Path):
    with pytest.raises(FileNotFoundError, match="gone.log"):
        makeroom.explain("gone.log")
    with pytest.raises(IsADirectoryError, match="hint"):
        makeroom.why(tmp_path)
    evil = tmp_path / "evil.pickle"
    evil.write_bytes(b"\x80\x04cos\nsystem\n(S'touch /tmp/x'\ntR.")
    with pytest.raises(makeroom.InputError, match="the file calls"):
        makeroom.why(evil)
    with pytest.raises(makeroom.UsageError, match="both"):
        makeroom.why(Path(__file__).parents[2] / "traces/seed004.pickle.gz", memory="1GiB", card="2GiB")
