"""How often `makeroom why` names the expected cause, and gives a fix, for a labeled collection of inputs.

Needs the collection: `bench/run texts TEXTS.jsonl`, or $TEXTS. Each line is {"source", "kind", "expected", "accept", "text"};
bench/corpus/README.md has the labels.
"""
import os
import re

from harness import Figure, Skip, at_least, at_most, build, figure, once

DETAILS = {"wrong": "list every input with an unexpected cause", "answers": "print every explanation, for manual grading",
           "steps": "list every failure without a fix that names a setting and a value"}
# What must hold, in percent or as a count; these are the goals of `makeroom why` for real texts.
GOALS = {"cause as expected": at_least(95), "negatives claimed": at_most(0)}


def options(parser, quick):
    parser.add_argument("texts", nargs="?", default=os.environ.get("TEXTS"), help="[default: $TEXTS]")
    for name, text in DETAILS.items():
        parser.add_argument(f"--{name}", action="store_true", help=text)


@once
def measured(options):
    """The lines of the summary: name, count, of how many."""
    if not options.texts:
        raise Skip("needs a collection: bench/run texts TEXTS.jsonl")
    flags = [f"--{name}" for name in DETAILS if getattr(options, name)]
    lines = build.call([build.example("makeroom-text", "measure_texts"), os.path.abspath(options.texts), *flags]).splitlines()
    start = next(number for number, line in enumerate(lines) if re.match(r"\d+ texts in", line))
    if flags:
        print("\n".join(lines[:start]))
    found = (re.match(r" *(.*?) +(\d+)(?:/(\d+))?$", line) for line in lines[start + 1:])
    return [(row[1], int(row[2]), int(row[3]) if row[3] else None) for row in found if row]


@figure
def share(options):
    for name, count, whole in measured(options):
        if whole and name != "negatives claimed":
            yield Figure(name, 100 * count / whole, "%", goal=GOALS.get(name), note=f"{count} of {whole}")


@figure
def claims(options):
    for name, count, whole in measured(options):
        if not whole or name == "negatives claimed":
            yield Figure(name, count, "", goal=GOALS.get(name), note=f"of {whole}" if whole else "")
