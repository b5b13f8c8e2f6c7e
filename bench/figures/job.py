"""`makeroom job` on recordings of many ranks (bench/inputs/jobs.py), about 20,000 events each.

The answer must be the same for files in another order and for hosts whose clocks differ, and a folder of junk must have an
answer too. The largest job is read with at most 256 open files. With --browser (run `cd viewer && npm ci` first), Chromium
opens the page: the first picture is the first frame with the table of ranks.
"""
import json
import os
import resource
import shutil
import subprocess
import tempfile
from pathlib import Path

from harness import Figure, at_most, build, figure, measure, once, under
from inputs.jobs import Job, junk

DRIVER = Path(__file__).resolve().parent.parent / "programs" / "job-in-browser.mjs"
OPEN_FILES = 256


def options(parser, quick):
    parser.add_argument("--ranks", type=int, default=100 if quick else 1000)
    parser.add_argument("--largest", type=int, default=256 if quick else 4096, help="ranks of the largest job")
    parser.add_argument("--junk", type=int, default=5000 if quick else 100_000, help="files that are no recordings")
    parser.add_argument("--browser", action="store_true", help="open the page in Chromium")


def in_directory(write, work):
    """Writes files to a directory, and removes them after the work."""
    directory = tempfile.mkdtemp()
    try:
        measure.in_own_process(write, directory)
        return work(directory)
    finally:
        shutil.rmtree(directory)


def answer(directory):
    output = subprocess.run([build.makeroom(), "job", "--json", directory], capture_output=True, text=True, check=True).stdout
    return json.loads(output)


def without_names(report):
    """The answer without what may differ: names of files, and remarks about clocks."""
    if isinstance(report, dict):
        return {key: without_names(value) for key, value in report.items() if key not in ("recording", "command", "notes")}
    return [without_names(value) for value in report] if isinstance(report, list) else report


def ordinary(options, **more):
    return Job(options.ranks, failed=[options.ranks * 5 // 8], **more)


@once
def measured(options):
    """The cost of an ordinary job, and its answer."""
    work = lambda directory: (measure.run([build.makeroom(), "job", "--json", directory]), answer(directory))
    return in_directory(ordinary(options).write, work)


@figure
def one_job(options):
    cost, _ = measured(options)
    name = f"{options.ranks} recordings"
    yield Figure(f"time, {name}", cost.seconds, "s", goal=under(15))
    yield Figure(f"peak memory, {name}", cost.memory / 1e6, "MB", goal=under(1000))


@figure
def every_rank_failed(options):
    job = Job(options.ranks, failed=range(options.ranks))
    cost = in_directory(job.write, lambda directory: measure.run([build.makeroom(), "job", "--json", directory]))
    yield Figure(f"time, {options.ranks} recordings that all ran out", cost.seconds, "s")


@figure
def same_answer(options):
    """Other names put the files into another order."""
    _, expected = measured(options)
    other = ordinary(options, skew=True, seed=7)
    write = lambda directory: other.write(directory, name=lambda rank: f"{rank * 7919 % 100_003}-{rank}.room")
    found = in_directory(write, answer)
    differs = without_names(found) != without_names(expected)
    yield Figure("answers that depend on order or clocks", int(differs), "", goal=at_most(0))
    wrong = [culprit["rank"] for culprit in found["culprits"]] != [options.ranks * 5 // 8]
    yield Figure("wrong culprits", int(wrong), "", goal=at_most(0))


@figure
def largest(options):
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (OPEN_FILES, limits[1]))
    try:
        job = Job(options.largest, failed=[3])
        cost = in_directory(job.write, lambda directory: measure.run([build.makeroom(), "job", "--json", directory]))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    name = f"{options.largest} recordings, {OPEN_FILES} open files"
    yield Figure(f"time, {name}", cost.seconds, "s", goal=under(60))
    yield Figure(f"peak memory, {name}", cost.memory / 1e6, "MB", goal=under(1000))


@figure
def mostly_junk(options):
    def write(directory):
        Job(16, failed=[3]).write(os.path.join(directory, "recordings"))
        junk(directory, options.junk)

    def work(directory):
        cost, report = measure.run([build.makeroom(), "job", "--json", directory]), answer(directory)
        return cost, report

    cost, report = in_directory(write, work)
    yield Figure(f"time, {options.junk} other files", cost.seconds, "s", goal=under(30))
    used = [culprit["rank"] for culprit in report["culprits"]] == [3] and report["used"]["recordings"] == 16
    yield Figure("wrong answers among other files", int(not used), "", goal=at_most(0))


@figure
def page(options):
    def work(directory):
        path = os.path.join(directory, "job.html")
        cost = measure.run([build.makeroom(), "job", directory, "-o", path])
        size = os.path.getsize(path)
        first = None
        if options.browser:
            first = json.loads(build.call(["node", str(DRIVER), path]))
        return cost, size, first

    cost, size, first = in_directory(ordinary(options).write, work)
    yield Figure(f"time with a page, {options.ranks} ranks", cost.seconds, "s")
    yield Figure(f"size of the page, {options.ranks} ranks", size / 1e6, "MB")
    if first:
        yield Figure("first picture in Chromium", first["seconds"], "s", goal=under(2))
        leads = bool(first["page"] and first["command"] and not first["problems"])
        yield Figure("clicks that lead nowhere, and errors", int(not leads), "", goal=at_most(0), note=str(first["problems"] or ""))
