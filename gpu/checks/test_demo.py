"""`makeroom demo` on this GPU: every situation runs and is explained from its recording."""

import pytest

from support.runs import at, need

# Name, what is shown, and whether an explanation, as `why --json` prints it, is right.
SITUATIONS = {
    "fragmentation": ("reported as fragmentation", lambda it: at(it, "verdict", "cause") == "fragmentation"),
    "large-batch": ("the failed request is reported", lambda it: need(it, "request", "bytes") > 0),
    "missing-free": ("memory that was never freed is listed", lambda it: need(it, "run", "never_freed")),
    "stream-ordered-frees": ("pending stream-ordered frees are listed", lambda it: need(it, "run", "pending_frees")),
    "kernel-heap": ("device-side malloc is reported with its heap", lambda it: need(it, "run", "kernel_heap", "limit_bytes") > 0),
    "context-left-behind": ("contexts that were never destroyed are listed",
                            lambda it: need(it, "run", "contexts_never_destroyed")),
    "pinned-memory": ("pinned memory that was never freed is listed",
                      lambda it: any(left["kind"] == "pinned" for left in need(it, "run", "never_freed"))),
}


@pytest.fixture(scope="module")
def demo(runs):
    """The explanation of each situation, by name."""
    gpu = "software" if runs.software else "real"
    answer, status = runs.call("demo", "demo", "--gpu", gpu, "--json")
    assert status == 0, f"exit {status}: {runs.error_of('demo')}"
    return {situation["name"]: at(situation, "explanation") for situation in answer["situations"]}


@pytest.mark.goal("the situation is explained correctly")
@pytest.mark.parametrize("name", SITUATIONS)
def test_situation(demo, show, name):
    text, is_right = SITUATIONS[name]
    explanation = demo.get(name)
    cause = at(explanation, "verdict", "cause")
    show(text, cause=cause)
    assert explanation and is_right(explanation), f"wrong explanation; the verdict is {cause}"
