"""Kinds of memory and `diff`: accuracy where the truth is known, memory without a kind, time and memory of half a million events.

The truth is what programs wrote down about their own tensors (traces/kinds). Generated recordings are of training steps. The peer
is Mosaic (github.com/facebookresearch/mosaic), which categorizes memory by stacks; its figures are constants, so that it need not
be installed, and the goal is a tenth of them. Give other recordings as arguments to measure how much of their peak has no kind.
"""
import os
import sys
import tempfile

from harness import Figure, at_most, build, figure, measure, once, ratio_at_most, under
from inputs import snapshots

LOAD = "import pickle, sys; pickle.load(open(sys.argv[1], 'rb'))"
LOAD_TWO = "import pickle, sys; [pickle.load(open(path, 'rb')) for path in sys.argv[1:]]"
RECORDINGS = [
    "gpt2_varlen", "graphs", "oom_batch", "oom_fragmented", "oom_fragmented-expandable", "seed001", "seed004", "streams",
    "streams-expandable", "vit_varbatch-ring",
]


# Mosaic for half a million events, in seconds and MB: an earlier measurement of another snapshot, and `get_memory_profile
# --profile categories` of commit 67b27bb for the snapshot that this benchmark generates (CPU time, 2026-11-17).
MOSAIC_EVENTS = 500_000
MOSAIC = {"other snapshot": (29.0, 1260.0), "this snapshot": (16.0, 1930.0)}


def mosaic(options, number):
    """A figure of Mosaic (0: seconds, 1: MB), the lower of the two, as a peer with the goal; only for as many events."""
    if options.events != MOSAIC_EVENTS:
        return "", None, None
    return "Mosaic, 2026-11-17", min(figures[number] for figures in MOSAIC.values()), ratio_at_most(0.1)


def options(parser, quick):
    parser.add_argument("recordings", nargs="*", help="[default: the recordings of traces/]")
    parser.add_argument("--events", type=int, default=100_000 if quick else 500_000)
    parser.add_argument("--runs", type=int, default=2 if quick else 5)


@once
def measured(options):
    """Rows of the example, and costs of the commands."""
    with tempfile.TemporaryDirectory() as directory:
        one, two = (snapshots.training(options.events, directory, batch) for batch in (8, 12))
        recordings = [os.path.abspath(path) for path in options.recordings] or snapshots.own(*RECORDINGS)
        example = build.example("makeroom-kind", "kind_figures")
        rows = [line.split("\t") for line in build.call([example, one, *recordings]).splitlines()]
        command, python = build.makeroom(), [sys.executable, "-c"]
        best = lambda words: measure.best(measure.run(words) for _ in range(options.runs))
        costs = {
            "by kind": (best([command, "why", "--by", "kind", one]), best([*python, LOAD, one])),
            "diff": (best([command, "diff", one, two]), best([*python, LOAD_TWO, one, two])),
        }
    return rows, costs


@figure
def accuracy(options):
    rows, _ = measured(options)
    truth = [(name, kind, int(error), int(size)) for what, name, kind, error, size in (row for row in rows if row[0] == "truth")]
    for kind in ("parameters", "gradients", "optimizer_state"):
        errors = [error for name, other, error, _ in truth if other == kind and name != "adamw-late"]
        yield Figure(f"error of {kind}, worst of {len(errors)}", max(errors), "bytes", goal=at_most(0))
    shares = [100 * error / size for _, kind, error, size in truth if kind == "activations"]
    yield Figure(f"error of activations, worst of {len(shares)}", max(shares), "%", goal=at_most(1))


@figure
def unknown(options):
    rows, _ = measured(options)
    for _, path, gpu, unknown, live in (row for row in rows if row[0] == "unknown"):
        name = os.path.basename(path).removesuffix(".gz").removesuffix(".pickle")
        yield Figure(f"without a kind, {name}, GPU {gpu}", 100 * int(unknown) / max(int(live), 1), "%", goal=under(3))


@figure
def kinds(options):
    rows, costs = measured(options)
    ours, theirs = costs["by kind"]
    _, _, seconds, memory = next(row for row in rows if row[0] == "cost")
    events = f"{options.events:,} events"
    yield Figure(f"kinds, {events}", float(seconds), "s", "pickle.load", theirs.seconds)
    yield Figure(f"kinds, {events}", float(seconds), "s", *mosaic(options, 0))
    yield Figure(f"memory beyond reading, {events}", int(memory) / 1e6, "MB", *mosaic(options, 1))
    yield Figure(f"why --by kind, {events}", ours.seconds, "s", "pickle.load", theirs.seconds)
    yield Figure(f"why --by kind, {events}", ours.seconds, "s", *mosaic(options, 0))
    yield Figure(f"its peak memory, {events}", ours.memory / 1e6, "MB", "pickle.load", theirs.memory / 1e6)


@figure
def diff(options):
    _, costs = measured(options)
    ours, theirs = costs["diff"]
    yield Figure(f"diff, twice {options.events:,} events", ours.seconds, "s", "pickle.load", theirs.seconds, under(1))
    yield Figure("its peak memory", ours.memory / 1e6, "MB", "pickle.load", theirs.memory / 1e6)
