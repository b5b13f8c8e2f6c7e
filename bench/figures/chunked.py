"""Streaming data through the device in pieces, compared with one plain copy of the same bytes from pinned memory.

Runs on a real GPU if there is one, else on the software GPU, at the speed of memcpy.
"""
import re

from harness import Figure, figure, gpu_example


def options(parser, quick):
    size = "256MiB" if quick else "4GiB"
    parser.add_argument("size", nargs="?", default=size, help=f"[default: {size}]")


@figure
def speed(options):
    title, _, *lines = gpu_example.output("chunked", options.size)
    speeds = {found[1].strip(): float(found[2]) for line in lines if (found := re.match(r"(.+?) +([\d.]+) +[\d.]+$", line))}
    (_, plain), *others = speeds.items()
    for name, speed in others:
        yield Figure(f"{name}", speed, "GB/s", "pinned copy", plain, note=title)
