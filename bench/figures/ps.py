"""`makeroom ps`, compared with gpustat, nvitop and the system's `ps -e`, with 8 devices and 200 processes that hold memory.

Programs take turns, so that other work on the machine slows all of them alike. Figures are medians.
"""
import statistics

from harness import Figure, build, figure, machine, measure, once, under


def options(parser, quick):
    machine.options(parser, quick)
    parser.add_argument("--runs", type=int, default=5 if quick else 20)


@once
def measured(options):
    """The costs of each program."""
    commands = {"makeroom": [build.makeroom(), "ps", "--json"],
                "ps -e": ["ps", "-e", "-o", "pid,ppid,stat,user,lstart,args"]}
    for package, argument in (("gpustat", "--json"), ("nvitop", "-1")):
        if path := machine.peer(package, package):
            commands[f"{package} {argument}"] = [path, argument]
    results = {name: [] for name in commands}
    with machine.machine(options.devices, options.holders) as environment:
        for _ in range(options.runs):
            for name, command in commands.items():
                results[name].append(measure.run(command, environment))
    return results


@figure
def time(options):
    medians = {name: 1000 * statistics.median(cost.seconds for cost in costs) for name, costs in measured(options).items()}
    longest = 1000 * max(cost.seconds for cost in measured(options)["makeroom"])
    ours = medians.pop("makeroom")
    yield Figure("median time", ours, "ms", goal=under(100), note=f"longest {longest:.0f} ms")
    for peer, theirs in medians.items():
        yield Figure("median time", ours, "ms", peer, theirs)


@figure
def processor_time(options):
    medians = {name: 1000 * statistics.median(cost.processor for cost in costs) for name, costs in measured(options).items()}
    ours = medians.pop("makeroom")
    for peer, theirs in medians.items():
        yield Figure("median CPU time", ours, "ms", peer, theirs)
