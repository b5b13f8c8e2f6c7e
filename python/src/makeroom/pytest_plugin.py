"""A plugin of pytest: what a test may take of the GPU's memory, and what it may leave behind.

    @pytest.mark.gpu_memory(limit="2GiB", leaks=0)
    def test_step(): ...

It is there where makeroom is installed, and does nothing to tests without the mark. Figures are `makeroom.watch`'s: run
`makeroom run -- pytest` and it works for every framework and names lines; with PyTorch on CUDA plain `pytest` will do. Where
nothing can be watched (no GPU), tests run unwatched, with a warning; `--gpu-memory=require` makes that a failure.
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
        help="tests marked gpu_memory: watch them if that is possible here (auto), fail if not (require), do not (off)",
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        "gpu_memory(limit=None, leaks=None): the most GPU memory that a test may take, and the most that it may leave "
        "behind: numbers of bytes or texts such as '2GiB'",
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
            pytest.fail(f"the test's GPU memory cannot be watched: {error}", pytrace=False)
        reason = str(error).split("\n")[0]
        item.warn(pytest.PytestWarning(f"gpu_memory was not checked: {reason}"))
        yield
        return
    outcome: Any = yield
    # What only a cycle of references keeps is no leak.
    gc.collect()
    watched.__exit__(None, None, None)
    item.user_properties.append(("gpu_memory_peak_bytes", watched.peak_bytes))
    item.user_properties.append(("gpu_memory_taken_bytes", watched.taken_bytes))
    item.user_properties.append(("gpu_memory_left_bytes", watched.left_bytes))
    complaint = _complaint(watched, limit, leaks)
    # A test that failed has its own reason, and its traceback keeps what it held.
    if complaint is not None and outcome.excinfo is None:
        _fail(outcome, f"{complaint}\n\n{watched!r}")


def _budget(marker: pytest.Mark) -> tuple[int | None, int | None]:
    from ._sizes import parse_optional

    unknown = set(marker.kwargs) - {"limit", "leaks"}
    if marker.args or unknown:
        what = ", ".join(sorted(unknown)) or "an argument without a name"
        pytest.fail(f"gpu_memory takes limit and leaks, not {what}", pytrace=False)
    try:
        return parse_optional(marker.kwargs.get("limit")), parse_optional(marker.kwargs.get("leaks"))
    except ValueError as error:
        pytest.fail(f"gpu_memory: {error}", pytrace=False)


def _complaint(watched: Any, limit: int | None, leaks: int | None) -> str | None:
    from ._sizes import show

    # What other tests and fixtures hold is not this one's, and would make the order of tests matter.
    if limit is not None and watched.taken_bytes > limit:
        return f"the test took {show(watched.taken_bytes)} of GPU memory; its limit is {show(limit)}"
    if leaks is not None and watched.left_bytes > leaks:
        return f"the test left {show(watched.left_bytes)} of GPU memory behind; it may leave {show(leaks)}"
    return None


def _fail(outcome: Any, text: str) -> None:
    failure = pytest.fail.Exception(text, pytrace=False)
    if hasattr(outcome, "force_exception"):
        outcome.force_exception(failure)
    else:
        # pluggy before 1.1 has no function for it.
        outcome._excinfo = (type(failure), failure, None)
