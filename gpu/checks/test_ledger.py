"""Breakdowns add up: at a failed allocation and at the end of training, less than 128 MiB is unaccounted for, and the free
memory equals what the driver reported to the program itself at that moment."""

import pytest

from support import training
from support.runs import at, last_line, need

MOST = 128 << 20
pytestmark = pytest.mark.goal("less than 128 MiB unaccounted; the free memory is what the driver reported")


def lines(ledger):
    """All lines of a breakdown, parts included, by name."""
    found = {}

    def add(entries):
        for line in entries or []:
            found[line["what"]] = line["bytes"]
            add(line["lines"])

    add(at(ledger, "lines"))
    return found


def closes(show, run, text, moment=None):
    """`moment` is where the program noted the driver's own figure of free memory."""
    ledger = at(run.why, "ledger")
    rest, parts = need(ledger, "unaccounted_bytes"), lines(ledger)
    free, context = parts.get("free"), parts.get("context and code")
    truth = at(run.figures, moment, "torch", "free") if moment else None
    show(f"{text}: {rest >> 20} MiB unaccounted, context and code {(context or 0) >> 20} MiB",
         unaccounted=rest, free=free, free_by_driver=truth, context=context)
    assert at(ledger, "total_bytes") is not None, "the breakdown has no total"
    assert abs(rest) < MOST, f"unaccounted: {rest} bytes"
    if moment:
        assert free is not None and truth is not None, f"free memory is missing: {free}, by the driver {truth}"
        assert abs(free - truth) < MOST, f"free: {free} bytes, according to the driver {truth}"


def failed(run):
    assert run.status == 0 and run.out.startswith("refused"), \
        f"no allocation failed, or the program did not continue: {last_line(run.err)}"
    return run


@pytest.mark.needs("torch")
def test_refusal_limit(runs, show):
    # Under a limit, the program sees a GPU of that size, and the driver's figures are for that GPU.
    run = runs.recorded("refusal_limit", runs.python("torch_refusal.py", 700, 100), ["--limit", "6GiB"])
    closes(show, failed(run), "failed at --limit 6GiB")


@pytest.mark.needs("torch")
@pytest.mark.parametrize("mode", training.SETTINGS, ids="refusal_{}".format)
def test_refusal(runs, show, quick, mode):
    if quick and mode != "native":
        pytest.skip("not with --quick")
    run = runs.recorded(f"refusal_{mode}", runs.python("torch_refusal.py", 2048, 100), environment=training.allocator(mode))
    # When the allocation fails, expandable segments hold the part of the request that they could get, and release it before
    # the program sees the error: the driver's figure in the program is from a later moment.
    moment = None if mode == "expandable" else "refused"
    closes(show, failed(run), f"tensors fill the GPU ({training.SETTINGS[mode]})", moment)


@pytest.mark.needs("compiler")
def test_fill_card(runs, show):
    run = runs.recorded("fill_card", [runs.build("fill_card", "fill_card.cu"), "1024"])
    closes(show, failed(run), "cudaMalloc fills the GPU")


@pytest.mark.needs("torch")
def test_train_native(runs, show):
    closes(show, training.recorded(runs, "native"), "training that finished", "end")
