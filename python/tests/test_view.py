"""The interactive page in Python: the same file as the command's, and a frame for notebooks."""

from __future__ import annotations

import html as html_module
import re
import shutil
import subprocess
import time
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


def test_a_setting_is_python_above_the_frame(traces: Path):
    shown = makeroom.view(traces / "oom_fragmented.pickle.gz", memory="6GiB")._repr_html_().split("<iframe ")[0]
    assert "os.environ[" in shown and "restart the kernel" in shown and "export " not in shown


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


def test_the_frame_runs_in_a_browser(traces: Path, tmp_path: Path):
    api = pytest.importorskip("playwright.sync_api")
    browser_path = shutil.which("chromium") or shutil.which("google-chrome")
    if browser_path is None:
        pytest.skip("no Chromium")
    page_file = tmp_path / "notebook.html"
    # Of an encoding that is not the page's, as a mail with a notebook may have.
    frame = makeroom.view(traces / "oom_fragmented.pickle.gz", memory="6GiB")._repr_html_()
    page_file.write_text(f'<meta charset="latin-1">{frame}', encoding="latin-1")
    problems: list[str] = []
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=browser_path, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1300, "height": 1000})
        page.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.goto(page_file.as_uri())
        frame = page.frames[1]
        frame.wait_for_selector("canvas", timeout=60_000)
        canvas = frame.locator("canvas").first.bounding_box()
        page.mouse.click(canvas["x"] + canvas["width"] * 0.4, canvas["y"] + canvas["height"] * 0.5)
        # The state of the page is in the address of the frame, and the notebook's stays as it is.
        # The page's policy forbids playwright's own waiting, which evaluates a string in it.
        until = time.monotonic() + 20
        while len(frame.evaluate("location.hash")) <= 2 and time.monotonic() < until:
            page.wait_for_timeout(50)
        assert len(frame.evaluate("location.hash")) > 2
        assert "fragmentation · certain" in frame.evaluate("document.body.innerText") and page.url == page_file.as_uri()
        browser.close()
    assert problems == []
