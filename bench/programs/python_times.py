"""Times of the Python package in milliseconds, as JSON: python_times.py RECORDING RUNS. Runs in the Python that has the wheel."""
import json
import subprocess
import sys
import time

STEP = """
import makeroom, time
with makeroom.watch() as w:
    start = time.perf_counter()
    for _ in range(1000):
        w.step()
    print((time.perf_counter() - start))
"""


def imported(module):
    script = f"import time; start = time.perf_counter(); import {module}; print(time.perf_counter() - start)"
    done = subprocess.run([sys.executable, "-c", script], stdout=subprocess.PIPE, check=True, text=True, cwd="/")
    return float(done.stdout) * 1000


def timed(work):
    start = time.perf_counter()
    work()
    return (time.perf_counter() - start) * 1000


def watch_step():
    """A step of `watch` in a recorded process: the time of a thousand in seconds is that of one in milliseconds."""
    from makeroom._impl._command import find

    command = [find(), "run", "--no-status", "--", sys.executable, "-c", STEP]
    return float(subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True, text=True).stdout)


def main(path, runs):
    times = {f"import {module}": [imported(module) for _ in range(runs)] for module in ("makeroom", "makeroom._impl._native", "json")}
    import makeroom

    few = max(runs // 6, 1)
    times["open"] = [timed(lambda: makeroom.open(path)) for _ in range(few)]
    traces = [makeroom.open(path) for _ in range(few)]
    times["events"] = [timed(lambda: trace.events) for trace in traces]
    times["allocations"] = [timed(lambda: trace.allocations) for trace in traces]
    times["watch"] = [watch_step() for _ in range(few)]
    json.dump(times, sys.stdout)


main(sys.argv[1], int(sys.argv[2]))
