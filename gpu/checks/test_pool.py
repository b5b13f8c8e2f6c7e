"""`run --pool` with unmodified programs: the same results, less memory, little overhead. PyTorch keeps its own allocator,
with expandable segments (test_pool_torch.py has more about this, and test_paging.py checks paging); everything else uses
makeroom's pool.

Losses are compared bit for bit, because the programs are otherwise deterministic. Times are compared over alternating runs:
on a shared machine, the same run varies by several percent."""

import re
from types import SimpleNamespace

import pytest

from support import training
from support.runs import at, last_line, need

needs, goal = pytest.mark.needs, pytest.mark.goal


@pytest.fixture(scope="module")
def steps(quick):
    return 16 if quick else 40


@pytest.fixture(scope="module")
def trained(runs, quick, steps):
    """The same training under each allocator: `native` and `pool` several times, in turns, the others once."""
    command = runs.python("pool_train.py", "gpt2", steps)
    plain = lambda mode, number=1: runs.plain(f"pool_{mode}_{number}", command, training.allocator(mode))
    pool = lambda name, *options: runs.recorded(name, command, ["--pool=expandable", *options, "--no-stacks"])
    native, with_pool = [], []
    for number in range(1, 2 if quick else 6):
        native.append(plain("native", number))
        with_pool.append(pool(f"pool_pool_{number}"))
    found = SimpleNamespace(native=native, pool=with_pool, expandable=plain("expandable"), async_=plain("async"),
                            spill=pool("pool_spill_1", "--spill", "1GiB"))
    for run in (*native, *with_pool, found.expandable, found.async_, found.spill):
        assert run.status == 0 and run.figures, f"{run.stem.name}: exit status {run.status}: {last_line(run.err)}"
    return found


def whole(run):
    """The driver's figure for the whole process: PyTorch's counters do not include memory that libraries allocate."""
    return max(need(run.figures, "end", "nvml", "processes").values())


@needs("torch")
@goal("losses are bit-for-bit equal")
def test_losses(trained, show, steps):
    native, pool = trained.native[0].out.splitlines(), trained.pool[0].out.splitlines()
    show(f"{steps} losses are bit-for-bit equal")
    differ = next((f"{a} became {b}" for a, b in zip(native, pool) if a != b), "one run has more lines")
    assert native == pool and pool, f"the losses differ: {differ}"


@needs("torch")
@goal("at most 1.01 times the process memory of plain expandable segments")
def test_peak(trained, show):
    runs = dict(pool=trained.pool[0], native=trained.native[0], expandable=trained.expandable, **{"async": trained.async_})
    peaks = {name: need(run.figures, "end", "peak_reserved") for name, run in runs.items()}
    pool, expandable, spill = whole(trained.pool[0]), whole(trained.expandable), whole(trained.spill)
    show("  ".join(f"{name} {peak / 1e9:.3f} GB" for name, peak in peaks.items())
         + f"; whole process: run --pool=expandable {pool / 1e9:.3f} GB, plain expandable {expandable / 1e9:.3f} GB, --spill {spill / 1e9:.3f} GB",
         whole_pool=pool, whole_expandable=expandable, whole_spill=spill,
         allocated=at(trained.pool[0].figures, "end", "peak_allocated"), **peaks)
    assert pool <= 1.01 * expandable, f"{pool / expandable:.4f} times the memory of plain expandable segments"


