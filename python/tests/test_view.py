"""The interactive page in Python: the same file as the command's, and a frame for notebooks."""

from __future__ import annotations

import html as html_module
import re
import subprocess
from pathlib import Path

import pytest

import makeroom


def test_the_page_is_the_command_s(traces: Path, command: str, tmp_path: Path):
    path = traces / "seed004.pickle.gz"
    file, own = tmp_path / "command.html", tmp_path / "module.html"
    subprocess.run([command, "view", str(path), "-o", str(file)], check=True, stderr=subprocess.DEVNULL, timeout=120)
    view = makeroom.open(path).view()
    view.save(own)
    start = '<script id="makeroom-data"'
    one, other = file.read_text(encoding="utf-8").split(start), own.read_text(encoding="utf-8").split(start)
    assert one[0] == other[0] and len(own.read_bytes()) > 100_000
    assert view.html == own.read_text(encoding="utf-8") and "202 of 401 moments" in view.notes[0]
    assert "seed004.pickle.gz" in repr(view)


def test_a_notebook_gets_a_frame_without_access_to_it(traces: Path):
    view = makeroom.view(traces / "seed004.pickle.gz", height=333)
    frame = view._repr_html_()
    assert frame.startswith("<iframe ") and "height:333px" in frame and frame.endswith("</iframe>")
    assert 'sandbox="allow-scripts allow-downloads"' in frame
    page = html_module.unescape(re.search(r'srcdoc="([^"]*)"', frame).group(1))
    assert page.replace('<base href="about:srcdoc">', "", 1) == view.html


def test_two_recordings_are_compared(traces: Path):
    one = makeroom.view(traces / "seed001.pickle.gz")
    both = makeroom.view(traces / "seed001.pickle.gz", makeroom.open(traces / "seed004.pickle.gz"))
    assert len(both.html) > len(one.html) and "seed001.pickle.gz, seed004.pickle.gz" in repr(both)


def test_wrong_questions_are_answered(traces: Path, examples: Path):
    with pytest.raises(makeroom.UsageError, match="no recording"):
        makeroom.view()
    with pytest.raises(makeroom.UsageError, match="both"):
        makeroom.view(traces / "seed004.pickle.gz", memory="1GiB", card="2GiB")
    with pytest.raises(FileNotFoundError):
        makeroom.view("gone.pickle")
    with pytest.raises(makeroom.InputError, match="text, not a recording"):
        makeroom.view(examples / "other-process.txt")
