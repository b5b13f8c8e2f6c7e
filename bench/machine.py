"""Shared by `bench/ps`, `bench/serve` and `bench/top`: a simulated machine, its holders, other tools, and measurement.

The devices are the software NVML's; the holders are processes that have the driver's files open. Other
tools (peers) are installed with pip into a separate directory and see the same devices; without a network, they are skipped.
"""
import contextlib, os, subprocess, sys, tempfile, time, venv

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
RELEASE = os.path.join(ROOT, "target", "release")
MAKEROOM = os.path.join(RELEASE, "makeroom")
PEERS = os.path.join(ROOT, "target", "bench-peers")
TICKS = os.sysconf("SC_CLK_TCK")


def library(name):
    """Find a library: cargo puts it next to the program or one directory below."""
    paths = [os.path.join(folder, name) for folder in (RELEASE, os.path.join(RELEASE, "deps"))]
    paths = [path for path in paths if os.path.exists(path)]
    if not paths or not os.path.exists(MAKEROOM):
        sys.exit("run `cargo build --release -p makeroom -p makeroom-simnvml` first")
    return max(paths, key=os.path.getmtime)


@contextlib.contextmanager
def machine(devices, holders):
    """A simulated machine: the environment in which programs see it."""
    with tempfile.TemporaryDirectory() as folder:
        os.symlink(library("libmakeroom_simnvml.so"), os.path.join(folder, "libnvidia-ml.so.1"))
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


def peer(package, program):
    """The path of a program from pip; `None` where it cannot be had."""
    path = os.path.join(PEERS, "bin", program)
    if not os.path.exists(path):
        if not os.path.exists(os.path.join(PEERS, "bin", "python")):
            venv.create(PEERS, with_pip=True)
        command = [os.path.join(PEERS, "bin", "python"), "-m", "pip", "install", "--quiet", package]
        if subprocess.run(command).returncode != 0:
            print(f"{package} cannot be installed; skipped")
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


def judge(what, found, most, unit):
    """One line with the goal beside the figure; whether it is met."""
    is_met = found < most
    print(f"{what}: {found:.2f} {unit}, the goal is under {most:g} {unit}: {'met' if is_met else 'NOT MET'}")
    return is_met
