"""pytest plugin: limit how much GPU memory a test may use or leak, and list the tests that use the most.

    @pytest.mark.gpu_memory("2GiB", leaks=0)
    def test_step(): ...

    @pytest.mark.gpu_memory(baseline="step.json", allow="2%")
    def test_step_does_not_grow(): ...

    pytest --gpu-memory-top=10
    pytest --gpu-memory=write

A baseline is a file of `makeroom gate`, relative to the test's file; `--gpu-memory=write` writes the baselines at the end of
the run. If several cases of a test share a baseline, the highest peak of the run counts, also with pytest-xdist: each worker
sends its baselines to the controller, which writes them.

Without `--gpu-memory-top`, tests without the marker are not affected. Figures come from `makeroom.watch`: `makeroom run --
pytest` works with every framework and shows lines; with PyTorch or JAX on CUDA, plain `pytest` works too. If memory cannot be
measured, marked tests run without the check, and the summary shows how many; with `--gpu-memory=require`, they fail.
"""

from __future__ import annotations

import gc
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generator, NamedTuple

import pytest

if TYPE_CHECKING:
    from ._impl._baseline import Baseline
    from ._impl._watch import Watch

_PEAK, _TAKEN, _LEFT = "gpu_memory_peak_bytes", "gpu_memory_taken_bytes", "gpu_memory_left_bytes"
_UNCHECKED = "gpu_memory_not_checked"
_HINT = "@pytest.mark.gpu_memory('2GiB', leaks=0)"
_OPTION_TOP = "--gpu-memory-top"
_ALLOW = "2%"
_ARGUMENTS = {"limit", "leaks", "baseline", "allow"}
# What a worker of pytest-xdist sends to the controller.
_SENT = "makeroom_baselines"


class Baselines:
    """The baselines of this run, and those that could not be written."""

    def __init__(self) -> None:
        self.measured: dict[str, Baseline] = {}
        self.failures: dict[str, str] = {}

    def add(self, path: str, baseline: Baseline) -> None:
        """Keep the baseline with the highest peak."""
        known = self.measured.get(path)
        if known is None or baseline.peak_bytes > known.peak_bytes:
            self.measured[path] = baseline

    def write(self) -> None:
        """Write all baselines; `failures` has the reason for each that cannot be written."""
        from ._impl import _baseline

        for path, baseline in sorted(self.measured.items()):
            try:
                _baseline.write(Path(path), baseline)
            except OSError as error:
                self.failures[path] = error.strerror or str(error)


_baselines = pytest.StashKey[Baselines]()


class Budget(NamedTuple):
    """What a test may use."""

    limit: int | None = None
    leaks: int | None = None
    baseline: Path | None = None
    allow: str | int = _ALLOW


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("makeroom")
    group.addoption(
        "--gpu-memory",
        choices=("auto", "require", "off", "write"),
        default="auto",
        help="auto: check the tests marked gpu_memory if GPU memory can be measured; require: fail them if it cannot; off: do not "
        "check them; write: write their baselines [default: auto]",
    )
    group.addoption(
        _OPTION_TOP,
        type=int,
        metavar="N",
        help="measure every test and list the N tests that used the most GPU memory [default: gpu_memory_top in the ini file]",
    )
    parser.addini("gpu_memory_top", "measure every test and list this many of those that used the most GPU memory", default="0")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        "gpu_memory(limit=None, leaks=None, baseline=None, allow='2%'): fail the test if its peak of GPU memory exceeds limit, "
        "if more than leaks is still allocated afterward, or if the peak exceeds the one in the file baseline by more than allow; "
        "sizes are numbers of bytes or strings such as '2GiB'",
    )
    config.stash[_baselines] = Baselines()
    _top(config)


