"""The Python package on real hardware: PyTorch on the pool through `use_pool`, with equal losses and PyTorch's own memory
functions; the pytest plugin; the cost of `watch`; data larger than the GPU in pieces; and JAX's counters and profiles.

Needs the wheel in target/wheels (python/build, which needs maturin) or named by MAKEROOM_WHEEL. It is unpacked into its own
directory, so nothing is installed."""

import json
import os
import sys

import pytest

from support.needs import wheel
from support.runs import execute, last_line

needs = pytest.mark.needs
# Name, whether the part needs a directory, and what must hold.
PARTS = [
    pytest.param("use_pool", True, "equal losses and memory figures through use_pool", id="use_pool"),
    pytest.param("watch_cost", False, "watch costs at most 2 %", id="watch_cost"),
    pytest.param("watch_lines", False, "watch names the line that leaks", id="watch_lines"),
    pytest.param("excepthook", False, "the verdict is under the traceback", id="excepthook"),
    pytest.param("chunks", False, "equal results in pieces", id="chunks"),
    pytest.param("cupy_pool", False, "CuPy uses the pool", id="cupy_pool", marks=needs("cupy")),
    pytest.param("plugin", True, "a limit and a leak fail their tests, the third passes", id="plugin"),
]


@pytest.fixture(scope="module")
def environment(runs):
    """The environment with the package."""
    modules = runs.directory / "python"
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", modules, "--upgrade", wheel()]
    out, err = runs.directory / "python.install.out", runs.directory / "python.install.err"
    assert execute(command, out, err) == 0, f"the wheel does not install: {last_line(err.read_text())}"
    return {"PYTHONPATH": os.pathsep.join(filter(None, [str(modules), os.environ.get("PYTHONPATH")]))}


@needs("wheel", "torch")
@pytest.mark.parametrize("part, has_directory, goal", PARTS)
def test_part(runs, show, request, environment, part, has_directory, goal):
    request.node.add_marker(pytest.mark.goal(goal))
    # Each part prints one line of JSON with its result.
    arguments = [part, runs.directory] if has_directory else [part]
    run = runs.plain(part, runs.python("python_module.py", *arguments), environment)
    assert run.out, last_line(run.err)
    result = json.loads(run.out)
    show(result["text"], **result["figures"])
    assert run.status == 0, f"exit status {run.status}: {last_line(run.err)}"


JAX = [
    pytest.param("watch", False, "watch names the line that leaks, from JAX's counters and profiles", id="jax_watch"),
    pytest.param("explain", False, "JAX's failure is explained with live buffers, no more than are in use", id="jax_explain"),
    pytest.param("fill", False, "a GPU full of live buffers is called full, with their line", id="jax_fill"),
    pytest.param("profile", True, "the saved profile agrees with JAX's counters to within 64 MiB", id="jax_profile"),
]


@needs("wheel", "jax")
@pytest.mark.parametrize("part, has_directory, goal", JAX)
def test_jax(runs, show, request, environment, part, has_directory, goal):
    request.node.add_marker(pytest.mark.goal(goal))
    arguments = [part, runs.directory] if has_directory else [part]
    run = runs.plain(f"jax_{part}", runs.python("python_jax.py", *arguments), environment)
    assert run.out, last_line(run.err)
    result = json.loads(run.out)
    show(result["text"], **result["figures"])
    assert run.status == 0, f"exit status {run.status}: {last_line(run.err)}"
