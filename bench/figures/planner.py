"""The offline planner, compared with the best public solvers.

Needs a directory with MiniMalloc's instances A to K (A.1048576.csv …, capacity 1048576) and the larger ones as CSV files:
`bench/run planner DIRECTORY`, or $PLANNER_INSTANCES. With MINIMALLOC=path, MiniMalloc runs on A to K in the same run;
otherwise its times on a machine with two cores are shown, 64.8 s in total.
"""
import os
import re
from pathlib import Path

from harness import Figure, Skip, at_most, build, figure, measure, once

CAPACITY = 1048576
MINIMALLOC = {"A": 10.0, "B": 8.4, "C": 1.9, "D": 9.0, "E": 7.5, "F": 11.4, "G": 2.2, "H": 3.5, "I": 7.2, "J": 2.7, "K": 1.0}
# Peak over the lower bound, and seconds.
IDEALLOC = {"resnet50": (1.0027, 1.1), "G_1": (1.0017, 0.8), "pangu_2.6B": (1.0334, 1.7)}


def options(parser, quick):
    parser.add_argument("directory", nargs="?", default=os.environ.get("PLANNER_INSTANCES"), help="[default: $PLANNER_INSTANCES]")


def directory(options):
    if not options.directory:
        raise Skip("needs the instances: bench/run planner DIRECTORY")
    return Path(options.directory)


@once
def small(options):
    """Seconds of makeroom and of MiniMalloc, by instance."""
    plan, other, found = build.example("makeroom-plan", "plan"), os.environ.get("MINIMALLOC"), {}
    for file in sorted(directory(options).glob(f"?.{CAPACITY}.csv")):
        name = file.name[0]
        ours = measure.run([plan, "--capacity", CAPACITY, file]).seconds
        theirs = MINIMALLOC[name]
        if other:
            theirs = measure.run([other, f"--capacity={CAPACITY}", f"--input={file}", "--output=/dev/null"]).seconds
        found[name] = (ours, theirs)
    return found


@figure
def time(options):
    if not small(options):
        raise Skip(f"no ?.{CAPACITY}.csv in {options.directory}")
    for name, (ours, theirs) in small(options).items():
        yield Figure(f"time, {name}", ours, "s", "MiniMalloc", theirs)
    ours, theirs = map(sum, zip(*small(options).values()))
    yield Figure("time, all", ours, "s", "MiniMalloc", theirs)


@once
def large(options):
    """Peak over the lower bound and seconds, by instance."""
    plan, found = build.example("makeroom-plan", "plan"), {}
    for name in IDEALLOC:
        file = directory(options) / f"{name}.csv"
        if file.exists():
            line = build.call([plan, file])
            found[name] = tuple(map(float, re.search(r"ratio ([\d.]+) ([\d.]+)", line).groups()))
    return found


@figure
def peak(options):
    for name, (ratio, _) in large(options).items():
        yield Figure(f"peak ÷ lower bound, {name}", ratio, "", "idealloc", IDEALLOC[name][0], at_most(1))


@figure
def time_of_large(options):
    for name, (_, seconds) in large(options).items():
        yield Figure(f"time, {name}", seconds, "s", "idealloc", IDEALLOC[name][1])
