"""Live memory in groups: `Trace.by`."""

from __future__ import annotations

import json
import pickle
import subprocess
from pathlib import Path

import pytest

import makeroom


@pytest.fixture(scope="module")
def trace(traces: Path) -> makeroom.Trace:
    return makeroom.open(traces / "kinds" / "adamw.pickle.gz")


@pytest.mark.parametrize("by", ["kind", "line", "module", "stage", "thread", "stream", "process"])
def test_groups_add_up_and_are_those_of_the_command(trace, command, by):
    groups = trace.by(by)
    assert sum(group.bytes for group in groups) == groups.live_bytes
    assert all(sum(group.kinds.values()) == group.bytes for group in groups)
    assert (groups.by, groups.device, groups.moment) == (by, 0, "peak")
    said = subprocess.run([command, "why", "--by", by, "--json", trace.path], stdout=subprocess.PIPE, check=True).stdout
    assert groups.to_dict() == {name: value for name, value in json.loads(said).items() if name != "file"}


def test_a_group_has_a_name(trace):
    kinds = trace.by("kind")
    assert kinds["parameters"].bytes == 20_844_160
    assert "optimizer state" in kinds.text(100)
    assert kinds[0] == kinds["parameters"] == kinds.groups[0]
    with pytest.raises(KeyError, match="no group 'weights'; use one of parameters, "):
        kinds["weights"]
    assert pickle.loads(pickle.dumps(kinds)) == kinds and len(kinds) == len(kinds.groups)


def test_groups_are_html_in_a_notebook(trace):
    html = trace.by("kind")._repr_html_()
    assert "Live memory by kind, at the peak: 241.57 MiB on GPU 0" in html
    assert "optimizer state" in html and "optimizer_state" not in html


def test_what_is_not_recorded_has_a_hint(trace):
    assert trace.by("kind").notes == []
    assert "does not record threads" in trace.by("thread").notes[0]
    with pytest.raises(makeroom.UsageError, match="use kind, line"):
        trace.by("color")
    with pytest.raises(makeroom.UsageError, match="no device 7"):
        trace.by("kind", device=7)
