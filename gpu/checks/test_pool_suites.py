"""Test suites of other projects: every test of numba-cuda's driver suite, and of PyTorch's test_cuda.py and CuPy's tests if
they are found, has the same result plain, under `run` and under `run --pool`.

The output is in $OUT/pool-suites if $OUT is set, else in the directory of the runs."""

import os
from pathlib import Path

import pytest

from support.runs import execute, last_line

SECONDS = int(os.environ.get("SUITE_SECONDS", "150"))
MODES = {"plain": None, "run": [], "pool": ["--pool"]}
NO_SUITE = 3


def suite(runs, show, name, text, differs=()):
    """Runs a suite in three modes and compares the results of its tests. Those in `differs` may differ under `--pool`."""
    logs = Path(os.environ.get("OUT", runs.directory)) / "pool-suites"
    logs.mkdir(parents=True, exist_ok=True)
    results, statuses = {}, []
    for mode, options in MODES.items():
        out, err = logs / f"{name}.{mode}.out", logs / f"{name}.{mode}.err"
        prefix = [] if options is None else [
            runs.makeroom, "run", *options, "--no-status", "-o", runs.directory / f"suite_{name}.room", "--"]
        statuses.append(execute([*prefix, *runs.python("suite_results.py", name)], out, err, SECONDS, runs.environment, runs.directory))
        if mode == "plain" and statuses[0] == NO_SUITE:
            pytest.skip(last_line(err.read_text(errors="replace")))
        lines = (line.split(" ", 1) for line in sorted(out.read_text(errors="replace").splitlines(), reverse=True))
        results[mode] = {line[1]: line[0] for line in lines if len(line) == 2}
        for file in runs.directory.glob(f"suite_{name}*.room"):
            file.unlink()
    # After a timeout, or if a test ended the process, only the tests that all three modes reached are compared.
    common = set.intersection(*(set(result) for result in results.values()))
    expected = {test for test in common if any(name in test for name in differs)}
    passed = sum(results["plain"][test] == "passed" for test in common)
    show(f"{text}: {len(common)} tests, {passed} passed, with the same results plain, under run and under run --pool "
         f"(exit status {' '.join(map(str, statuses))})", tests=len(common), passed=passed)
    differ = [f"{mode} differs: {results['plain'][test]} became {results[mode][test]}: {test}"
              for mode in ("run", "pool") for test in sorted(common - (expected if mode == "pool" else set()))
              if results[mode][test] != results["plain"][test]]
    assert not differ, "; ".join(differ[:8])
    # If nothing passes in the plain run, the suite did not run: a module is missing.
    assert passed, f"none ran: {last_line((logs / f'{name}.plain.err').read_text(errors='replace'))}"


@pytest.mark.needs("numba")
@pytest.mark.goal("the same result for every test")
def test_suite_numba(runs, show):
    suite(runs, show, "numba", "numba-cuda's driver tests")


@pytest.mark.needs("torch")
@pytest.mark.goal("the same result for every test")
def test_suite_torch(runs, show):
    suite(runs, show, "torch", "PyTorch's test_cuda.py")


@pytest.mark.needs("cupy")
@pytest.mark.goal("the same result for every test, except what reads figures of the driver's pool under --pool")
def test_suite_cupy(runs, show):
    # The pool serves these requests, so the driver's own pool has nothing to count.
    suite(runs, show, "cupy", "CuPy's tests of memory, streams, graphs and the runtime", ["TestMemoryAsyncPool"])
