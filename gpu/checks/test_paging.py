"""`run --pool`: PyTorch's own allocator over pages, compared with plain expandable segments on the same programs.

Each part is a process of its own with a timeout. All figures are in the JSON file of `gpu/check`, with their goals. The eight
programs take about seven minutes, and the pairs of step times longer."""

import json
import os
import statistics
from pathlib import Path

import pytest

from support.paging import (
    LIMITS, bisect, factor, interval, is_footprint_met, most_physical, pages_of, second_half, time_inside)
from support.runs import at, execute, last_line, load

WORKLOADS = ["gpt", "unet", "vit", "compiled", "mempool", "graphs", "history", "share"]
QUICK = ["gpt", "unet", "mempool", "graphs"]
# What the steps of the programs are multiplied by: a run of two seconds shows mostly how memory grows at first.
TIMES = {"gpt": 14, "unet": 5, "vit": 7, "compiled": 40, "mempool": 12, "graphs": 12, "history": 12, "share": 4}
TIMED = {"gpt": 18, "unet": 24}
EXPANDABLE = "expandable_segments:True"
MIB, GIB = 1 << 20, 1 << 30


class Outcome:
    """One program in one mode, for at most so many seconds."""

    def __init__(self, runs, name, mode, program, options=(), seconds=100):
        directory = Path(os.environ.get("OUT", runs.directory)) / "paging"
        directory.mkdir(parents=True, exist_ok=True)
        path = lambda ending: directory / f"{name}.{mode}.{ending}"
        for old in ("json", "summary.json"):
            path(old).unlink(missing_ok=True)
        environment = {key: value for key, value in runs.environment.items()
                       if key not in ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF")}
        environment.update(TORCHINDUCTOR_CACHE_DIR=str(runs.directory / "inductor"), GPU_CHECK_FIGURES=str(path("json")),
                           TRITON_CACHE_DIR=str(runs.directory / "triton"))
        room = runs.directory / f"paging_{name}.room"
        run = [runs.makeroom, "run", "--no-status", "-o", room, "--summary", path("summary.json"), *options]
        if mode == "paging":
            command = [*run, "--pool", "--", *program]
        else:
            environment.update(PYTORCH_CUDA_ALLOC_CONF=EXPANDABLE, PYTORCH_ALLOC_CONF=EXPANDABLE)
            command = [*run, "--", *program] if options else program
        self.status = execute(command, path("out"), path("err"), seconds, environment, runs.directory)
        self.out, self.err = (path(ending).read_text(errors="replace") for ending in ("out", "err"))
        self.figures, self.summary = load(path("json")), load(path("summary.json"))
        for file in runs.directory.glob(f"paging_{name}*.room"):
            file.unlink()

    @property
    def peak(self):
        """The peak that NVML counted for the process and its children."""
        peak = at(self.figures, "peak", "processes")
        return peak or (at(self.figures, "peak", "used") or 0) - (at(self.figures, "peak", "before") or 0)

    @property
    def pages(self):
        """The figures of the pages, from `--summary`."""
        return pages_of(self.summary)

    @property
    def last(self):
        """The JSON in the last line of the output."""
        try:
            return json.loads(last_line(self.out))
        except ValueError:
            return {}

    @property
    def problem(self):
        """Why the program did not complete; None if it did."""
        own = [line for line in self.err.splitlines() if not line.startswith(("makeroom", "  "))]
        return None if self.status == 0 else f"status {self.status}: {last_line(chr(10).join(own))[:200]}"


def losses(text):
    return [line for line in text.splitlines() if line.startswith("step ")]


@pytest.mark.needs("torch")
@pytest.mark.goal("same losses; NVML peak <= expandable + 0.2 % or 32 MiB; physical / live <= 1.01 from 8 GB, 1.03 from 2 GB; "
                  "inside <= 1 % of the run, 0.5 % of its second half")
@pytest.mark.parametrize("name", WORKLOADS, ids="paging_{}".format)
def test_workload(runs, show, quick, name):
    if quick and name not in QUICK:
        pytest.skip("not with --quick")
    program = runs.python("torch_workloads.py", name, TIMES[name])
    expandable, paging = (Outcome(runs, name, mode, program) for mode in ("expandable", "paging"))
    pages, series = paging.pages, at(paging.figures, "peak", "pages")
    ratio, inside, half = factor(pages), time_inside(series), second_half(series)
    show(f"expandable {expandable.peak / 1e9:.3f} GB, paging {paging.peak / 1e9:.3f} GB; physical / live {ratio:.4f}; "
         f"inside {100 * inside:.2f} %, second half {100 * half:.2f} %; {pages.get('moves')} moves, {pages.get('waits')} waits",
         expandable=expandable.peak, paging=paging.peak, ratio=ratio, inside=inside, second_half=half, pages=pages)
    if expandable.status != 0:
        pytest.skip(f"also fails with plain expandable segments: {expandable.problem}")
    problems = [paging.problem] if paging.problem else []
    if not pages.get("reports"):
        problems.append("nothing was paged")
    if losses(expandable.out) != losses(paging.out):
        problems.append("losses differ")
    if not is_footprint_met(expandable.peak, paging.peak):
        problems.append(f"holds {(paging.peak - expandable.peak) >> 20} MiB more than expandable segments")
    if ratio > most_physical(pages.get("peak_live_bytes", 0)):
        problems.append(f"physical / live is {ratio:.4f}")
    if inside > 0.01 or half > 0.005:
        problems.append(f"spends {100 * inside:.2f} % inside, {100 * half:.2f} % of the second half")
    assert not problems, "; ".join(problems)


@pytest.mark.needs("torch")
@pytest.mark.goal("the smallest --limit under which it completes is at most that of plain expandable segments")
@pytest.mark.parametrize("name", TIMED, ids="paging_limit_{}".format)
def test_limit(runs, show, name):
    program = runs.python("torch_paging.py", "fits", name)
    free = Outcome(runs, f"limit_{name}", "expandable", program)
    live = free.last.get("live")
    assert live, f"the plain run failed: {free.problem}"

    def completes(mode, limit):
        run = Outcome(runs, f"limit_{name}", mode, program, ["--limit", str(limit)], 60)
        return run.status == 0 and run.last.get("losses") == free.last.get("losses")

    def smallest(mode):
        # What the run held without a limit is enough for another. Completion is not monotonic: this finds one boundary.
        return bisect(lambda limit: completes(mode, limit), live, max(free.peak, live) + 64 * MIB, LIMITS)

    fails, expandable = smallest("expandable")
    lower, paging = smallest("paging")
    show(f"live {live / 1e9:.2f} GB; expandable segments complete with {expandable / 1e9:.3f} GB and not with {fails / 1e9:.3f}; "
         f"paging with {paging / 1e9:.3f} and not with {lower / 1e9:.3f}",
         live=live, smallest=expandable, fails=fails, paging=paging, paging_fails=lower)
    # The bisection stops at steps of this size.
    assert paging <= expandable + (expandable - fails), "paging needs more"


@pytest.mark.needs("torch")
@pytest.mark.goal("the 95 % interval of the median ratio of step times to expandable segments reaches below 1.02")
@pytest.mark.parametrize("name", TIMED, ids="paging_steps_{}".format)
def test_steps(runs, show, quick, name):
    program = runs.python("torch_paging.py", "steps", name, TIMED[name])
    ratios = []
    for pair in range(6 if quick else 10):
        modes = ("expandable", "paging") if pair % 2 else ("paging", "expandable")
        times = {mode: Outcome(runs, f"steps_{name}", mode, program, seconds=60) for mode in modes}
        for outcome in times.values():
            assert outcome.problem is None, outcome.problem
        ratios.append(times["paging"].last["median_ms"] / times["expandable"].last["median_ms"])
    low, high = interval(ratios)
    show(f"median ratio {statistics.median(ratios):.4f}, 95 % interval {low:.4f} to {high:.4f}, {len(ratios)} pairs",
         ratios=ratios, low=low, high=high)
    assert low < 1.02


@pytest.mark.needs("torch")
@pytest.mark.goal("live memory of 1.2 times the limit, with history, a graph and a MemPool, has the right contents")
def test_paging_spill(runs, show):
    card = 4 * GIB
    program = runs.python("torch_paging.py", "spill", card * 12 // 10)
    run = Outcome(runs, "spill", "paging", program, ["--limit", str(card), "--spill", "2GiB"])
    found, pages = run.last, run.pages
    show(f"live {found.get('live', 0) / 1e9:.2f} GB under a limit of {card / 1e9:.2f} GB, "
         f"{pages.get('peak_host_bytes', 0) / 1e9:.2f} GB of it on the host; {found.get('wrong')} of {found.get('tensors')} "
         f"tensors wrong", **found, summary=pages)
    assert run.problem is None, run.problem
    assert found["wrong"] == 0 and found["graph"] and found["events"] > 0
    assert found["live"] > 1.15 * card and pages.get("peak_host_bytes", 0) > 0
    assert pages["peak_physical_bytes"] <= card
    # The summary lists it again.
    notices = [line for line in run.err.splitlines() if line.startswith("makeroom: ") and "as --spill allows" in line]
    assert len(notices) <= 1, notices


@pytest.mark.needs("torch")
@pytest.mark.goal("random tensors on three streams, in a MemPool and next to a graph keep their contents while pages move")
def test_paging_soak(runs, show, quick):
    seconds = 20 if quick else 90
    run = Outcome(runs, "soak", "paging", runs.python("torch_paging.py", "soak", seconds), ["--limit", "8GiB"], seconds + 60)
    found, pages = run.last, run.pages
    show(f"{found.get('operations')} operations, {found.get('refused')} times out of memory, {found.get('wrong')} elements wrong; "
         f"{pages.get('moves')} moves, {pages.get('waits')} waits", **found, summary=pages)
    assert run.problem is None, run.problem
    assert found["wrong"] == 0 and pages["moves"] > 0 and pages["waits"] > 0 and found["operations"] > 100 * seconds


@pytest.mark.needs("torch")
@pytest.mark.goal("after empty_cache, (total - free) - memory_reserved() is as before, within 64 MiB")
def test_paging_arithmetic(runs, show):
    run = Outcome(runs, "arithmetic", "paging", runs.python("torch_paging.py", "arithmetic"))
    found = run.last
    show(f"{found.get('begin', 0) >> 20} MiB before, {found.get('end', 0) >> 20} MiB after", **found)
    assert run.problem is None, run.problem
    assert abs(found["end"] - found["begin"]) <= 64 << 20


@pytest.mark.needs("torch")
@pytest.mark.goal("ranks of a job print the same losses as with plain expandable segments")
@pytest.mark.parametrize("backend, count", [("gloo", 2), ("nccl", 1)], ids=["paging_ranks_gloo", "paging_ranks_nccl"])
def test_ranks(runs, show, backend, count):
    program = runs.python("torch_paging.py", "ranks", backend, count)
    expandable, paging = (Outcome(runs, f"ranks_{backend}", mode, program, seconds=90) for mode in ("expandable", "paging"))
    if expandable.status != 0:
        pytest.skip(f"also fails with plain expandable segments: {expandable.problem}")
    show(f"{len(losses(paging.out))} steps with {count} ranks over {backend}", losses=losses(paging.out))
    assert paging.problem is None, paging.problem
    assert losses(paging.out) == losses(expandable.out) and losses(paging.out), "losses differ"


@pytest.mark.needs("torch")
@pytest.mark.goal("after 100 refusals under paging, PyTorch's statistics are the same as before")
def test_paging_refusals(runs, show):
    run = Outcome(runs, "refusals", "paging", runs.python("torch_refusals.py", "plain"), ["--limit", "8GiB"])
    found = run.last
    show(f"refused {found.get('refused')} times, PyTorch counts {found.get('counted')}", **found)
    assert run.problem is None, run.problem
    assert found["refused"] > 0 and found["works"] and found["differences"] == {}
