"""Baselines of the pytest plugin, in a child process under the recorder, on the software GPU."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

MIB = 1 << 20

STEP = """
import os
import pytest
from driver import Driver

MIB = 1 << 20
driver = Driver()

@pytest.mark.gpu_memory(baseline="step.json", allow="10%")
def test_step():
    first = driver.take(100 * MIB)
    second = driver.take(int(os.environ["MORE"]) * MIB)
    driver.give(second)
    driver.give(first)

@pytest.mark.gpu_memory(allow="1MiB")
def test_without_baseline():
    pass

@pytest.mark.gpu_memory(baseline="step.json", allow="much")
def test_nonsense():
    pass
"""

# Memory of the module and of the first test is live when the other tests begin.
OLDER = """
import ctypes
import pytest
from driver import Driver

MIB = 1 << 20
driver = Driver()
older = [driver.take(64 * MIB), driver.take(32 * MIB)]

def take(mebibytes):
    address = ctypes.c_uint64()
    driver.library.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(mebibytes * MIB))
    return address.value

def test_that_leaks():
    older.append(take(16))

@pytest.mark.gpu_memory(baseline="adds.json")
def test_that_adds():
    ours = [take(8), take(4), driver.take(2 * MIB)]
    for address in ours:
        driver.give(address)

@pytest.mark.gpu_memory(baseline="replaces.json")
def test_that_replaces_older_memory():
    driver.give(older.pop(0))
    ours = [take(70), take(10)]
    for address in ours:
        driver.give(address)
"""

# Cases that run in any order and in any process share a baseline.
SHARED = """
import os
import pytest
from driver import Driver

MIB = 1 << 20
driver = Driver()

@pytest.mark.parametrize("mebibytes", [7, 90, 5, 60, 3, 40, 2, 1])
@pytest.mark.gpu_memory(baseline="new/shared.json")
def test_case(mebibytes, record_property):
    record_property("process", os.getpid())
    driver.give(driver.take(mebibytes * MIB))