def _top(config: pytest.Config) -> int:
    """Return the number of tests to list."""
    number = config.getoption(_OPTION_TOP)
    if number is None:
        number = config.getini("gpu_memory_top")
    try:
        return max(int(number), 0)
    except ValueError:
        raise pytest.UsageError(f"gpu_memory_top: {number!r} is not a number") from None


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, None]:
    marker = item.get_closest_marker("gpu_memory")
    mode = item.config.getoption("--gpu-memory")
    if mode == "off" or marker is None and not _top(item.config):
        yield
        return
    budget = _budget(marker, item) if marker is not None else Budget()
    gc.collect()
    watched = _started()
    if isinstance(watched, str):
        if mode in ("require", "write") and marker is not None:
            pytest.fail(f"GPU memory cannot be measured: {watched}", pytrace=False)
        if marker is not None:
            item.user_properties.append((_UNCHECKED, watched.split("\n")[0]))
        yield
        return
    outcome = yield
    # Memory that only a reference cycle keeps is not a leak.
    gc.collect()
    watched.__exit__(None, None, None)
    item.user_properties.append((_PEAK, watched.peak_bytes))
    item.user_properties.append((_TAKEN, watched.taken_bytes))
    item.user_properties.append((_LEFT, watched.left_bytes))
    # A failed test has its own reason, and its traceback keeps its tensors alive; it may have ended before its peak.
    complaint = None if outcome.excinfo else _complaint(watched, budget, item.config if mode == "write" else None)
    if complaint is not None:
        _fail(outcome, f"{complaint}\n\n{watched!r}")


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: Any) -> None:
    """Receive the baselines of a worker that has finished (a hook of pytest-xdist)."""
    from ._impl._baseline import from_dict

    sent: dict[str, Any] = getattr(node, "workeroutput", None) or {}
    for path, content in sent.get(_SENT, {}).items():
        node.config.stash[_baselines].add(path, from_dict(content))


def pytest_sessionfinish(session: pytest.Session) -> None:
    baselines = session.config.stash[_baselines]
    output: dict[str, Any] | None = getattr(session.config, "workeroutput", None)
    if output is not None:
        output[_SENT] = {path: baseline.to_dict() for path, baseline in baselines.measured.items()}
        return
    if session.exitstatus not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
        # The run was interrupted, perhaps before the case with the highest peak.
        baselines.measured.clear()
    baselines.write()
    if baselines.failures and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """List the tests by GPU memory, the baselines that were written, and the number of tests that were not checked. The figures
    come with the reports, so that tests in other processes (pytest-xdist) are included."""
    reports = [
        report
        for group in terminalreporter.stats.values()
        for report in group
        if isinstance(report, pytest.TestReport) and report.when == "call"
    ]
    _list_top(terminalreporter, reports, _top(config))
    _list_baselines(terminalreporter, config)
    from ._impl._sizes import counted

    reasons = [dict(report.user_properties).get(_UNCHECKED) for report in reports]
    unchecked = [str(reason) for reason in reasons if reason is not None]
    if unchecked:
        tests = counted(len(unchecked), "test")
        terminalreporter.section("GPU memory", sep="-")
        terminalreporter.line(f"gpu_memory was not checked in {tests}: {unchecked[0]}", yellow=True)


def _list_baselines(reporter: Any, config: pytest.Config) -> None:
    from ._impl._sizes import counted, show

    baselines = config.stash[_baselines]
    if not baselines.measured:
        return
    written = len(baselines.measured) - len(baselines.failures)
    reporter.section(f"{counted(written, 'GPU memory baseline')} written", sep="-")
    for path, baseline in sorted(baselines.measured.items()):
        if path not in baselines.failures:
            reporter.line(f"{show(baseline.peak_bytes):>12}  {_short(path, config)}")
    for path, reason in baselines.failures.items():
        reporter.line(f"cannot write {path}: {reason}", red=True)


def _short(path: str, config: pytest.Config) -> str:
    """Return a path relative to the directory of the command, if it is below that."""
    try:
        return str(Path(path).relative_to(config.invocation_params.dir))
    except ValueError:
        return path


