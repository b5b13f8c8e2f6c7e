"""Time and memory of other programs."""
import multiprocessing
import os
import subprocess
import sys
from dataclasses import dataclass

SPAWN = os.path.join(os.path.dirname(os.path.abspath(__file__)), "spawn.py")


@dataclass
class Cost:
    """Wall-clock seconds, CPU seconds and peak resident bytes."""

    seconds: float
    processor: float
    memory: int


def run(command, environment=None, stdin=subprocess.DEVNULL):
    """The cost of one run of a command, whose output is thrown away."""
    command = [str(word) for word in command]
    helper = [sys.executable, "-I", "-S", SPAWN, *command]
    line = subprocess.run(helper, env=environment, stdin=stdin, stdout=subprocess.PIPE, text=True, check=True).stdout
    seconds, processor, memory, status = line.split()
    if status != "0":
        sys.exit(f"{' '.join(command)} exits with {status}")
    return Cost(float(seconds), float(processor), int(memory))


def run_from_pipe(command, source):
    """The same with a file that `cat` pipes in."""
    feeder = subprocess.Popen(["cat", source], stdout=subprocess.PIPE)
    try:
        return run(command, stdin=feeder.stdout)
    finally:
        feeder.stdout.close()
        feeder.wait()


def best(costs):
    """The shortest times, which depend least on other programs, and the largest memory."""
    costs = list(costs)
    return Cost(min(cost.seconds for cost in costs), min(cost.processor for cost in costs), max(cost.memory for cost in costs))


def in_own_process(function, *arguments):
    """A child process starts with its parent's peak resident memory, so this process must stay small."""
    process = multiprocessing.get_context("fork").Process(target=function, args=arguments)
    process.start()
    process.join()
    if process.exitcode != 0:
        sys.exit(f"{function.__name__} failed")


def read_through(path):
    """Brings a file into the page cache."""
    with open(path, "rb") as file:
        while file.read(1 << 24):
            pass


def percentile(values, share):
    values = sorted(values)
    return values[min(len(values) - 1, int(share * len(values)))]


def private(pid):
    """Memory of one process that no other process shares."""
    with open(f"/proc/{pid}/smaps_rollup") as file:
        lines = dict(line.split(":", 1) for line in file if ":" in line)
    return sum(int(lines[name].split()[0]) for name in ("Private_Clean", "Private_Dirty")) * 1024
