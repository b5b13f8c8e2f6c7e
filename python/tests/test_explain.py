"""`explain` takes exceptions, texts and files, and prints what the command prints."""

from __future__ import annotations

import errno
import pickle
import re
import sys
import types
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
    opened, closed = re.findall(r"<(div|table|tr|td|ol|li|b|code|span|button)\b", html), re.findall(r"</(\w+)>", html)
    assert sorted(opened) == sorted(closed)
    hostile = makeroom.explain(TEXT.replace("GPU 0", "GPU 0</div><script>alert(1)</script>"))._repr_html_()
    assert "<script" not in hostile


def test_the_html_has_all_parts_of_the_text(traces: Path, examples: Path):
    sources = [(TEXT, {}), (traces / "oom_fragmented.pickle.gz", {"memory": "6GiB"}), (traces / "seed004.pickle.gz", {})]
    sources += [(path, {}) for path in (examples / "errors").rglob("*.txt")]
    # Headings of the text are words in bold.
    headings = set()
    for source, options in sources:
        explanation = makeroom.explain(source, **options)
        html = re.sub(r"<[^>]+>", "", explanation._repr_html_())
        styled = explanation.text(110, styled=True)
        for heading in re.findall(r"^  \x1b\[1m([A-Z][a-z][^\x1b]+)\x1b", styled, re.MULTILINE):
            assert heading in html, heading
            headings.add(heading)
    assert {"To learn more", "Fixes, most effective first", "Memory needed", "Live memory, by line of code"} <= headings


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


def test_one_function_explains_everything(traces: Path):
    path = traces / "oom_fragmented.pickle.gz"
    trace = makeroom.open(path)
    assert makeroom.why is makeroom.explain
    answers = [makeroom.explain(path, memory="6GiB"), makeroom.explain(trace, memory="6GiB"), trace.why(memory="6GiB")]
    assert {answer.cause for answer in answers} == {"fragmentation"}
    assert answers[0] == answers[1] == answers[2] != makeroom.explain(path, memory="7GiB")
    assert makeroom.explain(TEXT.encode()) == makeroom.explain(TEXT)


@pytest.mark.parametrize(
    "text",
    [
        "CUDA out of memory",
        "torch.cuda.OutOfMemoryError",
        "CUDA_ERROR_OUT_OF_MEMORY",
        "std::bad_alloc",
        "error: file.txt is gone",
        "/bin/sh: line 1: 7 Killed python train.py",
        "/bin/sh: 1: cannot open a.log",
    ],
)
def test_a_message_is_not_taken_for_a_path(text: str):
    assert makeroom.explain(text).to_dict()["input"]["kind"] == "error-text"


def test_an_explanation_can_be_pickled_and_compared():
    explanation = makeroom.explain(TEXT)
    copy = pickle.loads(pickle.dumps(explanation))
    assert copy == explanation and hash(copy) == hash(explanation) and {copy, explanation} == {copy}
    assert copy.fixes == explanation.fixes
    for columns in (60, 80, 100, 110):
        assert copy.text(columns) == explanation.text(columns)
        assert copy.text(columns, styled=True) == explanation.text(columns, styled=True)
    assert copy.text(97) == explanation.text(80)
    assert explanation != "FRAGMENTATION"


def test_a_setting_is_python_too(monkeypatch):
    fix = makeroom.explain(TEXT).fixes[0]
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    assert fix.python == "import os\nos.environ['PYTORCH_CUDA_ALLOC_CONF'] = 'expandable_segments:True'"
    for version, name in (("2.9.1+cu128", "PYTORCH_CUDA_ALLOC_CONF"), ("2.10.0", "PYTORCH_ALLOC_CONF")):
        monkeypatch.setitem(sys.modules, "torch", types.SimpleNamespace(__version__=version))
        assert f"os.environ['{name}']" in fix.python
    html = makeroom.explain(TEXT)._repr_html_()
    assert "export " not in html and "restart the kernel" in html