"""


def run(software_gpu, command, folder: Path, tests: str, *options: str, **variables: str) -> subprocess.CompletedProcess[str]:
    (folder / "test_it.py").write_text(tests)
    words = [command, "run", "-o", str(folder / "run.room"), "--no-status", "--", sys.executable, "-m", "pytest"]
    words += ["-q", "-p", "no:cacheprovider", "-rA", *options, "test_it.py"]
    environment = software_gpu.environment(**variables)
    return subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, timeout=300)


def content(path: Path) -> dict[str, Any]:
    """Return a baseline whose lines add up to its peak."""
    baseline = json.loads(path.read_text())
    assert sum(line["bytes"] for line in baseline["lines"]) == baseline["peak_bytes"] == baseline["kinds"]["unknown"]
    return baseline


def test_a_baseline_is_written_and_compared(software_gpu, command, tmp_path):
    text = run(software_gpu, command, tmp_path, STEP, MORE="20").stdout
    assert "step.json does not exist" in text and "hint: to write the baselines: pytest --gpu-memory=write" in text
    assert "gpu_memory: allow was given without baseline" in text and "gpu_memory: `much` is not a size" in text
    text = run(software_gpu, command, tmp_path, STEP, "--gpu-memory=write", MORE="20").stdout
    assert "PASSED test_it.py::test_step" in text
    assert "1 GPU memory baseline written" in text and "120.00 MiB  step.json" in text
    baseline = content(tmp_path / "step.json")
    assert baseline["format"] == "makeroom baseline 1" and baseline["peak_bytes"] == 120 * MIB
    assert [line["blocks"] for line in baseline["lines"]] == [2]
    assert "PASSED test_it.py::test_step" in run(software_gpu, command, tmp_path, STEP, MORE="31").stdout
    text = run(software_gpu, command, tmp_path, STEP, MORE="40").stdout
    assert "the test used 140.00 MiB of GPU memory; baseline: 120.00 MiB, allowed: 132.00 MiB" in text
    assert "call holds 20.00 MiB more" in text
    # The file is also a baseline of the command.
    again = subprocess.run(
        [command, "gate", str(tmp_path / "run.room"), "--against", str(tmp_path / "step.json")], capture_output=True, text=True
    )
    assert again.returncode == 3 and again.stdout.startswith("fail "), again.stdout + again.stderr


def test_lines_do_not_include_memory_from_before_the_test(software_gpu, command, tmp_path):
    done = run(software_gpu, command, tmp_path, OLDER, "--gpu-memory=write")
    assert "3 passed" in done.stdout and "2 GPU memory baselines written" in done.stdout, done.stdout + done.stderr

    def lines(name: str) -> dict[str, int]:
        baseline = content(tmp_path / name)
        # Before Python 3.11, the names of methods do not include the class.
        return {re.split(r"[ .]", line["place"])[-1]: line["bytes"] // MIB for line in baseline["lines"]}

    # `take` held 16 MiB before, and `call` 96 MiB.
    assert lines("adds.json") == {"take": 12, "call": 2}
    # The 64 MiB that the test freed do not reduce what it used.
    assert lines("replaces.json") == {"take": 80}


def test_the_highest_peak_counts(software_gpu, command, tmp_path):
    done = run(software_gpu, command, tmp_path, SHARED, "--gpu-memory=write")
    assert "8 passed" in done.stdout, done.stdout + done.stderr
    assert content(tmp_path / "new/shared.json")["peak_bytes"] == 90 * MIB


def test_the_highest_peak_counts_among_the_workers_of_xdist(software_gpu, command, tmp_path):
    pytest.importorskip("xdist")
    report = tmp_path / "report.xml"
    options = ("-n", "3", "--gpu-memory=write", f"--junitxml={report}")
    done = run(software_gpu, command, tmp_path, SHARED, *options, "--gpu-memory-top=2")
    assert "8 passed" in done.stdout and "1 GPU memory baseline written" in done.stdout, done.stdout + done.stderr
    processes = {line.split('value="')[1].split('"')[0] for line in report.read_text().split("<property ") if "process" in line}
    assert len(processes) > 1
    assert content(tmp_path / "new/shared.json")["peak_bytes"] == 90 * MIB
    # The list has the tests of all workers.
    shown = done.stdout.split("top 2 of 8 tests by GPU memory")[1].splitlines()
    assert [line.split()[0] for line in shown[2:4]] == ["90.00", "60.00"]


def test_an_interrupted_run_writes_no_baseline(software_gpu, command, tmp_path):
    interrupted = SHARED + "\ndef test_that_is_interrupted():\n    raise KeyboardInterrupt\n"
    done = run(software_gpu, command, tmp_path, interrupted, "--gpu-memory=write")
    assert "KeyboardInterrupt" in done.stdout and "8 passed" in done.stdout and "written" not in done.stdout
    assert not (tmp_path / "new").exists()


def test_a_baseline_that_cannot_be_written_fails_the_run(software_gpu, command, tmp_path):
    (tmp_path / "new").write_text("a file where the directory should be")
    done = run(software_gpu, command, tmp_path, SHARED, "--gpu-memory=write")
    assert "8 passed" in done.stdout and done.returncode == 1
    assert f"cannot write {tmp_path}/new/shared.json: File exists" in done.stdout
    assert "0 GPU memory baselines written" in done.stdout


def test_a_damaged_baseline_is_named(software_gpu, command, tmp_path):
    line = {"place": [], "bytes": 1, "blocks": 1}
    unhashable = json.dumps({"format": "makeroom baseline 1", "peak_bytes": 1, "lines": [line]})
    for damaged in ("", "{}", '{"format": "makeroom baseline 1"}', "[1]", unhashable):
        (tmp_path / "step.json").write_text(damaged)
        text = run(software_gpu, command, tmp_path, STEP, MORE="20").stdout
        assert "FAILED test_it.py::test_step" in text and "hint: to write the baselines: pytest --gpu-memory=write" in text, text
