"""Reserved ÷ live memory of the pool for every recording, compared with PyTorch's allocators and the driver's.

Also the share of the recorded time that the pool's driver calls would take. docs/pool.md shows the table.

Goals: 1.01; at most 3 % of the time in total and 0.5 % in the second half, for runs longer than five seconds.
"""
import os

from harness import Figure, at_most, build, figure, once


def options(parser, quick):
    parser.add_argument("snapshots", nargs="*", help="[default: the recordings of traces/]")
    parser.add_argument("--markdown", action="store_true", help="print the table of docs/pool.md as well")


@once
def measured(options):
    """The rows of the table: recording, peak, one column per allocator, two shares."""
    paths = [os.path.abspath(path) for path in options.snapshots]
    text = build.call([build.example("makeroom-sim", "pool_figures"), *paths])
    if options.markdown:
        print(text)
    heading, _, *rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line.startswith("|")]
    return [dict(zip(heading, row)) for row in rows]


@figure
def reserved(options):
    for row in measured(options):
        for peer in list(row)[2:5]:
            yield Figure(f"reserved ÷ live, {row['recording']}", float(row["makeroom"]), "", peer.split(" (")[0], float(row[peer]),
                         at_most(1.01), f"ideal {row['ideal']}")


def share(options, column, goal):
    for row in measured(options):
        if row[column] != "–":
            yield Figure(f"{column}, {row['recording']}", float(row[column].rstrip(" %")), "%", goal=at_most(goal))


@figure
def driver_time(options):
    yield from share(options, "driver time", 3)


@figure
def late_driver_time(options):
    yield from share(options, "in the second half", 0.5)
