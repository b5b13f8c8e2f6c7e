"""What Spark and Ray add to indexing, and the time of a map that does nothing, on clusters of two executors.

Needs the environment that `.ci/fleet` makes (target/ci-fleet), with a release wheel: python/build, then
MAKEROOM_WHEEL=target/wheels/makeroom-….whl .ci/fleet local
"""
import json
import os
import shutil
import subprocess
import tempfile

from harness import Figure, Skip, build, figure, measure, under
from inputs.jobs import Job

#: An engine may add this many seconds and this share of the time without it.
SECONDS, SHARE = 30, 0.2


def options(parser, quick):
    parser.add_argument("--files", type=int, default=100 if quick else 1000, help="recordings to index")


def engine(name, source):
    python = build.ROOT / "target" / "ci-fleet" / "bin" / "python"
    if not python.exists():
        raise Skip(f"no {python}: .ci/fleet makes it")
    ended = subprocess.run([python, build.ROOT / "python" / "fleet" / "measure.py", name, source],
                           capture_output=True, text=True)
    if ended.returncode != 0:
        raise RuntimeError(ended.stderr)
    return json.loads(ended.stdout.splitlines()[-1])


@figure
def engines(options):
    directory = tempfile.mkdtemp()
    try:
        source = os.path.join(directory, "source")
        measure.in_own_process(Job(options.files, failed=[3]).write, source)
        for name in ("spark", "ray"):
            took = engine(name, source)
            allowed = SECONDS + took["local"] * (1 + SHARE)
            yield Figure(f"{name}, empty map", took["empty"], "s")
            yield Figure(f"{name}, {options.files} recordings without it", took["local"], "s")
            yield Figure(f"{name}, {options.files} recordings", took["engine"], "s", goal=under(allowed))
    finally:
        shutil.rmtree(directory)