def test_printed_in_a_notebook_a_setting_is_python_too(monkeypatch, traces: Path):
    explanation = makeroom.explain(TEXT)
    assert "\n       export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True\n" in repr(explanation)
    shell = types.SimpleNamespace()
    monkeypatch.setitem(sys.modules, "IPython", types.SimpleNamespace(get_ipython=lambda: shell))
    # In a terminal, the shell has no kernel.
    assert "export " in repr(explanation)
    shell.kernel = object()
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    shown = str(explanation)
    assert "export " not in shown and "# restart the kernel" in shown
    assert "\n       os.environ['PYTORCH_CUDA_ALLOC_CONF'] = 'expandable_segments:True'\n" in shown
    # This is the text of the command everywhere.
    assert "export PYTORCH_CUDA_ALLOC_CONF" in explanation.text()
    tuning = makeroom.tune(traces / "oom_fragmented.pickle.gz", memory="6GiB")
    assert "export " not in repr(tuning) and "os.environ" in repr(tuning)


def test_the_parts_of_an_explanation_are_typed(traces: Path):
    explanation = makeroom.explain(TEXT)
    assert explanation.wont_help[0].startswith("empty_cache(), because")
    assert explanation.next_steps[0].command == "makeroom why run.pickle" and explanation.sites == []
    sites = makeroom.explain(traces / "oom_fragmented.pickle.gz", memory="6GiB").sites
    assert isinstance(sites[0], makeroom.Site) and sites[0].bytes >= sites[-1].bytes > 0
    assert sum(site.bytes for site in sites[0].calls) <= sites[0].bytes


@pytest.mark.parametrize(
    ("command", "python"),
    [
        (None, None),
        ("kill 485", None),
        ("export A=1 B='two words'", "import os\nos.environ['A'] = '1'\nos.environ['B'] = 'two words'"),
        ("export A=x   (or: B=y)", "import os\nos.environ['A'] = 'x'"),
        ("export PATH=$HOME/bin", None),
        ("export A", None),
        ("export 'unclosed", None),
    ],
)
def test_only_settings_become_python(command, python):
    assert makeroom.Fix("do it", command, None).python == python


def test_nothing_to_explain_is_said(monkeypatch):
    monkeypatch.delattr("sys.last_value", raising=False)
    monkeypatch.delattr("sys.last_exc", raising=False)
    with pytest.raises(makeroom.UsageError, match="no exception"):
        makeroom.explain()
    assert makeroom.explain("all is well").cause == "none"
    with pytest.raises(TypeError, match="int"):
        makeroom.explain(17)


def test_files_that_cannot_be_read_are_named(tmp_path: Path):
    for name in ("gone.log", "gone.pkl", "snapshot.json", "runs/gone", "/nowhere/at all.room", "./my runs/a.pickle.gz", "~/a b.log"):
        with pytest.raises(FileNotFoundError) as caught:
            makeroom.explain(name)
        assert (caught.value.errno, caught.value.filename) == (errno.ENOENT, name)
    with pytest.raises(FileNotFoundError) as caught:
        makeroom.open(tmp_path / "gone")
    assert caught.value.filename == str(tmp_path / "gone")
    with pytest.raises(IsADirectoryError) as caught:
        makeroom.why(tmp_path)
    assert caught.value.errno == errno.EISDIR
    if sys.version_info >= (3, 11):
        assert "makeroom.job" in caught.value.__notes__[0]
    evil = tmp_path / "evil.pickle"
    evil.write_bytes(b"\x80\x04cos\nsystem\n(S'touch /tmp/x'\ntR.")
    with pytest.raises(makeroom.InputError, match="the file calls"):
        makeroom.why(evil)
    with pytest.raises(makeroom.UsageError, match="both"):
        makeroom.why(Path(__file__).parents[2] / "traces/seed004.pickle.gz", memory="1GiB", card="2GiB")
