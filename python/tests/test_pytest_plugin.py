"""The pytest plugin, in a child process under the recorder, on the software GPU."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = """
import ctypes
import pytest
from driver import Driver

MIB = 1 << 20
driver = Driver()
kept = []

@pytest.mark.gpu_memory(limit="100MiB", leaks=0)
def test_modest():
    driver.give(driver.take(99 * MIB))

@pytest.mark.gpu_memory(limit="100MiB")
def test_greedy():
    driver.give(driver.take(101 * MIB))

@pytest.mark.gpu_memory(leaks="1MiB")
def test_leaky():
    kept.append(ctypes.c_uint64())
    driver.library.cuMemAlloc_v2(ctypes.byref(kept[-1]), ctypes.c_size_t(2 * MIB))

@pytest.mark.gpu_memory(leaks=0)
def test_failing():
    kept.append(driver.take(2 * MIB))
    assert False, "its own reason"

@pytest.mark.gpu_memory(size="1MiB")
def test_misspelt():
    pass

@pytest.mark.gpu_memory(limit="lots")
def test_nonsense():
    pass

@pytest.mark.gpu_memory("120 MB")
def test_modest_by_position():
    driver.give(driver.take(99 * MIB))

@pytest.mark.gpu_memory("100 MB")
def test_greedy_by_position():
    driver.give(driver.take(101 * MIB))

@pytest.mark.gpu_memory("1MiB", limit="1MiB")
def test_twice():
    pass

def test_unmarked():
    kept.append(driver.take(500 * MIB))

@pytest.mark.gpu_memory(limit="100MiB", leaks=0)
def test_after_one_that_leaks():
    driver.give(driver.take(99 * MIB))
"""


def run(software_gpu, tmp_path: Path, *before: str, options: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    (tmp_path / "test_it.py").write_text(TESTS)
    words = [*before, sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-rA", *options, "test_it.py"]
    return subprocess.run(
        words, cwd=tmp_path, env=software_gpu.environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=120
    )


def test_limits_and_leaks_fail_tests(software_gpu, command, tmp_path):
    done = run(software_gpu, tmp_path, command, "run", "-o", str(tmp_path / "run.room"), "--no-status", "--")
    assert "7 failed, 4 passed" in done.stdout, done.stdout + done.stderr
    assert "During handling" not in done.stdout and "Traceback" not in done.stdout
    assert "the test used 101.00 MiB of GPU memory; limit: 100.00 MiB" in done.stdout
    assert "the test leaked 2.00 MiB of GPU memory; allowed: 1.00 MiB" in done.stdout
    # The report names the line.
    assert "test_it.py:21 test_leaky" in done.stdout
    assert "its own reason" in done.stdout
    assert "gpu_memory: unknown argument size; use limit, leaks, baseline or allow" in done.stdout
    assert "gpu_memory: limit was given twice" in done.stdout
    assert "the test used 101.00 MiB of GPU memory; limit: 95.37 MiB" in done.stdout
    assert "PASSED test_it.py::test_modest" in done.stdout
    assert done.returncode == 1


def test_without_anything_to_watch_with_tests_run_and_it_is_said(software_gpu, tmp_path):
    done = run(software_gpu, tmp_path)
    # Once, and not for each test.
    assert done.stdout.count("gpu_memory was not checked in 7 tests: this process is not recorded") == 1
    assert "PASSED test_it.py::test_greedy" in done.stdout and "warning" not in done.stdout


def test_it_can_be_required_and_turned_off(software_gpu, tmp_path):
    done = run(software_gpu, tmp_path, options=("--gpu-memory=require",))
    assert "GPU memory cannot be measured: this process is not recorded" in done.stdout
    assert "PASSED test_it.py::test_unmarked" in done.stdout
    done = run(software_gpu, tmp_path, options=("--gpu-memory=off",))
    assert "not checked" not in done.stdout and "PASSED test_it.py::test_greedy" in done.stdout


def test_the_tests_that_use_most_are_listed(software_gpu, command, tmp_path):
    recorder = (command, "run", "-o", str(tmp_path / "run.room"), "--no-status", "--")
    done = run(software_gpu, tmp_path, *recorder, options=("--gpu-memory-top=3",))
    lines = done.stdout.split("tests by GPU memory")[1].splitlines()
    assert "top 3 of 8 tests by GPU memory" in done.stdout
    # Tests without the marker are measured too.
    assert lines[2].split() == ["500.00", "MiB", "500.00", "MiB", "test_it.py::test_unmarked"]
    assert [line.split()[0] for line in lines[3:5]] == ["101.00", "101.00"]
    (tmp_path / "pytest.ini").write_text("[pytest]\ngpu_memory_top = 1\n")
    assert "top 1 of 8 tests by GPU memory" in run(software_gpu, tmp_path, *recorder).stdout
    (tmp_path / "pytest.ini").write_text("[pytest]\ngpu_memory_top = many\n")
    assert "gpu_memory_top: 'many' is not a number" in run(software_gpu, tmp_path).stderr


def test_without_anything_to_watch_with_the_list_is_empty(software_gpu, tmp_path):
    done = run(software_gpu, tmp_path, options=("--gpu-memory-top=3",))
    assert "no GPU memory was measured in any test" in done.stdout


def test_figures_are_in_the_report(software_gpu, command, tmp_path):
    report = tmp_path / "report.xml"
    run(software_gpu, tmp_path, command, "run", "-o", str(tmp_path / "run.room"), "--", options=(f"--junitxml={report}",))
    assert f'name="gpu_memory_peak_bytes" value="{99 << 20}"' in report.read_text()


def test_the_mark_is_known():
    done = subprocess.run([sys.executable, "-m", "pytest", "--markers"], stdout=subprocess.PIPE, text=True)
    assert "gpu_memory(limit=None, leaks=None, baseline=None, allow='2%')" in done.stdout