def _list_top(reporter: Any, reports: list[pytest.TestReport], most: int) -> None:
    from ._impl._sizes import show

    rows = []
    for report in reports:
        figures = dict(report.user_properties)
        if figures.get(_TAKEN):
            rows.append((int(str(figures[_TAKEN])), int(str(figures[_LEFT])), report.nodeid))
    if not most or not rows:
        if most:
            reporter.section("GPU memory", sep="-")
            reporter.line("no GPU memory was measured in any test")
        return
    rows.sort(reverse=True)
    shown = rows[:most]
    reporter.section(f"top {len(shown)} of {len(rows)} tests by GPU memory", sep="-")
    reporter.line(f"{'used':>12}  {'left':>12}  test")
    for taken, left, name in shown:
        reporter.line(f"{show(taken):>12}  {show(left):>12}  {name}")


def _started() -> Watch | str:
    """Return a watch that has started, or the reason why memory cannot be measured."""
    from ._impl._sources import WatchError
    from ._impl._watch import watch

    try:
        return watch(required=True).__enter__()
    except WatchError as error:
        return str(error)


def _budget(marker: pytest.Mark, item: pytest.Item) -> Budget:
    from ._impl._baseline import Baseline, limit as largest
    from ._impl._sizes import parse_optional

    unknown = sorted(set(marker.kwargs) - _ARGUMENTS)
    problem = None
    if unknown:
        problem = f"unknown argument {', '.join(unknown)}; use limit, leaks, baseline or allow"
    elif len(marker.args) > 1:
        problem = f"{len(marker.args)} positional arguments were given; only limit can be positional"
    elif marker.args and "limit" in marker.kwargs:
        problem = "limit was given twice"
    elif "allow" in marker.kwargs and "baseline" not in marker.kwargs:
        problem = "allow was given without baseline"
    if problem is not None:
        pytest.fail(f"gpu_memory: {problem}\n\nhint: {_HINT}", pytrace=False)
    limit = marker.args[0] if marker.args else marker.kwargs.get("limit")
    baseline = marker.kwargs.get("baseline")
    allow = marker.kwargs.get("allow", _ALLOW)
    try:
        largest(Baseline(0, {}), allow)
        path = None if baseline is None else item.path.parent / baseline
        return Budget(parse_optional(limit), parse_optional(marker.kwargs.get("leaks")), path, allow)
    except (TypeError, ValueError) as error:
        reason = str(error)
    # Outside of the handler, so that the report shows one failure and not two.
    pytest.fail(f"gpu_memory: {reason}", pytrace=False)


def _complaint(watched: Watch, budget: Budget, writes_for: pytest.Config | None) -> str | None:
    """Return what is wrong with the memory of a test. If baselines are written, keep this test's for the end of the run."""
    from ._impl import _baseline
    from ._impl._sizes import show

    # Without the memory of other tests and fixtures, so that the order of tests does not matter.
    if budget.limit is not None and watched.taken_bytes > budget.limit:
        return f"the test used {show(watched.taken_bytes)} of GPU memory; limit: {show(budget.limit)}"
    if budget.leaks is not None and watched.left_bytes > budget.leaks:
        return f"the test leaked {show(watched.left_bytes)} of GPU memory; allowed: {show(budget.leaks)}"
    if budget.baseline is None:
        return None
    now = _baseline.measured(watched)
    if writes_for is not None:
        writes_for.stash[_baselines].add(str(budget.baseline), now)
        return None
    try:
        return _baseline.complaint(now, _baseline.read(budget.baseline), budget.allow)
    except _baseline.BaselineError as error:
        return f"gpu_memory: {error}"


def _fail(outcome: Any, text: str) -> None:
    failure = pytest.fail.Exception(text, pytrace=False)
    if hasattr(outcome, "force_exception"):
        outcome.force_exception(failure)
    else:
        # pluggy before 1.1
        outcome._excinfo = (type(failure), failure, None)
