"""Recordings as tables, and the results of `replay` and `tune`."""

from __future__ import annotations

import json
import pickle
import subprocess
from pathlib import Path

import pytest

import makeroom


@pytest.fixture(scope="module")
def trace(traces: Path) -> makeroom.Trace:
    return makeroom.open(traces / "seed004.pickle.gz")


def test_a_recording_says_what_it_is(trace):
    assert (trace.kind, trace.devices) == ("torch-snapshot", [0])
    assert repr(trace).endswith("seed004.pickle.gz: torch-snapshot, 400 events, devices 0>")
    assert len(trace) == len(trace.events) == 400


def test_a_recording_is_a_sequence_of_events(trace, traces):
    assert trace[0] == next(iter(trace)) == trace.head(1)[0] == trace.events[0]
    assert trace[-1]["event"] == 399 and len(trace[10:20]) == 10
    assert [event["event"] for event in trace] == list(range(400))
    with pytest.raises(TypeError, match="trace.allocations"):
        trace["size"]
    profile = makeroom.open(traces / "jax_memory.prof.gz")
    # A profile without events is a recording all the same.
    assert len(profile) == 0 and profile and "0 events" in repr(profile)


def test_a_recording_is_pickled_as_its_path(trace, tmp_path, monkeypatch, traces):
    monkeypatch.chdir(traces)
    relative = makeroom.open("seed004.pickle.gz")
    content = pickle.dumps(relative)
    assert len(content) < 1000
    monkeypatch.chdir(tmp_path)
    copy = pickle.loads(content)
    assert repr(copy) == repr(relative) and copy.explain() == trace.explain()
    with pytest.raises(pickle.PicklingError, match="not in a file"):
        pickle.dumps(makeroom.Trace("PyTorch's memory history", trace._recording))


def test_the_stream_is_arrow_s(trace):
    for table in (trace.events, trace.allocations, trace.segments, trace.frames):
        assert 'arrow_array_stream' in repr(table.__arrow_c_stream__())
        assert 'arrow_schema' in repr(table.__arrow_c_schema__())


def test_pyarrow_takes_the_columns_as_they_are(trace):
    pyarrow = pytest.importorskip("pyarrow")
    one, two = pyarrow.table(trace.events), pyarrow.table(trace.events)
    for name in one.column_names:
        buffers = [piece.chunk(0).buffers() for piece in (one[name], two[name])]
        places = [[buffer and buffer.address for buffer in each] for each in buffers]
        assert places[0] == places[1], f"{name} was copied"
    sizes = one["size"].to_pylist()
    actions = one["action"].to_pylist()
    live = peak = 0
    for action, size in zip(actions, sizes):
        live += {"alloc": size, "free_completed": -size}.get(action, 0)
        peak = max(peak, live)
    assert peak == makeroom.replay(trace, "ideal").runs[0].peak_live_bytes


def test_allocations_end_and_have_their_lines(trace):
    pyarrow = pytest.importorskip("pyarrow")
    rows = pyarrow.table(trace.allocations).to_pylist()
    assert all(row["is_live"] == (row["freed_event"] is None) for row in rows)
    ended = [row for row in rows if row["freed_at"] and row["allocated_at"]]
    assert ended and all(row["allocated_at"] <= row["freed_at"] for row in ended)
    assert all(row["allocated_event"] < row["freed_event"] for row in ended)
    assert any(" seed004" in (row["site"] or "") for row in rows)
    stacks = {row["stack"] for row in pyarrow.table(trace.frames).to_pylist()}
    assert {row["stack"] for row in rows} - stacks <= {0}


def test_missing_packages_are_named(trace, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "polars", None)
    with pytest.raises(ImportError, match="pip install polars"):
        trace.events.to_polars()


def test_replay_is_the_command_s(trace, command, traces):
    replay = makeroom.replay(trace, "pytorch", "ideal")
    words = [command, "replay", "--json", "--allocator", "pytorch", "--allocator", "ideal", str(traces / "seed004.pickle.gz")]
    assert replay.to_dict() == json.loads(subprocess.run(words, stdout=subprocess.PIPE, check=True).stdout)
    assert replay["ideal"].reserved_over_live == 1.0
    assert replay["pytorch"].peak_reserved_bytes >= replay["ideal"].peak_reserved_bytes
    assert "÷ live" in repr(replay) and "<table>" in replay._repr_html_()
    assert [run.allocator for run in replay] == ["pytorch", "ideal"] and len(replay) == 2
    assert replay[1] == replay["ideal"]
    with pytest.raises(KeyError, match="use one of 'pytorch', 'ideal'"):
        replay["bfc"]


def test_the_model_is_proven(traces):
    check = makeroom.replay(traces / "seed004.pickle.gz", check=True, smallest=False).check
    assert check.matched > 100 and check.mismatched == 0


def test_a_setting_is_found(traces, command):
    path = traces / "oom_fragmented.pickle.gz"
    tuning = makeroom.tune(path, memory="6GiB")
    done = subprocess.run([command, "tune", "--json", "--memory", "6GiB", str(path)], stdout=subprocess.PIPE, check=True)
    assert tuning.to_dict() == json.loads(done.stdout)
    assert tuning.best.settings in tuning.trials and tuning.best.command in repr(tuning)
    assert tuning.recorded.out_of_memory and not tuning.trials[tuning.best.settings].out_of_memory
    assert tuning.best.fits and tuning.best.reserved_bytes == tuning.trials[tuning.best.settings].peak_reserved_bytes
    # The recorded run failed early, and reserved less than a run that completes.
    assert tuning.best.saves_bytes is None
    assert list(tuning) == list(tuning.trials.values()) and len(tuning) == len(tuning.trials) > 3
    assert tuning[0] == tuning[tuning.best.settings]
    with pytest.raises(KeyError, match="'roundup' was not tried; use one of 'expandable_segments:True'"):
        tuning["roundup"]
    assert pickle.loads(pickle.dumps(tuning)) == tuning and pickle.loads(pickle.dumps(tuning.best)) == tuning.best
    html = tuning._repr_html_()
    assert tuning.best.settings in html and "export " not in html and "min memory" not in html
    saves = makeroom.tune(traces / "gpt2_varlen.pickle.gz").best.saves_bytes
    assert saves is not None and saves > 1 << 30


def test_wrong_questions_are_answered(trace, examples):
    with pytest.raises(makeroom.UsageError, match="no device 7"):
        trace.why(device=7)
    with pytest.raises(makeroom.UsageError, match="tcmalloc"):
        trace.replay("tcmalloc")
    with pytest.raises(makeroom.UsageError, match="much"):
        trace.why(memory="much")
    with pytest.raises(makeroom.UsageError, match="negative"):
        trace.tune(memory=-1)
    with pytest.raises(makeroom.InputError, match="text, not a recording"):
        makeroom.open(examples / "other-process.txt")
