"""`makeroom why` on a large training log, compared with `grep` and with Python reading the same file; and on one line.

The generated log has progress bars, loss lines, eight interleaved ranks, one failure in the middle and one at the end. Each
program runs several times, from the file and from a pipe that `cat` fills; figures are the lowest CPU time, which depends
little on other programs on the machine, the shortest time, and the largest resident memory.
"""
import os
import sys
import tempfile

from harness import Figure, at_most, build, figure, measure, once
from inputs import logs

# A short text takes the time of starting: patterns are compiled only for texts that may match them.
LINE = "RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; 8.00 GiB total capacity; 7.00 GiB already " \
       "allocated; 0 bytes free; 7.50 GiB reserved in total by PyTorch)\n"
COUNT = "import sys; print(sum('out of memory' in line for line in open(sys.argv[1] if len(sys.argv) > 1 else 0," \
        " errors='replace')))"


def options(parser, quick):
    size = 20 if quick else 200
    parser.add_argument("logs", nargs="*", help="[default: a generated log]")
    parser.add_argument("--megabytes", type=float, default=size, help=f"size of the generated log [default: {size}]")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--keep", metavar="FILE", help="also write the generated log to FILE")


@once
def measured(options):
    """For each log and way to read it: a name, the size of the log, and the cost of each program."""
    programs = {
        "makeroom": [build.makeroom(), "why", "--json"],
        "grep -c": ["grep", "-c", "out of memory"],
        "grep -ci": ["grep", "-ci", "out of memory"],
        "Python": [sys.executable, "-c", COUNT],
    }
    found = []
    with tempfile.TemporaryDirectory() as directory:
        paths = list(options.logs)
        if not paths:
            paths = [options.keep or os.path.join(directory, "train.log")]
            measure.in_own_process(logs.write_log, paths[0], options.megabytes)
        for path in paths:
            size = os.path.getsize(path) / 1e6
            ways = {"file": lambda command: measure.run([*command, path]),
                    "pipe": lambda command: measure.run_from_pipe(command, path)}
            for way, run in ways.items():
                costs = {name: measure.best(run(command) for _ in range(options.runs)) for name, command in programs.items()}
                found.append((f"{size:.0f} MB from a {way}", size, costs))
    return found


def peers(costs):
    return [name for name in costs if name != "makeroom"]


@figure
def processor_time(options):
    for name, size, costs in measured(options):
        for peer in peers(costs):
            ours = costs["makeroom"]
            yield Figure(f"CPU time, {name}", ours.processor, "s", peer, costs[peer].processor,
                         note=f"{ours.seconds:.2f} s of wall-clock time, {size / ours.seconds:.0f} MB/s")


@figure
def memory(options):
    for name, _, costs in measured(options):
        for peer in peers(costs):
            yield Figure(f"peak memory, {name}", costs["makeroom"].memory / 1e6, "MB", peer, costs[peer].memory / 1e6)


@figure
def one_line(options):
    with tempfile.TemporaryDirectory() as directory:
        path = os.path.join(directory, "error.txt")
        with open(path, "w") as file:
            file.write(LINE)
        cost = measure.best(measure.run([build.makeroom(), "why", "--json", path]) for _ in range(4 * options.runs))
    yield Figure("CPU time, one line", cost.processor * 1e3, "ms", goal=at_most(15))
