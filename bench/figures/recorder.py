"""The overhead of `makeroom run` on the software GPU, in addition to the call itself; no hardware is needed.

Each figure is the difference between a program with and without the recorder, run alternately: the median of batches that
fit in the recorder's buffers, and the lowest of several runs. The stacks are about 25 native or 20 Python frames deep. The
peers are a preloaded hook that does nothing, which is the lower bound, and memray's cost for the same number of `malloc`
calls, if `$PYTHON -m memray` is installed.
"""
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace

from harness import Figure, at_most, build, figure, once, under

OWN = Path(__file__).resolve().parent.parent / "programs"
PROGRAMS = build.ROOT / "crates" / "makeroom-preload" / "tests" / "programs"
PYTHON = os.environ.get("PYTHON", sys.executable)
DRIVER_EVENTS, TENSOR_EVENTS = 31 * 500 * 2, 31 * 1000 * 2
MALLOCS = 200_000
# Small enough to be exceeded many times a second.
RING = 1_000_000
# Runs of the same program differ by this much.
NOISE = 1.05


def options(parser, quick):
    parser.add_argument("--runs", type=int, default=2 if quick else 5)
    parser.add_argument("--seconds", type=float, default=1 if quick else 4, help="how long each run with --ring takes")


def prepare(directory):
    """The software GPU and the programs; returns the path of the recorder."""
    for name, library in (("libcuda.so.1", "simgpu"), ("libcuda.so", "simgpu"), ("libnvidia-ml.so.1", "simnvml")):
        os.symlink(build.library(f"libmakeroom_{library}.so"), directory / name)
    shared, search = ["-shared", "-fPIC"], f"-L{directory}"
    # Not optimized: the compiler would make a loop of the deep stack.
    build.call(["cc", "-w", PROGRAMS / "cost.c", "-o", directory / "cost", search, "-lcuda"])
    build.call(["cc", "-w", "-O2", *shared, PROGRAMS / "noop_hook.c", "-o", directory / "noop_hook.so", "-ldl"])
    quiet = directory / "c10.cpp"
    quiet.write_text(re.sub(r'\n    printf\("profiler.*', "", (PROGRAMS / "c10.cpp").read_text()))
    build.call(["c++", "-w", "-O2", *shared, quiet, "-o", directory / "libc10.so", "-Wl,-soname,libc10.so"])
    build.call(["c++", "-w", "-O2", *shared, f"-I{PROGRAMS}", PROGRAMS / "tensor_cost.cpp", "-o", directory / "libtensors.so",
                search, "-lcuda", "-lc10"])
    build.call(["cc", "-O2", *shared, OWN / "mallocs.c", "-o", directory / "mallocs.so"])
    return build.library("libmakeroom_preload.so")


def least(directory, runs, command, preload=None, stacks=None):
    """The least nanoseconds of several runs, and the bytes of the recording."""
    best, size = float("inf"), 0
    for number in range(runs):
        recording = directory / f"{number}.room"
        recording.unlink(missing_ok=True)
        environment = dict(os.environ, LD_LIBRARY_PATH=str(directory), MAKEROOM_SIMGPU_DIR=str(directory), MAKEROOM_FILE=str(recording))
        if preload:
            environment["LD_PRELOAD"] = str(preload)
        if stacks:
            environment["MAKEROOM_STACKS"] = stacks
        best = min(best, float(build.call(command, env=environment).split()[-1]))
        size = recording.stat().st_size if recording.exists() else 0
    return best, size


