"""Runs a test suite and prints one line as each test ends: `outcome name`.

    python suite_results.py numba               numba-cuda's driver tests
    python suite_results.py torch [CLASS...]    PyTorch's test_cuda.py, if it can be found; $TEST_CUDA names it
    python suite_results.py cupy                CuPy's tests of memory, streams, graphs and the runtime; $TEST_CUPY names
                                                the folder `tests` of its source, in the installed version

Exit status 3, with the reason on stderr, where there is no such suite."""

import glob
import os
import re
import signal
import sys
import unittest


# Tests print too, and some replace standard output.
LINES = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)


class Outcomes(unittest.TextTestResult):
    """Prints how each test ended, at once: a crash or a timeout leaves the lines of the tests before it."""

    def write(self, outcome, test):
        print(f"{outcome} {test.id()}", file=LINES, flush=True)

    def addSuccess(self, test):
        super().addSuccess(test)
        self.write("passed", test)

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        self.write("skipped", test)

    def addFailure(self, test, error):
        super().addFailure(test, error)
        self.write("failed", test)

    def addError(self, test, error):
        super().addError(test, error)
        self.write("error", test)

    def addExpectedFailure(self, test, error):
        super().addExpectedFailure(test, error)
        self.write("expected-failure", test)


def absent(reason):
    print(reason, file=sys.stderr)
    sys.exit(3)


def numba():
    try:
        import numba.cuda
        import numba.cuda.tests.cudadrv as tests
    except ImportError as error:
        absent(f"numba-cuda's tests are not installed: {error}")
    os.environ.setdefault("NUMBA_CUDA_TEST_BIN_DIR", os.path.dirname(tests.__file__))
    return unittest.defaultTestLoader.discover(os.path.dirname(tests.__file__), top_level_dir=None) if not hasattr(
        tests, "load_tests"
    ) else unittest.defaultTestLoader.loadTestsFromModule(tests)


class Moved:
    """Placeholder for a name that the tests import and the installed PyTorch does not have. It skips tests that it decorates."""

    def __bool__(self):
        return False

    def __call__(self, *arguments, **options):
        is_decorator = len(arguments) == 1 and callable(arguments[0]) and not options
        skip = unittest.skip("the installed PyTorch does not have a name that this test needs")
        return skip(arguments[0]) if is_decorator else self

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return self


def import_tests(name):
    """Imports a test module, which may be from another version of PyTorch. Missing names become `Moved`."""
    from importlib import import_module

    while True:
        try:
            return import_module(name)
        except ImportError as error:
            source, missing = sys.modules.get(error.name or ""), re.match(r"cannot import name '(\w+)'", str(error))
            if source is None or missing is None or hasattr(source, missing[1]):
                raise
            setattr(source, missing[1], Moved())


def torch():
    import torch

    package = os.path.dirname(torch.__file__)
    places = [os.environ.get("TEST_CUDA", ""), *glob.glob(f"{package}/**/test_cuda.py", recursive=True)]
    places += glob.glob(f"{os.path.dirname(package)}/test/test_cuda.py")
    places += glob.glob("/opt/pytorch/**/test/test_cuda.py", recursive=True)
    path = next((place for place in places if place and os.path.isfile(place)), None)
    if path is None:
        absent("the wheel of PyTorch has no test_cuda.py; TEST_CUDA=… names one")
    sys.path.insert(0, os.path.dirname(path))
    sys.argv[1:] = []
    module = import_tests("test_cuda")
    # PyTorch's own `load_tests` insists that the file is the program that runs.
    module.__dict__.pop("load_tests", None)
    return unittest.defaultTestLoader.loadTestsFromModule(module)


class CupyOutcomes:
    """A plugin of pytest with the same output. A test that waits too long for a second GPU or process ends with an error."""

    seconds = 20

    def pytest_runtest_setup(self, item):
        signal.signal(signal.SIGALRM, self.too_long)
        signal.alarm(self.seconds)

    @staticmethod
    def too_long(number, frame):
        raise TimeoutError("the test took too long")

    def pytest_runtest_logreport(self, report):
        if report.when == "call" or report.outcome != "passed":
            print(f"{report.outcome} {report.nodeid}", file=LINES, flush=True)


def cupy():
    folder = os.environ.get("TEST_CUPY", "")
    if not os.path.isdir(folder):
        absent("the wheel of CuPy has no tests; TEST_CUPY=… names the folder `tests` of its source")
    try:
        import pytest
    except ImportError as error:
        absent(f"CuPy's tests need pytest: {error}")
    names = ("memory", "memory_hook", "pinned_memory", "device", "driver", "graph", "runtime", "stream", "texture")
    cuda = os.path.join(folder, "cupy_tests", "cuda_tests")
    tests = [os.path.join(cuda, f"test_{name}.py") for name in names] + [os.path.join(cuda, "memory_hooks_tests")]
    os.chdir(folder)
    pytest.main(["-q", "-p", "no:cacheprovider", *tests], plugins=[CupyOutcomes()])


def flatten(suite):
    for test in suite:
        yield from flatten(test) if isinstance(test, unittest.TestSuite) else [test]


def main(which, classes):
    # Tests that compile an extension for minutes, or need all of the GPU, are not about the allocator.
    left_out = ("test_cpp_memory_snapshot_pickle", "test_mempool_with_allocator", "test_huge_index",
                "test_large_trilu", "test_serialization_array_with_storage")
    if which == "cupy":
        return cupy()
    suite = {"numba": numba, "torch": torch}[which]()
    tests = [test for test in flatten(suite) if not any(name in test.id() for name in left_out)]
    tests = [test for test in tests if not classes or type(test).__name__ in classes]
    with open(os.devnull, "w") as nowhere:
        result = unittest.TextTestRunner(stream=nowhere, resultclass=Outcomes).run(unittest.TestSuite(tests))
    for test, error in result.failures + result.errors:
        print(f"\n{test.id()}\n{error}", file=sys.stderr)


main(sys.argv[1], sys.argv[2:])
