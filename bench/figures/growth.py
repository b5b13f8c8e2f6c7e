"""How the time, memory and output of each command grow with a hostile recording (bench/inputs/hostile.py).

Growth of time is the time at 4n divided by the time at n, after the time of an empty recording has been deducted: 4 is
linear, 16 quadratic. Memory and output are relative to the (decompressed) input, beyond a fixed amount. The table has the
worst recording of each command, and every other one that misses a goal; --all prints all. LIMIT=30 sets another limit of CPU
seconds.
"""
import os
import resource
import sys
import tempfile
from dataclasses import dataclass

from harness import Figure, at_most, build, figure, measure, once
from inputs import hostile

# CPU seconds after which a command is ended.
LIMIT = int(os.environ.get("LIMIT", "60"))
OVER_LIMIT = (9, 24)
COMMANDS = {
    "why": ["why", "--json"],
    "replay": ["replay", "--json"],
    "check": ["replay", "--check", "--json"],
    "tune": ["tune", "--card", "24GiB", "--json"],
    "view": ["view", "-o", "OUT.html"],
    "what-if": ["view", "--what-if", "-o", "OUT.html"],
    "perfetto": ["export", "--to", "perfetto", "-o", "OUT"],
    "speedscope": ["export", "--to", "speedscope", "-o", "OUT"],
    "snapshot": ["export", "--to", "snapshot", "-o", "OUT"],
    "csv": ["export", "--to", "csv", "--table", "events", "-o", "OUT"],
    "parquet": ["export", "--to", "parquet", "--table", "allocations", "-o", "OUT"],
}
CASES = {**hostile.SNAPSHOTS, **hostile.ROOMS, **{f"dense {name}": function for name, function in hostile.DENSE.items()}}
# Not counted: the fixed part of memory and output, and growth of a time too short to measure.
FREE_MEMORY, FREE_OUTPUT, SHORT = 100e6, 10e6, 0.25


def options(parser, quick):
    dense = 400_000 if quick else 4_000_000
    commands = ["why"] if quick else list(COMMANDS)
    parser.add_argument("--only", nargs="*", choices=list(CASES), metavar="RECORDING", help=f"of {', '.join(CASES)}")
    parser.add_argument("--commands", nargs="*", choices=list(COMMANDS), default=commands)
    parser.add_argument("--n", type=int, default=5000, help="size of the time cases [default: 5000]")
    parser.add_argument("--dense", type=int, default=dense, help=f"number of events in the memory cases [default: {dense}]")
    parser.add_argument("--all", action="store_true", help="print every recording")


@dataclass
class Row:
    """One command on one recording."""

    recording: str
    command: str
    input: int
    seconds: list
    memory: int
    output: int
    status: int

    @property
    def growth(self):
        growth = self.seconds[-1] / self.seconds[0]
        return float("inf") if self.status in OVER_LIMIT else growth if self.seconds[-1] > SHORT else 1

    @property
    def note(self):
        times = ", ".join(f"{second:.2f}" for second in self.seconds)
        status = f", status {self.status >> 8 or self.status}" if self.status else ""
        return (f"{self.recording}: {times} s; {self.memory / 1e6:.0f} MB and {self.output / 1e6:.1f} MB of output for "
                f"{self.input / 1e6:.2f} MB{status}")


def run(command, path, directory):
    """CPU seconds, peak resident bytes, output bytes and the exit status."""
    out = os.path.join(directory, "out")
    arguments = [build.makeroom()] + [word.replace("OUT", out) for word in COMMANDS[command]] + [path]
    for name in (out, out + ".html"):
        if os.path.exists(name):
            os.remove(name)
    pid = os.fork()
    if pid == 0:
        resource.setrlimit(resource.RLIMIT_CPU, (LIMIT, LIMIT + 1))
        os.dup2(os.open(out + ".std", os.O_CREAT | os.O_TRUNC | os.O_WRONLY), 1)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        os.execv(arguments[0], arguments)
    _, status, usage = os.wait4(pid, 0)
    size = max((os.path.getsize(name) for name in (out, out + ".html", out + ".std") if os.path.exists(name)), default=0)
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024, size, status


@once
def measured(options):
    rows = []
    with tempfile.TemporaryDirectory() as directory:
        empty = os.path.join(directory, "empty")
        measure.in_own_process(hostile.growing, 1, empty)
        floor = {command: run(command, empty, directory)[0] for command in options.commands}
        for name in options.only or CASES:
            n = options.dense // 4 if name.startswith("dense") else options.n
            paths = [os.path.join(directory, f"case-{times}") for times in (1, 2, 4)]
            for times, path in zip((1, 2, 4), paths):
                measure.in_own_process(CASES[name], n * times, path)
            for command in options.commands:
                results = []
                for path in paths:
                    results.append(run(command, path, directory))
                    if results[-1][3] in OVER_LIMIT:
                        break
                size = os.path.getsize(paths[len(results) - 1])
                seconds = [max(result[0] - floor[command], 0.01) for result in results]
                rows.append(Row(name, command, size, seconds, *results[-1][1:]))
            print(f"growth: {name}", file=sys.stderr)
            for path in paths:
                os.remove(path)
    return rows


def worst(options, what, value, unit, goal):
    """The worst recording of each command, and every other one that misses the goal."""
    for command in options.commands:
        rows = sorted((row for row in measured(options) if row.command == command), key=value, reverse=True)
        for position, row in enumerate(rows):
            if position == 0 or options.all or not goal.is_met(value(row)):
                yield Figure(f"{command}: {what}", value(row), unit, goal=goal, note=row.note)


@figure
def time(options):
    yield from worst(options, "time at 4n ÷ time at n", lambda row: row.growth, "", at_most(8))


@figure
def memory(options):
    yield from worst(options, "memory beyond 100 MB", lambda row: max(row.memory - FREE_MEMORY, 0) / row.input, "× input", at_most(20))


@figure
def output(options):
    yield from worst(options, "output beyond 10 MB", lambda row: max(row.output - FREE_OUTPUT, 0) / row.input, "× input", at_most(50))
