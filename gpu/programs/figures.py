"""Ground truth that a program writes down beside its output: what PyTorch and NVML say, into $GPU_CHECK_FIGURES.

Figures never go to stdout: that has to be the same with and without makeroom. Without the variable nothing happens."""

import ctypes
import json
import os

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


def nvml():
    """What NVML says of the first device: used and free bytes, and each listed process."""
    try:
        library = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return None
    device = ctypes.c_void_p()
    memory = _Memory()
    processes = (_Process * 64)()
    count = ctypes.c_uint(64)
    if library.nvmlInit_v2() or library.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(device)):
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
