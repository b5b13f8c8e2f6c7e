"""`run --pool=expandable` with eight PyTorch programs: each completes, prints the same output, bit for bit, as without
makeroom and with plain expandable segments, and the whole process uses at most 1.01 times the memory of plain expandable
segments.

The output of the programs is in $OUT/pool-torch if $OUT is set, else in the directory of the runs. Takes about 7 minutes."""

import os
import re
from pathlib import Path

import pytest

from support.runs import at, execute, last_line, load

WORKLOADS = ["gpt", "unet", "vit", "compiled", "mempool", "graphs", "history", "share"]
QUICK = ["vit", "mempool", "share"]
EXPANDABLE = "expandable_segments:True"
MOST = 1.01
# The line of the summary about expandable segments, whatever they saved.
SUMMARY = re.compile(
    r"(this program does not fragment: |expandable segments [a-z0-9 .]*[GM]?i?B?[a-z ]*: )?PyTorch reserved [^()]*"
    r"(\([^)]*\)[^()]*\(simulated\))?")


@pytest.fixture(scope="module")
def logs(runs):
    directory = Path(os.environ.get("OUT", runs.directory)) / "pool-torch"
    directory.mkdir(parents=True, exist_ok=True)
    return directory


def peak(figures):
    """The peak that NVML counted for the process and its children, or, if it reports none, for the device."""
    return at(figures, "peak", "processes") or (at(figures, "peak", "used") or 0) - (at(figures, "peak", "before") or 0)


class Outcome:
    """One workload in one mode, for at most 100 s."""

    def __init__(self, runs, logs, name, mode):
        path = lambda ending: logs / f"{name}.{mode}.{ending}"
        room = runs.directory / f"pool_torch_{name}.room"
        environment = {key: value for key, value in runs.environment.items()
                       if key not in ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF")}
        # One compilation serves all three runs of a compiled program.
        environment.update(TORCHINDUCTOR_CACHE_DIR=str(runs.directory / "inductor"), GPU_CHECK_FIGURES=str(path("json")),
                           TRITON_CACHE_DIR=str(runs.directory / "triton"))
        command = runs.python("torch_workloads.py", name)
        if mode == "expandable":
            environment.update(PYTORCH_CUDA_ALLOC_CONF=EXPANDABLE, PYTORCH_ALLOC_CONF=EXPANDABLE)
        if mode == "pool":
            command = [runs.makeroom, "run", "--pool=expandable", "--no-status", "-o", room, "--summary", path("summary.json"), "--", *command]
        self.status = execute(command, path("out"), path("err"), 100, environment, runs.directory)
        self.out, self.err = (path(ending).read_text(errors="replace") for ending in ("out", "err"))
        self.peak = peak(load(path("json")))
        for file in runs.directory.glob(f"pool_torch_{name}*.room"):
            file.unlink()


@pytest.mark.needs("torch")
@pytest.mark.goal(f"same output, at most {MOST} of the memory of plain expandable segments")
@pytest.mark.parametrize("name", WORKLOADS, ids="pool_torch_{}".format)
def test_workload(runs, show, quick, logs, name):
    if quick and name not in QUICK:
        pytest.skip("not with --quick")
    plain, expandable, pool = (Outcome(runs, logs, name, mode) for mode in ("plain", "expandable", "pool"))
    ratio, found = pool.peak / max(expandable.peak, 1), SUMMARY.search(" ".join(pool.err.split()))
    line = found[0][:220] if found else ""
    show(f"plain {plain.peak / 1e9:.2f} GB, expandable {expandable.peak / 1e9:.2f} GB, pool {pool.peak / 1e9:.2f} GB, "
         f"ratio {ratio:.4f}; {line}", plain=plain.peak, expandable=expandable.peak, pool=pool.peak, ratio=ratio)
    if plain.status != 0:
        pytest.skip(f"also fails without makeroom: {last_line(plain.err)}")
    problems = []
    if pool.status != 0:
        own = [line for line in pool.err.splitlines() if not line.startswith(("makeroom", "  "))]
        problems.append(f"status {pool.status}: {own[-1] if own else ''}")
    if expandable.status != 0:
        problems.append("it also fails with plain expandable segments")
    if plain.out != pool.out:
        problems.append("output differs")
    if plain.out != expandable.out:
        problems.append("it also differs with plain expandable segments")
    if not line:
        problems.append("the summary does not mention expandable segments")
    if not 0 < ratio <= MOST:
        problems.append(f"uses {ratio:.4f} of the memory of plain expandable segments")
    assert not problems, f"{'; '.join(problems)}; logs in {logs}"
