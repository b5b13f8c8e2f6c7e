"""What is measured: the release build, its libraries, and programs that cargo builds for a benchmark."""
import functools
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from harness import Skip

ROOT = Path(__file__).resolve().parent.parent.parent
RELEASE = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "release"
TRACES = ROOT / "traces"
UNITS = {"ps": 1e-3, "ns": 1, "µs": 1e3, "ms": 1e6, "s": 1e9}
SCALES = {"": 1, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}


def makeroom():
    """The makeroom to measure: $MAKEROOM, or the release build."""
    path = Path(os.environ.get("MAKEROOM", RELEASE / "makeroom")).resolve()
    if not path.exists():
        raise Skip(f"no {path}: cargo build --release")
    return str(path)


def library(name):
    """A library that cargo built: next to makeroom, or with the dependencies."""
    built = Path(makeroom()).parent
    places = [place for place in (built / name, built / "deps" / name) if place.exists()]
    if not places:
        raise Skip(f"no {name} in {built}: cargo build --release -p makeroom-simgpu -p makeroom-simnvml")
    return max(places, key=lambda place: place.stat().st_mtime)


def call(command, **more):
    """The output of a command that must succeed."""
    result = subprocess.run([str(word) for word in command], capture_output=True, text=True, **more)
    if result.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))} failed\n\n{result.stdout}{result.stderr}")
    return result.stdout


def cargo(*arguments, **more):
    if not shutil.which("cargo"):
        raise Skip("needs cargo")
    return call(["cargo", *arguments], cwd=ROOT, **more)


def example(package, name):
    """The path of an example, built."""
    cargo("build", "--release", "--quiet", "--package", package, "--example", name)
    return RELEASE / "examples" / name


@functools.cache
def bench_output(package, name, arguments, environment):
    command = ["bench", "--quiet", "--package", package, "--bench", name, "--", *arguments]
    return cargo(*command, env={**os.environ, **dict(environment)})


def cargo_bench_output(package, name, *arguments, environment=None):
    """What a micro-benchmark (divan) prints. It runs once for the same arguments."""
    return bench_output(package, name, arguments, tuple((environment or {}).items()))


def rows(text):
    """The rows of divan's tree, by path in it: the fastest time, in the first column, and the rates of items below it."""
    found, path = {}, []
    for line in text.splitlines():
        node = re.match(r"^((?:[│ ]  )*)[├╰]─ (.*)$", line)
        if node:
            words = re.match(r"(.*?)\s+([\d.]+) (ps|ns|µs|ms|s)\s*$", node[2].split("│")[0])
            label = words[1].strip() if words else node[2].split("│")[0].strip()
            path = [*path[:len(node[1]) // 3], label]
            if words:
                found[" / ".join(path)] = (float(words[2]) * UNITS[words[3]], [])
        elif path and (rate := re.search(r"([\d.]+) ([KMGT]?)item/s", line)):
            found[" / ".join(path)][1].append(float(rate[1]) * SCALES[rate[2]])
    return found


def cargo_bench(package, name, *arguments, environment=None):
    """The fastest time of each micro-benchmark in nanoseconds."""
    found = rows(cargo_bench_output(package, name, *arguments, environment=environment))
    if not found:
        sys.exit(f"cargo bench --package {package} --bench {name} printed no figures")
    return {path: time for path, (time, _) in found.items()}


def cargo_bench_rates(package, name, *arguments, environment=None):
    """The highest rate of each micro-benchmark that counts items, in items per second."""
    found = rows(cargo_bench_output(package, name, *arguments, environment=environment))
    rates = [(path.removeprefix(f"{name} / "), rates[0]) for path, (_, rates) in found.items() if rates]
    if not rates:
        sys.exit(f"cargo bench --package {package} --bench {name} printed no rates")
    return rates


def software_gpu(directory):
    """Links the software GPU into a directory; the environment in which programs use it."""
    for name, source in (("libcuda.so.1", "libmakeroom_simgpu.so"), ("libnvidia-ml.so.1", "libmakeroom_simnvml.so")):
        os.symlink(library(source), os.path.join(directory, name))
    return dict(os.environ, LD_LIBRARY_PATH=str(directory), MAKEROOM_SIMGPU_DIR=str(directory))


def has_driver():
    """Whether this machine has a real CUDA driver."""
    found = subprocess.run(["ldconfig", "-p"], capture_output=True, text=True).stdout if shutil.which("ldconfig") else ""
    return "libcuda.so.1" in found
