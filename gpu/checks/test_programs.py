"""Programs run the same under `makeroom run`: stdout, exit status and losses are identical, bit for bit; and every process
that used the GPU has its own recording, with no event missing."""

import pytest

from support import training
from support.runs import at, last_line

needs = pytest.mark.needs
pytestmark = pytest.mark.goal("same output and exit status, a recording for each process, no event missing")

# Name, text, source, flags of nvcc.
COMPILED = [
    pytest.param("every allocating runtime call, linked statically", "runtime.cu", [], id="runtime_static", marks=needs("nvcc")),
    pytest.param("the same, linked with libcudart.so", "runtime.cu", ["-cudart", "shared"], id="runtime_shared", marks=needs("nvcc")),
    pytest.param("driver API, linked with -lcuda", "driver.cu", ["-lcuda"], id="driver", marks=needs("compiler")),
    pytest.param("stream-ordered memory and a pool", "streams.cu", [], id="streams", marks=needs("nvcc")),
    pytest.param("a graph with memory nodes", "graphs.cu", [], id="graphs", marks=needs("nvcc")),
    pytest.param("managed memory", "managed.cu", [], id="managed", marks=needs("nvcc")),
    pytest.param("virtual memory", "virtual_memory.cu", ["-lcuda"], id="virtual_memory", marks=needs("compiler")),
]


def same(runs, show, name, text, command, processes=1, environment=None):
    """Compares a plain and a recorded run."""
    plain = runs.plain(name, command, environment)
    recorded = runs.recorded(name, command, environment=environment)
    files, dropped, problems = recorded.rooms, at(recorded.why, "run", "dropped_events"), []
    if plain.out != recorded.out:
        problems.append("stdout differs")
    if plain.status != recorded.status:
        problems.append(f"exit status {plain.status} became {recorded.status}")
    if not plain.out:
        problems.append(f"the program printed nothing: {last_line(plain.err)}")
    if len(files) != processes:
        problems.append(f"{len(files)} recordings for {processes} processes")
    if dropped != 0:
        problems.append(f"{dropped} events are missing")
    show(text, recordings=len(files), bytes=recorded.room.stat().st_size if recorded.room.exists() else None)
    assert not problems, "; ".join(problems)


@pytest.mark.parametrize("text, source, flags", COMPILED)
def test_compiled(runs, show, request, text, source, flags):
    name = request.node.callspec.id
    same(runs, show, name, text, [runs.build(name, source, *flags)])


@needs("torch")
@pytest.mark.parametrize("mode", training.SETTINGS, ids="train_{}".format)
def test_train(runs, show, mode):
    text = f"{training.STEPS} losses of a GPT, bit for bit ({training.SETTINGS[mode]})"
    same(runs, show, f"train_{mode}", text, training.command(runs), environment=training.allocator(mode))


@needs("torch")
@pytest.mark.parametrize("start, text", [("fork", "forked"), ("spawn", "spawned")], ids=["workers_fork", "workers_spawn"])
def test_workers(runs, show, start, text):
    text += " data-loader workers and a CUDA child process"
    same(runs, show, f"workers_{start}", text, runs.python("torch_workers.py", start), processes=2)


@needs("cupy")
def test_cupy(runs, show):
    same(runs, show, "cupy", "same output", runs.python("cupy_program.py"))


@needs("jax")
def test_jax(runs, show):
    same(runs, show, "jax", "same output", runs.python("jax_program.py"))
