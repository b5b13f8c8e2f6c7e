"""PyTorch on its own allocator, with expandable segments: what `use_pool` and `makeroom run --pool` choose for PyTorch.

Segments that grow page by page do not fragment as blocks of fixed sizes do, and everything that PyTorch has works: memory
history, snapshots, `MemPool`, CUDA graphs, `torch.compile`, sharing tensors between processes, `torch.OutOfMemoryError`.
The gain is PyTorch's own; this module only turns the setting on and reads PyTorch's figures.
"""

from __future__ import annotations

import os
import warnings
from typing import TYPE_CHECKING, Any

from ._library import Stats

if TYPE_CHECKING:
    from ._pool import Pool

EXPANDABLE = "expandable_segments:True"
# Where both are set, PyTorch reads the first.
VARIABLES = ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF")


def is_possible(torch: Any) -> bool:
    """Whether this PyTorch takes allocator settings at run time; 2.1 and later do."""
    memory: Any = getattr(getattr(torch, "cuda", None), "memory", None)
    return hasattr(memory, "_set_allocator_settings")


def install(torch: Any, pool: Pool) -> None:
    """Turns expandable segments on. Memory that PyTorch took before stays in segments of the other kind."""
    settings = merged(next((os.environ[name] for name in VARIABLES if name in os.environ), ""))
    if settings is not None:
        torch.cuda.memory._set_allocator_settings(settings)
    if pool.history:
        torch.cuda.memory._record_memory_history(max_entries=pool.history)


def merged(theirs: str) -> str | None:
    """The user's settings with expandable segments: PyTorch forgets settings that are not in the new text. `None` where
    the user chose otherwise."""
    settings = split(theirs)
    chosen = {setting.partition(":")[0]: setting for setting in settings}
    for declined in (chosen.get("backend"), chosen.get("expandable_segments")):
        if declined not in (None, "backend:native", EXPANDABLE):
            warnings.warn(
                f"PyTorch's settings have {declined}: kept, so makeroom.use_pool() does not turn on expandable segments",
                stacklevel=5,
            )
            return None
    # Which backend it is was decided when PyTorch was imported.
    return ",".join([setting for setting in settings if setting not in ("backend:native", EXPANDABLE)] + [EXPANDABLE])


def split(settings: str) -> list[str]:
    """The settings one by one, without spaces; a comma inside of brackets belongs to a value."""
    parts, depth = [""], 0
    for letter in "".join(settings.split()):
        depth += (letter == "[") - (letter == "]")
        if letter == "," and depth <= 0:
            parts.append("")
        else:
            parts[-1] += letter
    return [part for part in parts if part]


def stats(torch: Any, device: int) -> Stats:
    """PyTorch's figures in the form of the pool's: reserved = live + rounding + cached."""
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
