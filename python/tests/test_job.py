"""The answer for a job in Python: its types, and its HTML."""

from __future__ import annotations

import pickle
import re
from pathlib import Path
from typing import get_args

import pytest

import makeroom

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def job(traces: Path) -> makeroom.Job:
    return makeroom.job(traces / "job")


@pytest.mark.parametrize(("enum", "literal"), [("JobCause", makeroom.JobCause), ("RankFate", makeroom.Fate)])
def test_the_types_have_every_name(enum: str, literal: object):
    source = (ROOT / "crates/makeroom-job/src/report.rs").read_text(encoding="utf-8")
    variants = re.findall(r"^    ([A-Z]\w*),$", source.split(f"pub enum {enum} {{")[1].split("\n}")[0], re.MULTILINE)
    names = [re.sub(r"(?<!^)(?=[A-Z])", "_", variant).lower() for variant in variants]
    assert len(names) > 5 and list(get_args(literal)) == names


def test_the_answer_has_typed_parts(job: makeroom.Job):
    assert job.title == "RANK 2 RAN OUT OF MEMORY" and job.cause in get_args(makeroom.JobCause)
    assert {rank.fate for rank in job.ranks} <= set(get_args(makeroom.Fate))
    assert job.fixes[0].command == "DataLoader(dataset, batch_size=1)" and job.fixes[0].python is None
    copy = pickle.loads(pickle.dumps(job))
    assert copy == job and copy.ranks == job.ranks and repr(copy.culprits) == repr(job.culprits)


def test_the_html_has_the_verdict_the_ranks_and_the_fixes(job: makeroom.Job):
    html = job._repr_html_()
    assert "RANK 2 RAN OUT OF MEMORY" in html and "<b>rank 2</b>" in html and "collective timeout" in html
    assert "Fixes, most effective first" in html and "DataLoader(dataset, batch_size=1)" in html
    opened, closed = re.findall(r"<(div|table|tr|td|th|ol|li|b|code|span|button|details)\b", html), re.findall(r"</(\w+)>", html)
    assert sorted(opened) == sorted(tag for tag in closed if tag in set(opened))


def test_hostile_text_is_escaped(tmp_path: Path, traces: Path):
    for path in (traces / "job").glob("*.log"):
        text = path.read_text(encoding="utf-8").replace("train.py", "<script>alert(1)</script>.py")
        (tmp_path / path.name).write_text(text, encoding="utf-8")
    assert "<script" not in makeroom.job(tmp_path)._repr_html_()


def test_a_missing_directory_is_named(tmp_path: Path):
    with pytest.raises(FileNotFoundError) as caught:
        makeroom.job(tmp_path / "gone")
    assert caught.value.filename == str(tmp_path / "gone")
