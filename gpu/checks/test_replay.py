"""The model of PyTorch's allocator predicts every address and every segment, under settings that release memory, with and
without the limit of the run, which a snapshot does not contain."""

import importlib.util

import pytest

from support.runs import PROGRAMS, at, execute, last_line, load

QUICK = ["short-gc", "short-split", "short-gc-split", "short-gc-split-streams"]
# A fraction of 1.0 does not set a limit.
NO_LIMIT = "gc1-fraction-one"


def cases():
    """The names in native_settings.py; importing it does not need PyTorch."""
    spec = importlib.util.spec_from_file_location("native_settings", PROGRAMS / "native_settings.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return list(module.CASES)


@pytest.fixture(scope="module")
def recorded(runs, quick):
    """The directory with the snapshots of all cases."""
    directory = runs.directory / "replay"
    environment = dict(runs.environment, OUT=str(directory))
    command = runs.python("native_settings.py", *(QUICK if quick else []))
    execute(command, runs.directory / "replay.out", runs.directory / "replay.err", 900, environment, runs.directory)
    return directory


@pytest.mark.needs("torch")
@pytest.mark.goal("every address and segment is predicted")
@pytest.mark.parametrize("limit", ["unknown", "known"])
@pytest.mark.parametrize("case", cases())
def test_case(runs, show, quick, recorded, case, limit):
    if quick and case not in QUICK:
        pytest.skip("not with --quick")
    snapshot, options = recorded / f"{case}.pickle.gz", []
    assert snapshot.exists(), f"no snapshot: {last_line((runs.directory / 'replay.err').read_text(errors='replace'))}"
    if limit == "known":
        caps = at(load(recorded / f"{case}.json"), "caps") or []
        allowed = at(caps, 0, "allowed") if len(caps) == 1 else None
        if allowed is None or case == NO_LIMIT:
            pytest.skip("this case has no single limit")
        options = ["--memory", str(allowed)]
    answer, _ = runs.call(f"replay/{case}.{limit}", "replay", "--check", "--json", "--no-smallest", *options, snapshot)
    right, wrong = at(answer, "check", "matched"), at(answer, "check", "mismatched")
    show(f"limit {limit}: {right} predictions right, {wrong} wrong", right=right, wrong=wrong)
    assert right and wrong == 0, "not every prediction is right"
