"""Turn on expandable segments in PyTorch's own allocator, as `use_pool` and `makeroom run --pool` do.

Segments that grow page by page fragment less than segments of fixed sizes, and all PyTorch features work: memory
history, snapshots, `MemPool`, CUDA graphs, `torch.compile`, sharing tensors between processes, `torch.OutOfMemoryError`.
The savings come from PyTorch; this module only turns the setting on and reads PyTorch's figures.
"""

from __future__ import annotations

import ctypes
import os
import warnings
from typing import TYPE_CHECKING, Any

from ._library import Stats

if TYPE_CHECKING:
    from ._pool import Pool

EXPANDABLE = "expandable_segments:True"
# In the order in which PyTorch 2.10 and later read them: the first that is set applies. Older versions read only the
# first.
VARIABLES = ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF", "PYTORCH_ALLOC_CONF")
FIRST_WITH_ALL_NAMES = (2, 10)
# The first version with expandable segments, and the first that can share their tensors with other processes.
FIRST_EXPANDABLE = (2, 1)
FIRST_SHARED = (2, 5)
TURN_ON = f"If your program shares no tensors, set {VARIABLES[0]}={EXPANDABLE}"


def is_possible(torch: Any) -> bool:
    """Return whether PyTorch has expandable segments and accepts settings at run time (2.1 and later, with CUDA)."""
    memory: Any = getattr(getattr(torch, "cuda", None), "memory", None)
    version = _version(torch)
    if getattr(getattr(torch, "version", None), "cuda", None) is None:
        return False
    return hasattr(memory, "_set_allocator_settings") and (version is None or version >= FIRST_EXPANDABLE)


def install(torch: Any, pool: Pool) -> bool:
    """Turn expandable segments on and return `True`, unless the user chose otherwise or they do not work here.

    Memory that PyTorch has already reserved stays in ordinary segments.
    """
    version = _version(torch)
    read = VARIABLES if version is None or version >= FIRST_WITH_ALL_NAMES else VARIABLES[:1]
    name, theirs = next(((name, os.environ[name]) for name in read if name in os.environ), (VARIABLES[0], ""))
    reason = declined(name, theirs)
    if reason is None and chosen(theirs, "expandable_segments") is None:
        # A variable that this version does not read still shows what the user wants.
        others = (declined(name, os.environ.get(name, "")) for name in VARIABLES)
        reason = next((reason for reason in others if reason), None) or obstacle(version)
    if reason is None:
        torch.cuda.memory._set_allocator_settings(merged(theirs))
    else:
        warnings.warn(f"PyTorch runs without expandable segments: {reason}", stacklevel=4)
    if pool.history:
        torch.cuda.memory._record_memory_history(max_entries=pool.history)
    return reason is None


def declined(name: str, settings: str) -> str | None:
    """Return the setting in a variable by which the user chose not to use expandable segments, or `None`."""
    for setting in (chosen(settings, "backend"), chosen(settings, "expandable_segments")):
        if setting not in (None, "backend:native", EXPANDABLE):
            return f"{name} has {setting}"
    return None


def obstacle(version: tuple[int, int] | None) -> str | None:
    """Return what would break with expandable segments here, or `None`, by the same rules as `makeroom run --pool`."""
    try:
        with open("/proc/version", encoding="utf-8", errors="replace") as file:
            is_wsl = "microsoft" in file.read().lower()
    except OSError:
        is_wsl = False
    platform = "WSL" if is_wsl else "Jetson" if os.path.exists("/etc/nv_tegra_release") else None
    if platform:
        return f"they do not work reliably on {platform}"
    if version is not None and version < FIRST_SHARED:
        number = ".".join(map(str, version))
        return f"with them, PyTorch {number} cannot share tensors between processes (2.5 and later can). {TURN_ON}"
    if not may_copy_descriptors():
        return (
            "with them, sharing tensors between processes needs pidfd_getfd, which this system does not permit. "
            f"{TURN_ON}"
        )
    return None


def may_copy_descriptors() -> bool:
    """Return whether `pidfd_getfd` works, tried on this process: some containers forbid it, and old kernels lack it."""
    pidfd_open, pidfd_getfd = 434, 438  # the same on all platforms
    call = ctypes.CDLL(None).syscall
    process = call(pidfd_open, os.getpid(), 0)
    if process < 0:
        return False
    copy = call(pidfd_getfd, process, process, 0)
    if copy >= 0:
        os.close(copy)
    os.close(process)
    return bool(copy >= 0)


def merged(theirs: str) -> str:
    """Return the user's settings plus expandable segments, because PyTorch resets all settings that the new string omits."""
    # The backend was chosen when PyTorch was imported.
    kept = [setting for setting in split(theirs) if setting not in ("backend:native", EXPANDABLE)]
    return ",".join([*kept, EXPANDABLE])


def chosen(settings: str, name: str) -> str | None:
    """Return the value of a setting; if it occurs more than once, the last one counts."""
    return next((setting for setting in reversed(split(settings)) if setting.partition(":")[0] == name), None)


def _version(torch: Any) -> tuple[int, int] | None:
    try:
        major, minor = str(torch.__version__).split(".")[:2]
        return int(major), int(minor)
    except (AttributeError, ValueError):
        return None


def split(settings: str) -> list[str]:
    """Split the settings, without spaces. A comma inside brackets is part of a value."""
    parts, depth = [""], 0
    for letter in "".join(settings.split()):
        depth += (letter == "[") - (letter == "]")
        if letter == "," and depth <= 0:
            parts.append("")
        else:
            parts[-1] += letter
    return [part for part in parts if part]


def stats(torch: Any, device: int) -> Stats:
    """Return PyTorch's figures in the format of the pool's: reserved = live + rounding + cached."""
    figures = torch.cuda.memory_stats(device)

    def all_of(name: str, which: str) -> int:
        return int(figures.get(f"{name}.all.{which}", 0))

    allocated, active = all_of("allocated_bytes", "current"), all_of("active_bytes", "current")
    requested = all_of("requested_bytes", "current")
    reserved = all_of("reserved_bytes", "current")
    return Stats(
        live=requested + active - allocated,
        pending=active - allocated,
        rounding=allocated - requested,
        reserved=reserved,
        cached=reserved - active,
        peak_live=all_of("requested_bytes", "peak"),
        peak_reserved=all_of("reserved_bytes", "peak"),
        blocks=all_of("active", "current"),
        allocations=all_of("allocation", "allocated"),
        refusals=int(figures.get("num_ooms", 0)),
        spilled=0,
        peak_spilled=0,
        driver_nanoseconds=0,
    )
