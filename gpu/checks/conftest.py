"""Fixtures of the checks: the runs of programs, and what a check shows of its result."""

import subprocess
import tempfile
from pathlib import Path

import pytest

from support import needs
from support.runs import Runs
from support.software import SoftwareGpu
from support.table import SHOWN, Table, name_of, section_of


def pytest_addoption(parser):
    group = parser.getgroup("gpu checks")
    group.addoption("--makeroom", required=True, help="the makeroom to check")
    group.addoption("--select", action="append", default=[], help="a section or a check")
    group.addoption("--quick", action="store_true", help="fewer repetitions")
    group.addoption("--software", action="store_true", help="use the software GPU")
    group.addoption("--results", default="gpu-check.json", help="file for all figures")
    group.addoption("--keep", help="directory for recordings, outputs and programs")


def graphics_card():
    """Name, driver and memory of the GPU, from nvidia-smi."""
    command = ["nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()[0].strip()


def pytest_configure(config):
    gpu = "the software GPU" if config.option.software else graphics_card()
    config.pluginmanager.register(Table(config, gpu, Path(config.option.results).resolve()))
    version = subprocess.run([config.option.makeroom, "--version"], capture_output=True, text=True, check=True).stdout
    print(f"{version.strip()} on {gpu}", flush=True)


def pytest_collection_modifyitems(config, items):
    wanted, sections = set(config.option.select), {section_of(item) for item in items}
    unknown = wanted - sections - {name_of(item) for item in items}
    if unknown:
        raise pytest.UsageError(f"no section or check is called {', '.join(sorted(unknown))}")
    if wanted:
        # A section wins over checks of the same name in other sections.
        names = wanted - sections
        items[:] = [item for item in items if section_of(item) in wanted or name_of(item) in names]


def pytest_runtest_setup(item):
    options = item.config.option
    for marker in item.iter_markers("needs"):
        for what in marker.args:
            if why := needs.missing(what, options.makeroom, options.software):
                pytest.skip(why)


@pytest.fixture(scope="session")
def quick(pytestconfig):
    """Whether fewer repetitions are wanted."""
    return pytestconfig.option.quick


@pytest.fixture(scope="session")
def software(runs):
    """The software GPU, or None on a real one."""
    return runs.software


@pytest.fixture(scope="session")
def runs(pytestconfig):
    """Runs programs, with and without makeroom."""
    options = pytestconfig.option
    with tempfile.TemporaryDirectory() as temporary:
        directory = Path(options.keep or temporary).resolve()
        directory.mkdir(parents=True, exist_ok=True)
        software = SoftwareGpu(options.makeroom, directory) if options.software else None
        yield Runs(options.makeroom, directory, software)


@pytest.fixture
def show(request):
    """Sets the text that a check shows, and its figures for the JSON file."""

    def show(text, **figures):
        request.node.stash[SHOWN] = (" ".join(text.split()), figures)

    return show
