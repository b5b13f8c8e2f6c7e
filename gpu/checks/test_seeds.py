"""The C++ programs from five articles about CUDA running out of memory, unmodified, and what makeroom should report about
each."""

import concurrent.futures
import re

import pytest

from support.runs import PROGRAMS, at

needs = pytest.mark.needs
MIB = 1 << 20
KERNELS = ("s000_2_shared_memory", "s002_1_kernel_new")
pytestmark = pytest.mark.goal("the finding is in the JSON of why, and run prints it")


@pytest.fixture(scope="module")
def built(runs):
    """All programs, compiled at once: name to path, or to the error."""
    names = [path.stem for path in sorted((PROGRAMS / "seeds").glob("*.cu"))]
    names = [name for name in names if not (runs.software and name in KERNELS)]
    with concurrent.futures.ThreadPoolExecutor() as pool:
        return {name: pool.submit(runs.build, name, f"seeds/{name}.cu") for name in names}


@pytest.fixture
def seed(runs, built):
    """Runs one of the programs under makeroom."""
    return lambda name, *arguments: runs.recorded(name, [built[name].result(), *arguments])


def finds(show, run, text, printed, **expected):
    """Checks values in the JSON of why, by path, and what run printed."""
    show(text)
    assert run.status == 0, f"exit status {run.status}"
    for path, value in expected.items():
        keys = [int(key) if key.isdigit() else key for key in path.split("__")]
        assert at(run.why, *keys) == value, f"{'.'.join(map(str, keys))} is {at(run.why, *keys)}, not {value}"
    assert re.search(printed, run.said), f"not printed: {printed}"


CLEAN = dict(verdict__cause="none", run__never_freed=[], run__failed_launches=[], run__pending_frees=[], run__refusals=0)


@needs("compiler")
def test_s000_1_allocate_and_free(seed, show):
    finds(show, seed("s000_1_allocate_and_free"), "clean", "all memory was freed", **CLEAN)


@needs("nvcc")
def test_s000_2_shared_memory(seed, show):
    finds(show, seed("s000_2_shared_memory"), "a kernel requesting 4 MiB of shared memory failed to launch",
          "failed to launch.*4.00 MiB of shared memory",
          verdict__cause="shared_memory_or_kernel_resource",
          run__failed_launches__0__shared_memory_bytes=4 * MIB, run__failed_launches__0__count=1)


@needs("compiler")
def test_s000_3_streams(seed, show):
    finds(show, seed("s000_3_streams"), "32 MiB requested while four frees of 4 MiB are pending",
          "freed with cudaFreeAsync.*16.00 MiB in 4 frees on 4 streams",
          run__never_freed=[], run__pending_frees__0__asked_meanwhile__bytes=32 * MIB,
          run__pending_frees__0__asked_meanwhile__pending__frees=4,
          run__pending_frees__0__asked_meanwhile__pending__bytes=16 * MIB)


@needs("nvcc")
def test_s002_1_kernel_new(seed, show):
    finds(show, seed("s002_1_kernel_new"), "device-side malloc with a heap of 8 MiB", "device-side malloc.*8.00 MiB",
          run__kernel_heap__limit_bytes=8 * MIB, run__kernel_heap__modules=1, run__never_freed__0__bytes=512 * MIB)


@needs("compiler")
def test_s002_2_host_leak(seed, show):
    # It grows by 1.56 GiB in 400 rounds, within seconds: only a run of several minutes is evidence of a host memory leak.
    finds(show, seed("s002_2_host_leak", "400", "fill"), "host memory that grows in a short run is not called a leak",
          "no allocation failed", run__host_growth=None, run__never_freed=[])


@needs("compiler")
def test_s002_3_large_request(seed, show):
    finds(show, seed("s002_3_large_request"), "clean: 4 GiB fits", "all memory was freed", **CLEAN)


@needs("compiler")
def test_s003_1_missing_free(seed, show):
    run = seed("s003_1_missing_free")
    finds(show, run, "1 GiB never freed, with its line", "never freed: 1.00 GiB of GPU memory in 1 allocation",
          run__never_freed__0__bytes=1024 * MIB)
    site = at(run.why, "run", "never_freed", 0, "sites", 0, "site") or ""
    assert "s003_1_missing_free.cu:" in site, f"the line is {site or 'missing'}"


@needs("compiler")
def test_s003_2_device_reset(seed, show):
    finds(show, seed("s003_2_device_reset"), "clean", "no GPU allocation|all memory was freed|when its context was destroyed", **CLEAN)


@needs("compiler")
def test_s003_3_library(seed, show):
    run = seed("s003_3_library")
    show("does not use CUDA and leaves no recording")
    assert not run.room.exists(), "a program without CUDA left a recording"
    assert "nothing was recorded" in run.said, "run did not report that nothing was recorded"
