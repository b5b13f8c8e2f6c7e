"""`makeroom index` on recordings of many ranks, and `makeroom fleet` on an index of 100,000 made-up recordings.

Needs `cargo build --release -p makeroom-fleet`. The rate is that of one core: bytes per second of CPU
time. Memory is measured for few and for many files of the same size: it must not depend on their number.
"""
import gzip
import os
import shutil
import struct
import tempfile
from pathlib import Path

from harness import Figure, Skip, at_least, build, figure, measure, under
from inputs.jobs import HEADER, MAGIC, Job, recording
from inputs.hostile import frame
from inputs.lengthened import event_count, lengthened


#: How often the later half of a recording is repeated to make a long one, of 5 MB.
REPEATS = 40


def options(parser, quick):
    parser.add_argument("--few", type=int, default=20 if quick else 100, help="files of the small index")
    parser.add_argument("--many", type=int, default=100 if quick else 1000, help="files of the large index")
    parser.add_argument("--rows", type=int, default=10_000 if quick else 100_000, help="made-up recordings")


def program():
    """The program behind `makeroom index`: next to the makeroom that is measured."""
    path = Path(os.environ.get("MAKEROOM_FLEET", build.RELEASE / "makeroom-fleet")).resolve()
    if not path.exists():
        raise Skip(f"no {path}: cargo build --release -p makeroom-fleet")
    return str(path)


def recordings(files, source):
    Job(files, failed=[3]).write(source)


def long_recordings(files, source):
    """One recording of half a million events under many names."""
    header, parts = recording("varied_47")
    first = os.path.join(source, "rank0.room")
    os.makedirs(source)
    with open(first, "wb") as file:
        file.write(MAGIC + struct.pack("<I", 7) + frame(HEADER, header) + b"".join(lengthened(parts, REPEATS)))
    for number in range(1, files):
        os.link(first, os.path.join(source, f"rank{number}.room"))


def snapshots(files, source):
    """One real snapshot of 15 MB under many names: the same bytes are read each time."""
    os.makedirs(source)
    first = os.path.join(source, "rank0.pickle")
    with gzip.open(build.TRACES / "gpt2_varlen.pickle.gz") as packed, open(first, "wb") as file:
        shutil.copyfileobj(packed, file)
    for number in range(1, files):
        os.link(first, os.path.join(source, f"rank{number}.pickle"))


def indexed(write, files, jobs=1):
    """The cost of an index of this many recordings, and their bytes."""
    directory = tempfile.mkdtemp()
    try:
        source, index = os.path.join(directory, "source"), os.path.join(directory, "index")
        measure.in_own_process(write, files, source)
        size = sum(entry.stat().st_size for entry in os.scandir(source))
        cost = measure.run([program(), "index", source, "-o", index, "--jobs", str(jobs)])
        return cost, size
    finally:
        shutil.rmtree(directory)


@figure
def rate(options):
    """A .room file has 10 bytes per event, a snapshot more than 100: the same events are more bytes. Of a short recording,
    names and stacks are half."""
    cost, size = indexed(snapshots, options.few)
    yield Figure(f"snapshots, {options.few} files, one core", size / 1e6 / cost.processor, "MB/s", goal=at_least(200))
    cost, size = indexed(long_recordings, options.few)
    events = options.few * event_count(lengthened(recording("varied_47")[1], REPEATS))
    yield Figure(f".room recordings of 5 MB, {options.few} files, one core", size / 1e6 / cost.processor, "MB/s")
    yield Figure(f".room recordings of 5 MB, {options.few} files, one core", events / 1e6 / cost.processor, "M events/s")
    cost, size = indexed(recordings, options.many)
    yield Figure(f".room recordings of 160 kB, {options.many} files, one core", size / 1e6 / cost.processor, "MB/s")


@figure
def memory(options):
    few, _ = indexed(recordings, options.few)
    many, _ = indexed(recordings, options.many)
    yield Figure(f"peak memory, {options.few} files", few.memory / 1e6, "MB")
    yield Figure(f"peak memory, {options.many} files", many.memory / 1e6, "MB")
    yield Figure(f"peak memory, {options.many} files ÷ {options.few} files", many.memory / few.memory, "", goal=under(1.2))


@figure
def answers(options):
    """Every answer reads the index from the file: nothing is kept between commands."""
    directory = tempfile.mkdtemp()
    try:
        build.call([build.example("makeroom-index", "made_up_index"), directory, options.rows])
        for name, words in [
            ("all", []),
            ("--since 30d", ["--since", "2026-10-01"]),
            ("--job", ["--job", "100"]),
            ("--json", ["--json"]),
            ("--html", ["--html", os.path.join(directory, "fleet.html")]),
        ]:
            cost = measure.best(measure.run([program(), "fleet", directory, *words]) for _ in range(3))
            yield Figure(f"fleet, {options.rows} recordings, {name}", cost.seconds, "s", goal=under(1))
        cost = measure.best(measure.run([program(), "job", directory, "--job", "100"]) for _ in range(3))
        yield Figure(f"job INDEX --job, {options.rows} recordings", cost.seconds, "s")
    finally:
        shutil.rmtree(directory)
