"""The cost of recording, from the files that runs left behind.

`inside` takes one run with `MAKEROOM_MEASURE=on` (NAME.run.json, NAME.run.err and NAME.replay.json) and returns percent of
the time of the timed steps, nanoseconds per call, calls and seconds. A figure that cannot be right raises ValueError with
the reason. As a program, `cost.py NAME` prints these four numbers, or the reason on stderr with exit status 1: a test of the
`makeroom` crate runs it on the software GPU.

`pairs` compares runs with and without recording."""

import json
import re
import statistics
import sys

# Each measured call has two clock reads inside of its own time.
LEAST_NS_PER_CALL = 20
MOST_PERCENT = 2


def read(path):
    with open(path) as file:
        return json.load(file)


def inside(run):
    """Percent, nanoseconds per call, calls, seconds of the timed steps; raises ValueError with what is wrong."""
    end = read(run + ".run.json")["end"]
    cost = end.get("recorder")
    if not cost:
        raise ValueError("the recorder measured nothing: it was off, or MAKEROOM_MEASURE did not reach the program")
    with open(run + ".run.err") as file:
        note = re.search(r"time inside the recorder: \d+ ns in (\d+) calls.*?; (\d+) events", " ".join(file.read().split()))
    if not note:
        raise ValueError("`makeroom run` did not say what recording cost")
    counted = int(note[2])
    trace = read(run + ".replay.json")["trace"]
    recorded = sum(calls["done"] + calls["failed"] for calls in trace["calls"].values())
    if recorded != counted:
        raise ValueError(f"{counted} events were measured and {recorded} are in the recording: not the same run, or some were lost")
    if cost["calls"] > int(note[1]) or cost["events"] > counted:
        raise ValueError(f"the timed steps have more calls ({cost['calls']}) than the whole run ({note[1]})")
    # PyTorch frees what it allocates, so there are about two events to an allocation; one is certain.
    if cost["events"] < end["allocations"] or not end["allocations"]:
        raise ValueError(f"PyTorch counts {end['allocations']} allocations, the recorder saw {cost['events']} events")
    each = cost["inside_ns"] / cost["calls"]
    if each < LEAST_NS_PER_CALL:
        raise ValueError(f"{each:.0f} ns per call are less than two clock reads take")
    seconds = sum(end["seconds"])
    return cost["inside_ns"] / 1e9 / seconds * 100, each, cost["calls"], seconds


def spread(values):
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return f"{middle:+.1f} % (quartiles {low:+.1f}, {high:+.1f})"


def pairs(runs):
    """Percent of step time that recording and PyTorch's own history add, and the plain step time in ms, for each pair of
    runs: the figures of the plain run, those of the recorded run, and the replay of its recording."""
    recorded, history, plain = [], [], []
    for number, (alone, beside, replay) in enumerate(runs, 1):
        calls = replay["trace"]["calls"]
        if calls.get("tensor_alloc", {}).get("done", 0) < beside["allocations"]:
            raise ValueError(f"pair {number}: PyTorch counts {beside['allocations']} allocations, the recording has fewer")
        middle = statistics.median(alone["seconds"])
        plain.append(middle * 1000)
        recorded.append((statistics.median(beside["seconds"]) / middle - 1) * 100)
        history.append((statistics.median(alone["history_seconds"]) / middle - 1) * 100)
    return recorded, history, plain


def lower_quartile(values):
    return statistics.quantiles(values, n=4, method="inclusive")[0]


def main(run):
    try:
        percent, each, calls, seconds = inside(run)
        print(f"{percent:.2f} {each:.0f} {calls} {seconds:.6f}")
    except (ValueError, OSError, KeyError, TypeError) as error:
        sys.exit(f"no measurement: {error}")


if __name__ == "__main__":
    main(sys.argv[1])
