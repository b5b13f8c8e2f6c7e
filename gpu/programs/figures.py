"""Ground truth that a program writes down beside its output: what PyTorch and NVML say, into $GPU_CHECK_FIGURES.

Figures never go to stdout: that has to be the same with and without makeroom. Without the variable nothing happens."""

import contextlib
import ctypes
import json
import os
import threading
import time

_moments = {}


class _Memory(ctypes.Structure):
    _fields_ = [(name, ctypes.c_ulonglong) for name in ("total", "free", "used")]


class _Process(ctypes.Structure):
    _fields_ = [
        ("pid", ctypes.c_uint),
        ("used", ctypes.c_ulonglong),
        ("gpu_instance", ctypes.c_uint),
        ("compute_instance", ctypes.c_uint),
    ]


_nvml = None


def nvml():
    """What NVML says of the first device: used and free bytes, and each listed process."""
    global _nvml
    try:
        library = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return None
    if _nvml is None:
        _nvml = library.nvmlInit_v2()
    device = ctypes.c_void_p()
    memory = _Memory()
    processes = (_Process * 64)()
    count = ctypes.c_uint(64)
    if _nvml or library.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(device)):
        return None
    library.nvmlDeviceGetMemoryInfo(device, ctypes.byref(memory))
    library.nvmlDeviceGetComputeRunningProcesses_v3(device, ctypes.byref(count), processes)
    return {
        "total": memory.total,
        "free": memory.free,
        "used": memory.used,
        "own_pid": os.getpid(),
        "processes": {str(process.pid): process.used for process in processes[: count.value]},
    }


@contextlib.contextmanager
def peak(moment, every=0.01):
    """Samples NVML while a block runs, and notes the most that all listed processes together held, and the device's own figure.
    The card is ours alone, so children count and nobody else does."""
    most = {"processes": 0, "used": 0, "samples": 0, "pages": []}
    is_over = threading.Event()

    def sample():
        # Reading the pages' figures takes their lock and their cache lines away from the program.
        now, known = time.monotonic(), most["pages"]
        inside = pages() if is_over.is_set() or not known or now >= known[-1][0] + 0.2 else None
        if inside:
            most["pages"].append([time.monotonic(), inside["inside_ns"], inside["reports_ns"], inside["reports"],
                                  inside["created"], inside["moved"], inside["released"]])
        seen = nvml()
        if seen is None:
            return
        most["samples"] += 1
        most["used"] = max(most["used"], seen["used"])
        # A driver that does not tell what a process holds says all ones.
        known = [used for used in seen["processes"].values() if used < 1 << 60]
        most["processes"] = max(most["processes"], sum(known))

    def watch():
        while not is_over.wait(every):
            sample()

    before = nvml()
    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()
        sample()
        note(moment, before=before and before["used"], **most)


PAGES = ("peak_live", "peak_physical", "physical", "on_host", "mapped", "moved", "waits", "inside_ns", "reports_ns", "reports",
         "created", "released")


def pages():
    """The figures of PyTorch's paged memory on the first device; None if nothing is paged."""
    found = (ctypes.c_uint64 * len(PAGES))()
    try:
        answer = ctypes.CDLL(None).makeroom_pages_figures(0, found)
    except AttributeError:
        return None
    return dict(zip(PAGES, found)) if answer == 0 else None


def torch_counts():
    """PyTorch's own account of the first device, as far as the allocator in use keeps one."""
    import torch

    statistics = torch.cuda.memory_stats()
    free, total = torch.cuda.mem_get_info()
    wanted = ("allocation.all", "allocated_bytes.all", "reserved_bytes.all", "requested_bytes.all", "segment.all")
    figures = {
        name: value
        for name, value in statistics.items()
        if name.rpartition(".")[0] in wanted or name in ("num_alloc_retries", "num_ooms")
    }
    return {"free": free, "total": total, **figures}


def note(moment, **figures):
    """Writes figures down under the name of a moment; the file is whole after every call."""
    path = os.environ.get("GPU_CHECK_FIGURES")
    if not path:
        return
    _moments[moment] = figures
    with open(path, "w") as file:
        json.dump(_moments, file, indent=1)


# What each function says of the time up to now; both are there only under a recorder that measures.
COSTS = {"makeroom_recorder_cost": ("inside_ns", "calls", "events"), "makeroom_pool_cost": ("inside_ns", "calls")}


def cost(function):
    """What a function of the recorder's says; None without one that measures."""
    figures = (ctypes.c_uint64 * len(COSTS[function]))()
    try:
        answer = getattr(ctypes.CDLL(None), function)(figures)
    except AttributeError:
        return None
    return list(figures) if answer == 0 else None


def difference(function, before):
    """What was added since."""
    after = cost(function)
    return before and after and dict(zip(COSTS[function], (b - a for a, b in zip(before, after))))
