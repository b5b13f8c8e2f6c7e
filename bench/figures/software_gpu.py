"""The cost of calls to the software GPU, through `dlsym` as programs call it; a pair is an allocation and its free."""
from harness import Figure, build, figure


@figure
def call(options):
    for name, nanoseconds in build.cargo_bench("makeroom-simgpu", "driver").items():
        operation, _, argument = name.partition(" / ")
        size = f", {int(argument) >> 10} KiB" if argument.isdigit() else ""
        yield Figure(operation.replace("_", " ") + size, nanoseconds, "ns")
