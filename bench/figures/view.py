"""How soon `makeroom view` shows a recording, and how fast it responds to random navigation.

The first chart is the time from the start of the command until the server has returned `/api/inputs` and the coarsest tile
of the series. Then random tiles of random levels are requested, and the address space, stacks and allocations at random
moments. With --report, the self-contained file is measured too.

With --browser (run `cd viewer && npm ci` first), Chromium is used instead: the first chart is the time until a frame with the
series is painted. Each turn of the mouse wheel is measured from the input to the frame that shows the new range: at any
resolution (`seen`), and at full resolution (`exact`). Recordings of about 490,000 events are compared with PyTorch's own
script and page for 494,000.
"""
import http.client
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from harness import Figure, at_most, build, figure, machine, measure, once
from inputs import snapshots

DRIVER = Path(__file__).resolve().parent.parent / "programs" / "view-in-browser.mjs"
# What PyTorch's `_memory_viz.py trace_plot` needs for a snapshot of 494,000 events, before a browser has opened the page:
# seconds, bytes of memory, bytes of the page.
PEER, PEER_SIZE = "_memory_viz.py", 500_000
PYTORCH = {"first": 3.6, "resident": 583e6, "transferred": 76e6}


def options(parser, quick):
    parser.add_argument("snapshots", nargs="*", help="[default: generated recordings]")
    parser.add_argument("--events", type=int, nargs="*", default=[], help="sizes of generated recordings [default: 500000 10000000]")
    parser.add_argument("--questions", type=int, default=50 if quick else 200, help="number of requests of each kind")
    parser.add_argument("--report", action="store_true", help="also write the self-contained file")
    parser.add_argument("--browser", action="store_true", help="use Chromium")
    parser.set_defaults(sizes=[PEER_SIZE] if quick else [PEER_SIZE, 10_000_000])


class Viewer:
    """A running `makeroom view`."""

    def __init__(self, path):
        self.began = time.perf_counter()
        command = [build.makeroom(), "view", "--no-browser", path]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        for line in self.process.stdout:
            if found := re.match(r"http://127\.0\.0\.1:(\d+)(/\w+)/", line):
                self.connection = http.client.HTTPConnection("127.0.0.1", int(found[1]))
                self.token = found[2]
                return
        sys.exit(f"{' '.join(command)} printed no address")

    def get(self, path):
        """The response, and how long it took."""
        start = time.perf_counter()
        self.connection.request("GET", self.token + path)
        response = self.connection.getresponse()
        body = response.read()
        if response.status != 200:
            sys.exit(f"{path}: {response.status} {body[:200]}")
        return body, time.perf_counter() - start

    def resident(self):
        with open(f"/proc/{self.process.pid}/status") as file:
            return int(re.search(r"VmHWM:\s+(\d+) kB", file.read())[1]) * 1024

    def end(self):
        self.process.terminate()
        self.process.wait()


def navigate(viewer, device, count):
    """Milliseconds of random requests by kind."""
    chance = random.Random(7)
    events, levels = device["events"], device["levels"]
    moment = lambda: chance.randrange(events + 1)

    def tile():
        level = chance.randrange(levels)
        buckets = -(-(events + 1) // 4 ** level)
        return f"series/{level}/{chance.randrange(-(-buckets // 512))}"

    kinds = {"series": tile, "moment": lambda: f"moment/{moment()}", "live": lambda: f"live/{moment()}",
             "allocations": lambda: f"allocations/{moment()}?sort=age&filter=train"}
    viewer.get("/api/0/stacks")
    return {kind: [1000 * viewer.get(f"/api/0/0/{path()}")[1] for _ in range(count)] for kind, path in kinds.items()}


def from_server(path, options):
    """Times and memory, measured at the server."""
    viewer = Viewer(path)
    try:
        device = json.loads(viewer.get("/api/inputs")[0])["inputs"][0]["devices"][0]
        viewer.get(f"/api/0/0/series/{device['levels'] - 1}/0")
        first, processor = time.perf_counter() - viewer.began, machine.seconds(viewer.process.pid)
        times = navigate(viewer, device, options.questions)
        return dict(first=first, resident=viewer.resident(), times=times, note=f"{processor:.2f} s of CPU time")
    finally:
        viewer.end()


def in_browser(path, options):
    """The same in Chromium."""
    command = ["node", DRIVER, str(options.questions), "--", build.makeroom(), "view", "--no-browser", path]
    found = json.loads(build.call(command))
    return dict(first=found["first"] / 1000, resident=found["server"], transferred=found["bytes"], times=found["times"],
                note=f"URL after {found['ready'] / 1000:.2f} s, page {found['page'] / 1e6:.0f} MB")


def report(path, directory):
    """Seconds until the self-contained file is written, and its bytes."""
    target = os.path.join(directory, "report.html")
    seconds = measure.run([build.makeroom(), "view", path, "-o", target]).seconds
    return seconds, os.path.getsize(target)


@once
def measured(options):
    """For each recording: its name, its generated size or None, and what was measured."""
    found = []
    with tempfile.TemporaryDirectory() as directory:
        inputs = [(path, None) for path in options.snapshots]
        for events in options.events or (options.sizes if not inputs else []):
            inputs.append((snapshots.generated(events, directory), events))
        for path, events in inputs:
            measure.read_through(path)
            result = (in_browser if options.browser else from_server)(path, options)
            if options.report:
                result["report"] = report(path, directory)
            found.append((os.path.basename(path), events, result))
    return found


def compared(options, key, name, unit, factor):
    """PyTorch's script is the peer for a recording of its size."""
    for recording, events, result in measured(options):
        if key in result:
            has_peer = events == PEER_SIZE
            yield Figure(f"{name}, {recording}", factor * result[key], unit, PEER if has_peer else "",
                         factor * PYTORCH[key] if has_peer else None, note=result["note"] if key == "first" else "")


@figure
def first_chart(options):
    yield from compared(options, "first", "first chart", "s", 1)


@figure
def memory(options):
    yield from compared(options, "resident", "resident memory", "MB", 1e-6)


@figure
def transferred(options):
    yield from compared(options, "transferred", "transferred", "MB", 1e-6)


@figure
def navigation(options):
    for recording, _, result in measured(options):
        for kind, times in result["times"].items():
            yield Figure(f"{kind}, 95 %, {recording}", measure.percentile(times, 0.95), "ms", goal=at_most(50),
                         note=f"median {measure.percentile(times, 0.5):.1f} ms, longest {max(times):.1f} ms")


@figure
def self_contained(options):
    for recording, _, result in measured(options):
        if "report" in result:
            seconds, size = result["report"]
            yield Figure(f"self-contained file, {recording}", seconds, "s", note=f"{size / 1e6:.2f} MB")
