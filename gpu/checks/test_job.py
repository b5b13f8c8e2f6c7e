"""One answer for a job of several ranks: torchrun starts two and four ranks that share the GPU, and `run` and `job` name the
rank that caused the failure, not the one that happened to fail."""

import pytest

from support.runs import at, need

pytestmark = [pytest.mark.needs("torch"), pytest.mark.needs("gpu")]
goal = pytest.mark.goal


def sizes(program):
    return pytest.mark.parametrize("ranks", [2, 4], ids=f"{program}_{{}}_ranks".format)


def run_job(runs, program, ranks):
    """The program under `makeroom run -- torchrun`, and the JSON of `makeroom job` about its recordings."""
    name = f"job.{program}.{ranks}"
    python, *script = runs.python("torch_ranks.py", program)
    torchrun = [python, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}", *script]
    run = runs.recorded(name, torchrun, seconds=180)
    folder = runs.directory / name
    rooms = sorted(folder.glob("rank*.room"))
    assert len(rooms) == ranks, f"{len(rooms)} recordings of {ranks} ranks"
    answer, status = runs.call(f"{name}.job", "job", "--json", folder)
    assert status == 0, runs.error_of(f"{name}.job")
    return run, answer


def culprits(answer):
    return [at(culprit, "rank") for culprit in need(answer, "culprits")]


def shown(answer):
    return f"{need(answer, 'verdict', 'title')}: {need(answer, 'verdict', 'summary')}"


@sizes("heavy")
@goal("the rank that keeps memory is named, with its line")
def test_heavy(runs, show, ranks):
    run, answer = run_job(runs, "heavy", ranks)
    show(shown(answer))
    assert run.status != 0, "the job did not fail"
    assert culprits(answer) == [ranks - 1], f"the culprits are {culprits(answer)}"
    assert "torch_ranks.py:24" in str(at(answer, "culprits", 0)), "the line is missing"
    assert f"rank {ranks - 1}" in run.said.lower(), "run does not name the rank"


@sizes("victim")
@goal("the rank that holds the GPU is named, not the one that fails")
def test_victim(runs, show, ranks):
    run, answer = run_job(runs, "victim", ranks)
    show(shown(answer))
    assert run.status != 0, "the job did not fail"
    assert culprits(answer) == [ranks - 1], f"the culprits are {culprits(answer)}"


@sizes("caught")
@goal("a caught failure is not the end of the job")
def test_caught(runs, show, ranks):
    run, answer = run_job(runs, "caught", ranks)
    show(shown(answer))
    assert run.status == 0, f"exit status {run.status}"
    assert need(answer, "verdict", "cause") == "caught", need(answer, "verdict", "cause")
