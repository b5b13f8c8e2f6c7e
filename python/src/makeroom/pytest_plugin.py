"""pytest plugin: limit how much GPU memory a test may use or leak.

    @pytest.mark.gpu_memory(limit="2GiB", leaks=0)
    def test_step(): ...

Tests without the marker are not affected. Figures come from `makeroom.watch`: `makeroom run -- pytest` works with every
framework and shows lines; with PyTorch on CUDA, plain `pytest` works too. If memory cannot be watched, tests run unchecked
and emit a warning; with `--gpu-memory=require` they fail.
"""

from __future__ import annotations

import gc
from typing import Any, Iterator

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.getgroup("makeroom").addoption(
        "--gpu-memory",
        choices=("auto", "require", "off"),
        default="auto",
        help="tests marked gpu_memory: check if possible (auto), fail if impossible (require), do not check (off)",
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        "gpu_memory(limit=None, leaks=None): fail the test if it uses more GPU memory than limit or leaks more than leaks; "
        "sizes are numbers of bytes or strings such as '2GiB'",
    )


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    marker = item.get_closest_marker("gpu_memory")
    wish = item.config.getoption("--gpu-memory")
    if marker is None or wish == "off":
        yield
        return
    from ._sources import WatchError
    from ._watch import watch

    limit, leaks = _budget(marker)
    gc.collect()
    try:
        watched = watch().__enter__()
    except WatchError as error:
        if wish == "require":
            pytest.fail(f"GPU memory cannot be checked: {error}", pytrace=False)
        reason = str(error).split("\n")[0]
        item.warn(pytest.PytestWarning(f"gpu_memory was not checked: {reason}"))
        yield
        return
    outcome: Any = yield
    # Memory that only a reference cycle keeps is not a leak.
    gc.collect()
    watched.__exit__(None, None, None)
    item.user_properties.append(("gpu_memory_peak_bytes", watched.peak_bytes))
    item.user_properties.append(("gpu_memory_taken_bytes", watched.taken_bytes))
    item.user_properties.append(("gpu_memory_left_bytes", watched.left_bytes))
    complaint = _complaint(watched, limit, leaks)
    # A failed test has its own reason, and its traceback keeps its tensors alive.
    if complaint is not None and outcome.excinfo is None:
        _fail(outcome, f"{complaint}\n\n{watched!r}")


def _budget(marker: pytest.Mark) -> tuple[int | None, int | None]:
    from ._sizes import parse_optional

    unknown = set(marker.kwargs) - {"limit", "leaks"}
    if marker.args or unknown:
        what = ", ".join(sorted(unknown)) or "a positional argument"
        hint = "@pytest.mark.gpu_memory(limit='2GiB', leaks=0)"
        pytest.fail(f"gpu_memory takes limit and leaks, not {what}\n\nhint: {hint}", pytrace=False)
    try:
        return parse_optional(marker.kwargs.get("limit")), parse_optional(marker.kwargs.get("leaks"))
    except ValueError as error:
        pytest.fail(f"gpu_memory: {error}", pytrace=False)


def _complaint(watched: Any, limit: int | None, leaks: int | None) -> str | None:
    from ._sizes import show

    # Without the memory of other tests and fixtures, so that the order of tests does not matter.
    if limit is not None and watched.taken_bytes > limit:
        return f"the test used {show(watched.taken_bytes)} of GPU memory; limit: {show(limit)}"
    if leaks is not None and watched.left_bytes > leaks:
        return f"the test leaked {show(watched.left_bytes)} of GPU memory; allowed: {show(leaks)}"
    return None


def _fail(outcome: Any, text: str) -> None:
    failure = pytest.fail.Exception(text, pytrace=False)
    if hasattr(outcome, "force_exception"):
        outcome.force_exception(failure)
    else:
        # pluggy before 1.1
        outcome._excinfo = (type(failure), failure, None)
