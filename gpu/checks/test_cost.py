"""The cost of recording for training, with full stacks: alternates runs with and without recording, and with PyTorch's own
history, and sums the time inside the library.

Two runs of the same training differ by more than the cost of recording, so the sum is what counts, and the runs are shown
with their spread. Takes at most five minutes."""

import time

import pytest

from support import cost, training
from support.runs import last_line

# No new pair starts after this many seconds.
PAIRS_UNTIL = 100
pytestmark = pytest.mark.needs("torch")


@pytest.fixture
def steps(quick):
    return 8 if quick else 12


def pair(runs, number, steps):
    """One plain run, with PyTorch's history at its end, and one recorded run."""
    name, native = f"pair_{number}", training.allocator("native")
    orders = [
        lambda: runs.plain(name, runs.python("torch_cost.py", "gpt2", steps, "history"), native),
        lambda: runs.recorded(name, runs.python("torch_cost.py", "gpt2", steps), environment=native),
    ]
    # The order alternates from pair to pair, so that drift affects both.
    done = [run() for run in (orders if number % 2 else reversed(orders))]
    plain, recorded = done if number % 2 else reversed(done)
    for run in (plain, recorded):
        assert run.status == 0, f"exit status {run.status}: {last_line(run.err)}"
    return plain.figures["end"], recorded.figures["end"], recorded.replay


@pytest.mark.goal(f"in the lower quartile, recording adds at most {cost.MOST_PERCENT} % to a step")
def test_pairs(runs, show, quick, steps):
    most, least, begin, done = (2, 2, time.monotonic(), []) if quick else (8, 3, time.monotonic(), [])
    while len(done) < most and (time.monotonic() - begin < PAIRS_UNTIL or len(done) < least):
        done.append(pair(runs, len(done) + 1, steps))
    recorded, history, plain = cost.pairs(done)
    show(f"{len(done)} pairs, {sorted(plain)[len(plain) // 2]:.0f} ms a step: recorded {cost.spread(recorded)}, "
         f"PyTorch's history {cost.spread(history)}",
         recorded_percent=recorded, history_percent=history, plain_ms=plain)
    assert cost.lower_quartile(recorded) <= cost.MOST_PERCENT, f"recording costs more than {cost.MOST_PERCENT} %"


def inside(runs, show, size, steps, remark=""):
    # The recorder is queried before and after the timed steps of the same run: sums of two runs are not comparable.
    environment = {**training.allocator("native"), "MAKEROOM_MEASURE": "on"}
    run = runs.recorded(f"cost_{size}", runs.python("torch_cost.py", size, 2 * steps), environment=environment)
    assert run.status == 0, f"exit status {run.status}: {last_line(run.err)}"
    percent, each, calls, seconds = cost.inside(str(runs.directory / f"cost_{size}"))
    show(f"{percent:.2f} % of training: {calls} calls of {each:.0f} ns in {seconds:.2f} s{remark}",
         percent=percent, each_ns=each, calls=calls, seconds=seconds)
    return percent


@pytest.mark.goal(f"at most {cost.MOST_PERCENT} % of training time is spent inside the recorder")
def test_inside_gpt2(runs, show, steps):
    assert inside(runs, show, "gpt2", steps) <= cost.MOST_PERCENT, f"more than {cost.MOST_PERCENT} %"


@pytest.mark.goal("a valid measurement; the share is shown but not limited")
def test_inside_small(runs, show, steps):
    # Only launches of small kernels: the worst case.
    inside(runs, show, "small", steps, " (host-bound worst case, without a limit)")
