"""`makeroom tune` on a recording, including reading it.

The goal is under two seconds for at least twelve settings on traces/gpt2_varlen.pickle.gz.
"""
import json
import os

from harness import Figure, at_least, build, figure, measure, under
from inputs import snapshots


def options(parser, quick):
    parser.add_argument("snapshot", nargs="?", default=str(snapshots.own("gpt2_varlen")[0]), help="[default: gpt2_varlen]")
    parser.add_argument("--runs", type=int, default=2 if quick else 5)


def command(options):
    return [build.makeroom(), "tune", "--json", options.snapshot]


def is_own(options):
    return options.snapshot == str(snapshots.own("gpt2_varlen")[0])


@figure
def settings(options):
    count = len(json.loads(build.call(command(options)))["trials"])
    yield Figure("settings compared", count, "", goal=at_least(12) if is_own(options) else None)


@figure
def time(options):
    best = measure.best(measure.run(command(options)) for _ in range(options.runs))
    name = os.path.basename(options.snapshot).split(".")[0]
    yield Figure(f"time, {name}", best.seconds, "s", goal=under(2) if is_own(options) else None)
