"""The cost of the `.room` format: nanoseconds per event for writing and reading, and bytes per event in the file."""
import re

from harness import Figure, build, figure, once


@once
def measured(options):
    """Events per second by operation and recording, and the lines about size."""
    return build.cargo_bench_rates("makeroom-trace", "room"), build.cargo_bench_output("makeroom-trace", "room")


@figure
def time(options):
    for name, rate in measured(options)[0]:
        operation, _, recording = name.partition(" / ")
        yield Figure(f"{operation.replace('_', ' ')}, {recording}", 1e9 / rate, "ns/event")


@figure
def size(options):
    for line in measured(options)[1].splitlines():
        if found := re.match(r"(\w+): \d+ events, ([\d.]+) bytes per event", line):
            yield Figure(f"size, {found[1]}", float(found[2]), "bytes/event")
