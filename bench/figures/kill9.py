"""How much of a recording is lost when its process is killed, on the software GPU.

A program allocates and frees continuously and writes the time of each call to memory that outlives it. It is killed with
`kill -9` at a random time: by itself, after `makeroom run`, or before it, in turn. `makeroom why` must read every recording
without claiming that nothing failed. The loss is the time between the last call and the last event in the file.
"""
import json
import mmap
import os
import random
import signal
import statistics
import struct
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from harness import Figure, at_most, build, figure, once

SOURCE = Path(__file__).resolve().parent.parent / "programs" / "kill9.c"
GOAL_MS = 100


def options(parser, quick):
    runs = 9 if quick else 100
    parser.add_argument("--runs", type=int, default=runs, help=f"[default: {runs}]")
    parser.add_argument("--longest", type=float, default=1.0, help="maximum number of seconds until the kill [default: 1]")
    parser.add_argument("--seed", type=int, default=9)


@dataclass
class Loss:
    is_readable: bool
    milliseconds: float = 0
    allocations: int = 0


def kill(pid):
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def last_event(recording, environment):
    """When the last event of a recording happened, in nanoseconds, and how many allocations there are."""
    command = [build.makeroom(), "export", "--to", "csv", "--table", "events", recording]
    lines = subprocess.run(command, capture_output=True, env=environment).stdout.splitlines()[1:]
    rows = [line.split(b",", 4) for line in lines]
    return (1000 * max(int(row[2]) for row in rows), sum(row[3] == b"alloc" for row in rows)) if rows else (None, 0)


def attempt(number, options, directory, environment):
    """Kills one run."""
    recording, notes_path = os.path.join(directory, f"{number}.room"), os.path.join(directory, "notes")
    with open(notes_path, "wb") as file:
        file.write(bytes(4096))
    with open(notes_path, "r+b") as file:
        notes = mmap.mmap(file.fileno(), 4096)
    # The process, the allocations, the times of the last and the first call in nanoseconds.
    pid, allocations, last, first = (lambda index=index: struct.unpack_from("Q", notes, 8 * index)[0] for index in range(4))
    command = [build.makeroom(), "run", "--no-status", "-o", recording, "--", os.path.join(directory, "program"), notes_path]
    run = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    end = time.monotonic() + 60
    while pid() == 0 and time.monotonic() < end:
        time.sleep(0.001)
    time.sleep(random.uniform(0, options.longest))
    for victim in [[pid()], [run.pid, pid()], [pid(), run.pid]][number % 3]:
        kill(victim)
    run.wait()
    while os.path.exists(f"/proc/{pid()}"):
        time.sleep(0.001)
    why = subprocess.run([build.makeroom(), "why", "--json", recording], capture_output=True, env=environment)
    if why.returncode != 0 or json.loads(why.stdout)["verdict"]["cause"] == "none":
        return Loss(False)
    recorded, in_file = last_event(recording, environment)
    os.remove(recording)
    # A file without an event has lost all of them.
    return Loss(True, max(0, last() - (recorded or first())) / 1e6, max(0, allocations() - in_file))


@once
def measured(options):
    random.seed(options.seed)
    with tempfile.TemporaryDirectory() as directory:
        environment = dict(build.software_gpu(directory), MAKEROOM_SIMGPU="memory=8GiB", XDG_RUNTIME_DIR=directory)
        build.call(["cc", "-w", "-O1", "-rdynamic", SOURCE, "-o", os.path.join(directory, "program"), f"-L{directory}",
                    "-l:libcuda.so.1"])
        return [attempt(number, options, directory, environment) for number in range(options.runs)]


@figure
def unreadable(options):
    count = sum(not loss.is_readable for loss in measured(options))
    yield Figure("recordings that are unreadable or claim success", count, "", goal=at_most(0), note=f"of {options.runs} killed")


@figure
def lost_time(options):
    lost = sorted(loss.milliseconds for loss in measured(options) if loss.is_readable)
    if lost:
        yield Figure("lost, median", statistics.median(lost), "ms")
        yield Figure("lost, 90 %", lost[len(lost) * 9 // 10], "ms")
        yield Figure("lost, maximum", lost[-1], "ms", goal=at_most(GOAL_MS))


@figure
def lost_allocations(options):
    lost = sorted(loss.allocations for loss in measured(options) if loss.is_readable)
    if lost:
        yield Figure("lost allocations, median", statistics.median(lost), "")
        yield Figure("lost allocations, maximum", lost[-1], "")
