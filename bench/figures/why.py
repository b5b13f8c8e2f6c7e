"""`makeroom why` on a snapshot, compared with Python's `pickle.load` of the same file.

The programs run alternately, several times each; figures are the shortest time and the largest resident memory of each.
Compressed recordings are decompressed first: both programs read the same plain file.
"""
import os
import sys
import tempfile

from harness import Figure, build, figure, measure, once, ratio_at_most
from inputs import snapshots

LOAD = "import pickle, sys; pickle.load(open(sys.argv[1], 'rb'))"


def options(parser, quick):
    parser.add_argument("snapshots", nargs="*", help="[default: two recordings of traces/]")
    parser.add_argument("--events", type=int, nargs="*", default=[], help="sizes of generated recordings")
    parser.add_argument("--runs", type=int, default=2 if quick else 5)


@once
def measured(options):
    """For each recording: its name, what makeroom needs, what Python needs."""
    found, command = [], [build.makeroom(), "why", "--json"]
    with tempfile.TemporaryDirectory() as directory:
        paths = [snapshots.plain(path, directory) for path in options.snapshots]
        if not paths and not options.events:
            paths = [snapshots.plain(path, directory) for path in snapshots.own("gpt2_varlen", "oom_fragmented")]
        paths += [snapshots.generated(events, directory) for events in options.events]
        for path in paths:
            runs = [(measure.run([*command, path]), measure.run([sys.executable, "-c", LOAD, path])) for _ in range(options.runs)]
            name = f"{os.path.basename(path)}, {os.path.getsize(path) / 1e6:.0f} MB"
            found.append((name, *(measure.best(costs) for costs in zip(*runs))))
    return found


@figure
def time(options):
    for name, ours, theirs in measured(options):
        goal = ratio_at_most(0.1) if name.startswith("gpt2_varlen") else None
        yield Figure(f"time, {name}", ours.seconds, "s", "pickle.load", theirs.seconds, goal)


@figure
def memory(options):
    for name, ours, theirs in measured(options):
        yield Figure(f"peak memory, {name}", ours.memory / 1e6, "MB", "pickle.load", theirs.memory / 1e6)
