"""Fixtures: the recordings of this repository, the command of the wheel, and its software GPU."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

pytest_plugins = ["pytester"]


@pytest.fixture(scope="session")
def traces() -> Path:
    return ROOT / "traces"


@pytest.fixture(scope="session")
def examples() -> Path:
    return ROOT / "examples"


@pytest.fixture(scope="session")
def command() -> str:
    from makeroom._impl._command import find

    found = find()
    assert found is not None
    return found


class SoftwareGpu:
    """A software GPU, which programs load as the CUDA driver."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def environment(self, **more: str) -> dict[str, str]:
        variables = {**os.environ, "MAKEROOM_SIMGPU": "devices=1,memory=8GiB,context=256MiB", **more}
        variables["LD_LIBRARY_PATH"] = str(self.folder)
        variables["MAKEROOM_SIMGPU_DIR"] = str(self.folder)
        variables["PYTHONPATH"] = str(Path(__file__).parent)
        return variables

    def python(self, script: str, *before: str, **more: str) -> subprocess.CompletedProcess[str]:
        """Run a script, optionally under another command."""
        with tempfile.TemporaryDirectory() as folder:
            # A file, because code passed with -c has no file name in recorded lines.
            program = Path(folder) / "program.py"
            program.write_text(script)
            return self.run(*before, sys.executable, str(program), **more)

    def run(self, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
        """Run a command."""
        pipe = subprocess.PIPE
        return subprocess.run(words, env=self.environment(**more), stdout=pipe, stderr=pipe, text=True, timeout=120)


@pytest.fixture(scope="session")
def software_gpu(command: str, tmp_path_factory: pytest.TempPathFactory) -> SoftwareGpu:
    """The software GPU in the command, which `makeroom demo` extracts."""
    folder = tmp_path_factory.mktemp("gpu")
    environment = {**os.environ, "XDG_RUNTIME_DIR": str(folder)}
    demo = [command, "demo", "--gpu", "software", "--json", "missing-free"]
    subprocess.run(demo, env=environment, stdout=subprocess.DEVNULL, check=True, timeout=120)
    (library,) = folder.glob("makeroom/software-gpu-*/libcuda.so.1")
    return SoftwareGpu(library.parent)
