"""The explanation follows the traceback, and nothing else changes."""

from __future__ import annotations

import subprocess
import sys
import threading

import pytest

import makeroom
from makeroom._impl._excepthook import is_about_memory
from test_explain import TEXT

RAISE = f"class OutOfMemoryError(RuntimeError): pass\nraise OutOfMemoryError({TEXT!r})"


def python(script: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", script], stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def test_the_verdict_is_printed_under_the_traceback():
    done = python(f"import makeroom; makeroom.install_excepthook()\n{RAISE}")
    assert done.returncode == 1
    traceback, verdict = done.stderr.split("  FRAGMENTATION (certain)")
    assert traceback.startswith("Traceback") and TEXT in traceback
    assert "expandable_segments" in verdict
    assert done.stdout == ""


def test_other_errors_are_left_alone():
    plain = python("{}['key']")
    hooked = python("import makeroom; makeroom.install_excepthook()\n{}['key']")
    assert hooked.stderr.replace("line 2", "line 1") == plain.stderr


def test_a_thread_s_error_gets_its_verdict():
    body = RAISE.replace("\n", "\n    ")
    script = f"import makeroom, threading; makeroom.install_excepthook()\ndef work():\n    {body}\nt = threading.Thread(target=work); t.start(); t.join()"
    done = python(script)
    assert "FRAGMENTATION" in done.stderr and done.returncode == 0


def test_a_failure_of_its_own_is_silent():
    broken = "import makeroom._impl._explanation; makeroom._impl._explanation.explain = None"
    done = python(f"import makeroom; {broken}; makeroom.install_excepthook()\n{RAISE}")
    assert done.stderr.rstrip().endswith("but unallocated.")


def test_it_can_be_taken_out_again():
    before = sys.excepthook, threading.excepthook
    makeroom.install_excepthook()
    makeroom.install_excepthook()
    assert sys.excepthook is not before[0]
    makeroom.uninstall_excepthook()
    assert (sys.excepthook, threading.excepthook) == before


@pytest.mark.parametrize(
    ("name", "text", "is_about"),
    [
        ("OutOfMemoryError", "Out of memory allocating 1,024 bytes", True),
        ("XlaRuntimeError", "RESOURCE_EXHAUSTED: Out of memory while trying to allocate 8589934592 bytes.", True),
        ("RuntimeError", "CUDA error: out of memory", True),
        ("MemoryError", "std::bad_alloc: out_of_memory: CUDA error", True),
        ("CudaAPIError", "[2] Call to cuMemAlloc results in CUDA_ERROR_OUT_OF_MEMORY", True),
        ("RuntimeError", "shapes do not match", False),
        ("KeyError", "out of memory", False),
    ],
)
def test_errors_are_told_by_name_and_text(name: str, text: str, is_about: bool):
    base = {"KeyError": KeyError, "MemoryError": MemoryError}.get(name, RuntimeError)
    assert is_about_memory(type(name, (base,), {})(text)) is is_about


def test_what_an_error_followed_from_counts():
    with pytest.raises(ValueError) as caught:
        try:
            raise RuntimeError("CUDA error: out of memory")
        except RuntimeError as error:
            raise ValueError("the step failed") from error
    assert is_about_memory(caught.value)


@pytest.mark.skipif(sys.version_info < (3, 11), reason="groups are new in Python 3.11")
def test_a_member_of_a_group_counts():
    cause = ValueError("the step failed")
    cause.__cause__ = RuntimeError("CUDA error: out of memory")
    group = ExceptionGroup("two tasks failed", [KeyError("key"), ExceptionGroup("inner", [cause])])
    assert is_about_memory(group) and not is_about_memory(ExceptionGroup("one", [KeyError("out of memory")]))
    memory = RuntimeError(TEXT)
    assert makeroom.explain(ExceptionGroup("tasks", [memory, KeyError("key")])).cause == "fragmentation"
    # A ring of causes ends.
    cause.__cause__.__cause__ = cause
    assert is_about_memory(cause)


def test_notebooks_get_html():
    pytest.importorskip("IPython")
    script = f"""
from IPython.core.interactiveshell import InteractiveShell
import IPython.display
import makeroom
shell = InteractiveShell.instance()
shown = []
IPython.display.display = shown.append
makeroom.install_excepthook()
shell.run_cell({RAISE!r})
shell.run_cell("1 / 0")
shell.run_cell("raise Exception('of no class')")
assert [type(each).__name__ for each in shown] == ["Explanation"], shown
makeroom.uninstall_excepthook()
shell.run_cell({RAISE!r})
assert len(shown) == 1
"""
    done = python(script)
    assert done.returncode == 0, done.stderr
    assert "RecursionError" not in done.stdout + done.stderr
