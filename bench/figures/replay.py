"""The speed of `replay`: recorded events per second on one core, for each recording and allocator.

Reading the file is not timed. The goal is 5 million events per second for the model of PyTorch's allocator on
traces/gpt2_varlen.pickle.gz.
"""
import os

from harness import Figure, at_least, build, figure


def options(parser, quick):
    parser.add_argument("snapshots", nargs="*", help="[default: the recordings of traces/]")
    parser.set_defaults(only=["gpt2_varlen"] if quick else [])


@figure
def speed(options):
    recordings = os.pathsep.join(os.path.abspath(path) for path in options.snapshots)
    environment = {"RECORDINGS": recordings} if recordings else {}
    for name, rate in build.cargo_bench_rates("makeroom-sim", "replay", *options.only, environment=environment):
        goal = at_least(5) if name == "gpt2_varlen under pytorch" else None
        yield Figure(name, rate / 1e6, "M events/s", goal=goal)