@needs("torch")
@goal("the median step time is within the spread of plain runs")
def test_steps(trained, show):
    times = lambda runs: sorted(1000 * need(run.figures, "end", "median_step") for run in runs)
    pool, native = times(trained.pool), times(trained.native)
    text = lambda values: " ".join(f"{value:.1f}" for value in values)
    show(f"median step in ms, by run: pool {text(pool)}; native {text(native)}", pool=pool, native=native)
    assert pool[len(pool) // 2] <= max(native), "steps are slower than in every plain run"


@needs("torch")
@goal("with --pool=expandable --spill, at most 1 % of the time is spent in the pool")
def test_inside(runs, show, steps):
    # With --spill, PyTorch's blocks come from the pool. This is the time in the pool, including its driver calls, between
    # the first and the last timed step. The model's largest step comes early in the timed part, so this run is longer.
    run = runs.recorded("pool_inside", runs.python("pool_train.py", "gpt2", 3 * steps),
                        ["--pool=expandable", "--spill", "1GiB", "--no-stacks"], {"MAKEROOM_MEASURE": "on"})
    pool, timed = need(run.figures, "end", "pool"), need(run.figures, "end", "timed_seconds")
    share = pool["inside_ns"] / 1e9 / timed
    show(f"{100 * share:.2f} % of {timed:.1f} s: {pool['calls']} calls of {pool['inside_ns'] / pool['calls']:.0f} ns in the pool",
         percent=100 * share, **pool)
    assert share <= 0.01, "more than 1 %"


@needs("torch")
@goal("the summary says what expandable segments saved")
def test_summary(trained, show):
    found = re.search(r"expandable segments saved .* would have reserved [^)]*\)", trained.pool[0].said)
    assert found, "the summary does not mention expandable segments"
    show(found[0])


def same(runs, show, name, text, command):
    """The output and status are the same with the pool."""
    plain, pool = runs.plain(name, command), runs.recorded(name, command, ["--pool"])
    show(text)
    problem = f"{text}: status {plain.status} and {pool.status}; {last_line(pool.err)}"
    assert plain.out == pool.out and plain.status == pool.status == 0, problem


FEATURES = {"graph": "pool_features.py", "streams": "pool_features.py", "history": "pool_native.py",
            "mempool": "pool_native.py", "share": "pool_native.py"}


@needs("torch")
@goal("same output and status with the pool")
@pytest.mark.parametrize("feature", FEATURES, ids="pool_{}".format)
def test_feature(runs, show, feature):
    same(runs, show, f"pool_{feature}", f"PyTorch: {feature}", runs.python(FEATURES[feature], feature))


@needs("torch")
@goal("a caught out-of-memory error does not end the program")
def test_out_of_memory(runs, show):
    run = runs.recorded("pool_out_of_memory", runs.python("pool_features.py", "out_of_memory"), ["--pool", "--limit", "8GiB"])
    show("an allocation failed at --limit 8GiB, and the program continued")
    assert run.status == 0 and run.out.splitlines()[0] == "7 True", f"{run.out.strip()} {last_line(run.err)}"


@needs("cupy")
@goal("same output and status with the pool")
def test_pool_cupy(runs, show):
    same(runs, show, "pool_cupy", "CuPy", runs.python("cupy_program.py"))


@needs("jax")
@goal("same output and status with the pool")
def test_pool_jax(runs, show):
    same(runs, show, "pool_jax", "JAX", runs.python("jax_program.py"))


COMPILED = [pytest.param(name, id=f"pool_nvcc_{name}", marks=needs("compiler" if name == "driver" else "nvcc"))
            for name in ("runtime", "streams", "graphs", "driver")]


@goal("same output and status with the pool")
@pytest.mark.parametrize("name", COMPILED)
def test_compiled(runs, show, name):
    program = runs.build(name, f"{name}.cu", *(["-lcuda"] if name == "driver" else []))
    same(runs, show, f"pool_nvcc_{name}", f"nvcc: {name}", [program])


@needs("torch")
@goal("with live memory 20 % over the limit, --spill keeps the program running, with equal losses")
def test_spill(runs, show, trained):
    live = need(trained.pool[0].figures, "end", "peak_allocated")
    limit = live * 5 // 6 + (700 << 20)
    run = runs.recorded("pool_spill", runs.python("pool_train.py", "gpt2", 12),
                        ["--pool=expandable", "--spill", "16GiB", "--limit", str(limit), "--no-stacks"])
    lines = [line.strip() for line in run.err.splitlines() if "spill" in line.lower() and ".room" not in line]
    spilled = lines[0] if lines else "no line about spilling"
    show(f"live memory is 20 % over the limit, losses are equal; {spilled}",
         limit=limit, live=live, median_step=at(run.figures, "end", "median_step"))
    assert run.status == 0, f"exit status {run.status}: {last_line(run.err)}"
    assert run.out.splitlines() == trained.native[0].out.splitlines()[:12], "the losses differ"