@once
def measured(options):
    with tempfile.TemporaryDirectory() as path:
        directory, found = Path(path), SimpleNamespace()
        recorder = prepare(directory)
        run = lambda *arguments: least(directory, options.runs, *arguments)
        cost, tensors = [directory / "cost"], [PYTHON, OWN / "deep.py", directory / "libtensors.so"]
        alone, _ = run(cost)
        found.noop = (run(cost, directory / "noop_hook.so")[0] - alone) / 2
        plain, found.driver_bytes = run(cost, recorder, "none")
        # The measured pair is an allocation and its free; only the allocation has a stack.
        found.driver = (plain - alone) / 2
        found.native = run(cost, recorder, "native")[0] - alone - found.driver
        training = [PYTHON, OWN / "training.py", directory / "libtensors.so"]
        quiet = run(training)[0]
        found.cold = run(training, recorder, "full")[0] - quiet
        quiet = run(tensors)[0]
        tensor, found.tensor_bytes = run(tensors, recorder, "none")
        python, found.python_bytes = run(tensors, recorder, "full")
        found.tensor, found.python = tensor - quiet, python - quiet
        found.memray, found.memray_native = memray(directory, options.runs)
        return found


def memray(directory, runs):
    """What memray adds to a malloc and its free: with the Python stack, and with the native stack as well."""
    if subprocess.run([PYTHON, "-m", "memray", "--version"], capture_output=True).returncode != 0:
        print(f"memray is not installed: {PYTHON} -m pip install memray", file=sys.stderr)
        return None, None
    program = [OWN / "mallocs.py", directory / "mallocs.so", MALLOCS]
    last = lambda command: float(build.call(command).split()[-1])
    alone = min(last([PYTHON, *program]) for _ in range(runs))
    profile = [PYTHON, "-m", "memray", "run", "-q", "-f", "-o", directory / "memray.bin"]
    return tuple(min(last([*profile, *native, *program]) for _ in range(runs)) - alone for native in ([], ["--native"]))


@figure
def driver_call(options):
    yield Figure("a driver call, without a stack", measured(options).driver, "ns", "a hook that does nothing",
                 measured(options).noop, under(1000))


@figure
def driver_call_native(options):
    yield Figure("a driver call, with a native stack", measured(options).native, "ns", "memray --native",
                 measured(options).memray_native, under(20_000))


@figure
def tensor(options):
    yield Figure("a tensor, without a stack", measured(options).tensor, "ns", goal=under(300))


@figure
def tensor_python(options):
    yield Figure("a tensor, with its Python stack", measured(options).python, "ns", "memray", measured(options).memray, under(1500))


@figure
def tensor_cold(options):
    yield Figure("the same among other work, with cold caches", measured(options).cold, "ns", goal=under(1500))


@figure
def file_size(options):
    found = measured(options)
    yield Figure("the file, per driver call", found.driver_bytes / DRIVER_EVENTS, "bytes", goal=under(24))
    yield Figure("the file, per tensor", found.tensor_bytes / TENSOR_EVENTS, "bytes", goal=under(24))
    yield Figure("the file, per tensor with its Python stack", found.python_bytes / TENSOR_EVENTS, "bytes", goal=under(24))


@figure
def ring(options):
    """CPU time of a program that does nothing but allocate and free, with the recorder's own thread."""
    with tempfile.TemporaryDirectory() as path:
        environment, program = build.software_gpu(path), os.path.join(path, "program")
        build.call([os.environ.get("CC", "cc"), "-w", "-o", program, OWN / "soak.c", os.path.join(path, "libcuda.so.1")])
        recording = Path(path, "run.room")
        recorded = dict(environment, LD_PRELOAD=str(build.library("libmakeroom_preload.so")), MAKEROOM_FILE=str(recording))

        def nanoseconds(**more):
            recording.unlink(missing_ok=True)
            before = os.times()
            events = int(build.call([program, options.seconds], env=dict(recorded, **more)).split()[0])
            after = os.times()
            spent = after.children_user + after.children_system - before.children_user - before.children_system
            return 1e9 * spent / events

        pairs = [(nanoseconds(MAKEROOM_RING=str(RING)), nanoseconds()) for _ in range(options.runs)]
    bounded, full = (min(times) for times in zip(*pairs))
    yield Figure("CPU time of an event, with --ring", bounded, "ns", "without", full)
    yield Figure("CPU time with --ring ÷ without", bounded / full, "", goal=at_most(NOISE))
