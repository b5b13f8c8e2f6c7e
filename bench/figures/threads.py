"""How the pool scales: allocation/free pairs per second with 64 threads, compared with one thread.

Runs on a real GPU if there is one, else on the software GPU; only the pool itself is measured. The share is the rate of 64
threads divided by that of one thread and by the number of cores.
"""
import re

from harness import Figure, at_least, figure, gpu_example, once

ROW = re.compile(r"^(.{18}) +(\d+) +(\d+) +(\d+) +(\d+) +(\d+) +([\d.]+) +([\d.]+)$")


@once
def measured(options):
    """For each pattern: pairs per second and CPU ns per pair, of one thread and of 64; driver calls; reserved; share."""
    rows = [found.groups() for line in gpu_example.output("threads") if (found := ROW.match(line))]
    return [(name.strip(), *map(float, numbers)) for name, *numbers in rows]


@figure
def share(options):
    for name, *_, share in measured(options):
        yield Figure(f"share of perfect scaling, {name}", share, "", goal=at_least(0.5))


@figure
def rate(options):
    for name, one, each, many, each_of_many, *_ in measured(options):
        yield Figure(f"pairs of 64 threads, {name}", many / 1e6, "M/s", "one thread", one / 1e6,
                     note=f"CPU time per pair {each_of_many:.0f} ns, one thread {each:.0f} ns")


@figure
def reserved(options):
    for name, *_, calls, reserved, _ in measured(options):
        yield Figure(f"reserved ÷ live, {name}", reserved, "", note=f"{calls:.0f} driver calls")
