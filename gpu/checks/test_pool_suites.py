"""Test suites of other projects: every test of numba-cuda's driver suite, and of PyTorch's test_cuda.py and CuPy's tests if
they are found, has the same result plain, under `run` and under `run --pool`. PyTorch's tests of memory, graphs and streams are
also compared between plain expandable segments and `run --pool`.

The output is in $OUT/pool-suites if $OUT is set, else in the directory of the runs."""

import os
from pathlib import Path

import pytest

from support.runs import execute, last_line

SECONDS = int(os.environ.get("SUITE_SECONDS", "150"))
# The options of `run`, or None without makeroom. The first mode is what the others are compared with.
MODES = {"plain": None, "run": [], "pool": ["--pool"]}
PAGING = {"expandable": None, "paging": ["--pool"]}
EXPANDABLE = {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True", "PYTORCH_ALLOC_CONF": "expandable_segments:True"}
# Of test_cuda.py, the classes about memory, graphs and streams.
MEMORY_CLASSES = ["TestCudaMallocAsync", "TestMemPool", "TestBlockStateAbsorption", "TestCuda"]
NO_SUITE = 3


def suite(runs, show, name, text, differs=(), modes=MODES, classes=()):
    """Runs a suite in several modes and compares the results of its tests. Those in `differs` may differ under `--pool`."""
    logs = Path(os.environ.get("OUT", runs.directory)) / "pool-suites"
    logs.mkdir(parents=True, exist_ok=True)
    results, statuses, reference = {}, [], next(iter(modes))
    for mode, options in modes.items():
        out, err = logs / f"{name}.{mode}.out", logs / f"{name}.{mode}.err"
        prefix = [] if options is None else [
            runs.makeroom, "run", *options, "--no-status", "-o", runs.directory / f"suite_{name}.room", "--"]
        environment = {**runs.environment, **(EXPANDABLE if mode == "expandable" else {})}
        command = [*prefix, *runs.python("suite_results.py", name, *classes)]
        statuses.append(execute(command, out, err, SECONDS, environment, runs.directory))
        if mode == reference and statuses[0] == NO_SUITE:
            pytest.skip(last_line(err.read_text(errors="replace")))
        lines = (line.split(" ", 1) for line in sorted(out.read_text(errors="replace").splitlines(), reverse=True))
        results[mode] = {line[1]: line[0] for line in lines if len(line) == 2}
        for file in runs.directory.glob(f"suite_{name}*.room"):
            file.unlink()
    # After a timeout, or if a test ended the process, only the tests that all modes reached are compared.
    common = set.intersection(*(set(result) for result in results.values()))
    expected = {test for test in common if any(name in test for name in differs)}
    passed = sum(results[reference][test] == "passed" for test in common)
    show(f"{text}: {len(common)} tests, {passed} passed; compared: {', '.join(modes)} "
         f"(exit status {' '.join(map(str, statuses))})", tests=len(common), passed=passed)
    differ = [f"{mode} differs: {results[reference][test]} became {results[mode][test]}: {test}"
              for mode in modes for test in sorted(common - (expected if mode == "pool" else set()))
              if results[mode][test] != results[reference][test]]
    assert not differ, "; ".join(differ[:8])
    # If nothing passes in the plain run, the suite did not run: a module is missing.
    assert passed, f"none ran: {last_line((logs / f'{name}.{reference}.err').read_text(errors='replace'))}"


@pytest.mark.needs("numba")
@pytest.mark.goal("the same result for every test")
def test_suite_numba(runs, show):
    suite(runs, show, "numba", "numba-cuda's driver tests")


@pytest.mark.needs("torch")
@pytest.mark.goal("the same result for every test")
def test_suite_torch(runs, show):
    suite(runs, show, "torch", "PyTorch's test_cuda.py")


@pytest.mark.needs("torch")
@pytest.mark.goal("the same result for every test as with plain expandable segments")
def test_suite_paging(runs, show):
    suite(runs, show, "torch", "PyTorch's test_cuda.py", modes=PAGING, classes=MEMORY_CLASSES)


@pytest.mark.needs("cupy")
@pytest.mark.goal("the same result for every test, except what reads figures of the driver's pool under --pool")
def test_suite_cupy(runs, show):
    # The pool serves these requests, so the driver's own pool has nothing to count.
    suite(runs, show, "cupy", "CuPy's tests of memory, streams, graphs and the runtime", ["TestMemoryAsyncPool"])
