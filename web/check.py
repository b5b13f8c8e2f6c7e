"""The page of web/build in a real Chromium: its answers are those of the command, and it opens no connection.

    web/check.py PAGE MAKEROOM [--screenshots FOLDER]

Explains every log of examples/ and every recording of traces/, pasted or opened as a file, and compares the answers with
`makeroom why --json`. Prints how long the largest recording takes in the browser, compared with the command.
"""
import argparse
import gzip
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

from playwright.sync_api import sync_playwright

ROOT = pathlib.Path(__file__).parent.parent


def explained(page, deliver):
    """The answer after `deliver` has given the page an input."""
    page.evaluate("window.answer = undefined")
    deliver()
    end = time.monotonic() + 120
    # The page's policy forbids waiting for an expression, which playwright evaluates from text.
    while (answer := page.evaluate("window.answer")) is None:
        if time.monotonic() > end:
            sys.exit("error: no answer in two minutes")
        time.sleep(0.02)
    return answer


def of_command(makeroom, path):
    """The answer of the command, and how long it took."""
    start = time.monotonic()
    output = subprocess.run([makeroom, "why", "--json", path], capture_output=True, check=True).stdout
    return json.loads(output), time.monotonic() - start


def compare(name, answer, expected):
    if answer.get("json") != expected:
        sys.exit(f"error: {name}: the page says {json.dumps(answer)[:2000]}\nthe command says {json.dumps(expected)[:2000]}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("page", type=pathlib.Path)
    parser.add_argument("makeroom", type=pathlib.Path)
    parser.add_argument("--screenshots", type=pathlib.Path)
    options = parser.parse_args()
    logs = sorted(ROOT.glob("examples/*.txt")) + sorted(ROOT.glob("examples/errors/*.txt"))
    recordings = sorted(ROOT.glob("traces/*.pickle.gz")) + sorted(ROOT.glob("traces/**/*.room"))
    requests = []
    with sync_playwright() as playwright, tempfile.TemporaryDirectory() as folder:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1440, "height": 900})
        page.on("request", lambda request: requests.append(request.url))
        page.on("pageerror", lambda error: sys.exit(f"error: {error}"))
        page.goto(options.page.resolve().as_uri())
        if options.screenshots:
            page.screenshot(path=options.screenshots / "web-start.png")
        for path in logs:
            page.fill("#log", path.read_text())
            answer = explained(page, lambda: page.click("#explain"))
            compare(path, answer, of_command(options.makeroom, path)[0])
            assert answer["json"]["verdict"]["title"] in page.inner_text("#result"), path
        if options.screenshots:
            page.screenshot(path=options.screenshots / "web-log.png", full_page=True)
        times = []
        for path in recordings:
            plain = path
            if path.suffix == ".gz":
                plain = pathlib.Path(folder) / path.stem
                plain.write_bytes(gzip.decompress(path.read_bytes()))
            expected, seconds = of_command(options.makeroom, plain)
            answer = explained(page, lambda: page.set_input_files("#file", plain))
            compare(path, answer, expected)
            times.append((plain.stat().st_size, answer["milliseconds"] / 1000, seconds, path.name))
        if options.screenshots:
            page.screenshot(path=options.screenshots / "web-snapshot.png", full_page=True)
            page.emulate_media(color_scheme="dark")
            page.set_viewport_size({"width": 1024, "height": 700})
            page.screenshot(path=options.screenshots / "web-dark.png")
        damaged = pathlib.Path(folder) / "damaged.pickle"
        damaged.write_bytes(b"\x80\x04\x95" + b"\xff" * 8 + b"}")
        answer = explained(page, lambda: page.set_input_files("#file", damaged))
        assert answer["error"] and "No explanation" in page.inner_text("#result"), answer
        browser.close()
    outside = [url for url in requests if not url.startswith(("file:", "blob:", "data:"))]
    if outside:
        sys.exit(f"error: the page opened {outside}")
    size, here, there, name = max(times)
    print(f"{len(logs)} logs and {len(recordings)} recordings: the same answers as the command")
    print(f"{name}, {size / 1e6:.0f} MB: {here:.2f} s in the browser, {there:.2f} s by the command ({here / there:.1f} times)")


main()
