"""The Python package: `import makeroom`, reading a recording into columns, and a step of `watch` in a recorded process.

Needs a Python that has the wheel (python/build && pip install target/wheels/makeroom-*.whl): `bench/run python PYTHON`, or
$PYTHON. The peer of the import is the standard library's json in the same run. Figures are medians.
"""
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

from harness import Figure, Skip, build, figure, once, under
from inputs import snapshots

PROGRAM = Path(__file__).resolve().parent.parent / "programs" / "python_times.py"


def options(parser, quick):
    parser.add_argument("python", nargs="?", default=os.environ.get("PYTHON", sys.executable), help="[default: $PYTHON]")
    parser.add_argument("--runs", type=int, default=6 if quick else 30)


@once
def measured(options):
    """Median milliseconds by name."""
    if subprocess.run([options.python, "-c", "import makeroom"], capture_output=True, cwd="/").returncode != 0:
        raise Skip(f"{options.python} has no makeroom: python/build && pip install target/wheels/makeroom-*.whl")
    text = build.call([options.python, PROGRAM, snapshots.own("gpt2_varlen")[0], str(options.runs)])
    return {name: statistics.median(times) for name, times in json.loads(text).items()}


@figure
def imports(options):
    found = measured(options)
    yield Figure("import makeroom", found["import makeroom"], "ms", "import json", found["import json"], under(30))
    yield Figure("import makeroom._impl._native", found["import makeroom._impl._native"], "ms", "import json", found["import json"])


@figure
def reading(options):
    found = measured(options)
    yield Figure("open, 165,618 events", found["open"], "ms")
    yield Figure("its events as columns", found["events"], "ms")
    yield Figure("its allocations as columns", found["allocations"], "ms")


@figure
def watching(options):
    yield Figure("a step of watch, recorded", measured(options)["watch"], "ms")
