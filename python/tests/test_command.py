"""The command in the wheel."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import makeroom


def run(*words: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "COLUMNS": "110"}
    return subprocess.run(words, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=120)


def test_the_command_and_the_module_are_of_one_version(command: str):
    assert run(command, "-V").stdout == f"makeroom {makeroom.__version__}\n"
    assert run(sys.executable, "-m", "makeroom", "-V").stdout == f"makeroom {makeroom.__version__}\n"
    # The long form adds the commit of a release build, and the contents.
    assert run(command, "--version").stdout.startswith(f"makeroom {makeroom.__version__}")


def test_the_command_and_the_module_say_the_same(command: str, examples: Path, traces: Path):
    for path in (examples / "other-process.txt", traces / "oom_fragmented.pickle.gz"):
        assert run(command, "why", "--verbose", str(path)).stdout == makeroom.explain(path).text(110)


def test_the_exit_status_is_passed_on():
    assert run(sys.executable, "-m", "makeroom", "why", "nothing-is-here.txt").returncode == 1


def test_the_command_records_programs(command: str, tmp_path: Path, software_gpu):
    file = tmp_path / "run.room"
    script = "from driver import Driver; driver = Driver(); driver.take(1 << 30)"
    done = software_gpu.python(script, command, "run", "-o", str(file), "--")
    assert done.returncode == 0, done.stderr
    assert "used up to 1.00 GiB of GPU memory" in done.stderr
    assert len(makeroom.open(file).allocations) == 1
