"""A simulated machine with many GPUs and processes that hold them, other tools (peers), and what a running process costs.

The devices are the software NVML's; the holders are processes that have the driver's files open. Peers are installed with
pip into a separate directory and see the same devices; without a network, they are skipped.
"""
import contextlib
import os
import subprocess
import sys
import tempfile
import time
import venv

from harness import build

PEERS = os.path.join(build.ROOT, "target", "bench-peers")
TICKS = os.sysconf("SC_CLK_TCK")


def options(parser, quick, seconds=None):
    """The options that benchmarks of a machine share."""
    parser.add_argument("--devices", type=int, default=8, help="[default: 8]")
    parser.add_argument("--holders", type=int, default=200, help="processes that hold GPU memory [default: 200]")
    if seconds:
        length = 10 if quick else seconds
        parser.add_argument("--seconds", type=int, default=length, help=f"how long each program runs [default: {length}]")


@contextlib.contextmanager
def machine(devices, holders):
    """A simulated machine: the environment in which programs see it."""
    with tempfile.TemporaryDirectory() as folder:
        os.symlink(build.library("libmakeroom_simnvml.so"), os.path.join(folder, "libnvidia-ml.so.1"))
        files = os.path.join(folder, "dev")
        os.mkdir(files)
        names = ["nvidiactl", "nvidia-uvm"] + [f"nvidia{index}" for index in range(devices)]
        for name in names:
            open(os.path.join(files, name), "w").close()
        opened = [os.open(os.path.join(files, name), os.O_RDONLY) for name in names]
        processes = [subprocess.Popen(["sleep", "3600"], pass_fds=opened) for _ in range(holders)]
        holds = [f"hold={number % devices}:{process.pid}:512MiB" for number, process in enumerate(processes)]
        try:
            yield dict(os.environ, LD_LIBRARY_PATH=folder, MAKEROOM_SIMGPU=f"devices={devices},memory=80GiB",
                       MAKEROOM_SIMGPU_DIR=folder, MAKEROOM_SIMNVML=",".join(holds))
        finally:
            for process in processes:
                process.kill()
                process.wait()
            for number in opened:
                os.close(number)


def peer(package, program):
    """The path of a program from pip; None if it cannot be installed."""
    path = os.path.join(PEERS, "bin", program)
    if not os.path.exists(path):
        if not os.path.exists(os.path.join(PEERS, "bin", "python")):
            venv.create(PEERS, with_pip=True)
        command = [os.path.join(PEERS, "bin", "python"), "-m", "pip", "install", "--quiet", package]
        if subprocess.run(command, stderr=subprocess.DEVNULL).returncode != 0:
            print(f"{package} cannot be installed: no comparison with it", file=sys.stderr)
            return None
    return path


def family(pid):
    """A process and its children."""
    children = []
    for task in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{task}/children") as file:
            children += [int(child) for child in file.read().split()]
    return [pid] + [one for child in children for one in family(child)]


def seconds(pid):
    """Processor time of one process."""
    with open(f"/proc/{pid}/stat") as file:
        fields = file.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def resident(pid):
    """Resident memory of one process, with all that it shares."""
    with open(f"/proc/{pid}/smaps_rollup") as file:
        lines = dict(line.split(":", 1) for line in file if ":" in line)
    return int(lines["Rss"].split()[0]) * 1024


def measure(pid, length, each_second=lambda: None):
    """The share of a core over `length` seconds and the most resident memory, of a process and its children together."""
    each_second()
    members = family(pid)
    before, start, most = sum(map(seconds, members)), time.monotonic(), 0
    while time.monotonic() - start < length:
        time.sleep(1)
        each_second()
        most = max(most, sum(map(resident, members)))
    return (sum(map(seconds, members)) - before) / (time.monotonic() - start), most
