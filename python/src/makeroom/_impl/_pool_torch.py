"""Make PyTorch use makeroom's pool as a pluggable allocator: `use_pool(pluggable=True)`, or with `limit` or `spill`.

PyTorch loads the functions to allocate and free, and eight others, from a library. It does not support reading the figures of
such an allocator: its counters, peaks and snapshots raise exceptions. All PyTorch functions for these call a few functions of
`torch._C`, so this module replaces those, and `torch.cuda.memory_allocated`, `max_memory_allocated`, `memory_summary`,
`reset_peak_memory_stats`, `memory_snapshot`, `_dump_snapshot` and `record_stream` work as usual.

PyTorch does not support these features with any pluggable allocator: sharing CUDA tensors with other processes,
`torch.compile`'s reduce-overhead mode, and `torch.OutOfMemoryError` (a failed allocation raises a `RuntimeError` that begins
with "out of memory:").
"""

from __future__ import annotations

import ctypes
import os
import pickle
import tempfile
import warnings
from typing import TYPE_CHECKING, Any

from ._library import PoolError, Stats

if TYPE_CHECKING:
    from ._pool import Pool

SETTERS = {
    "set_init_fn": "torch_init",
    "set_reset_fn": "torch_reset",
    "set_memory_fraction_fn": "torch_memory_fraction",
    "set_base_alloc_fn": "torch_base_alloc",
    "set_record_stream_fn": "torch_record_stream",
    "set_begin_allocate_to_pool": "torch_begin_pool",
    "set_end_allocate_to_pool_fn": "torch_end_pool",
    "set_release_pool": "torch_release_pool",
}
# Required: without these, programs would compute wrong results. The others are optional in old versions of PyTorch.
NEEDED = {"set_record_stream_fn"}
_PARTS = ("all", "small_pool", "large_pool")


def install(torch: Any, pool: Pool) -> None:
    """Make the pool PyTorch's allocator until the process exits."""
    version = getattr(torch, "__version__", "of an unknown version")
    memory: Any = getattr(getattr(torch, "cuda", None), "memory", None)
    if not hasattr(memory, "CUDAPluggableAllocator"):
        raise PoolError(f"PyTorch {version} does not support other allocators\n\nhint: use PyTorch 2.1 or later")
    if getattr(torch.version, "cuda", None) is None:
        raise PoolError(f"PyTorch {version} was built without CUDA\n\nhint: install a CUDA build: https://pytorch.org/get-started")
    options = pool._options()
    pool.library.call("torch_configure", ctypes.byref(options))
    allocator = memory.CUDAPluggableAllocator(pool.library.path, "makeroom_torch_alloc", "makeroom_torch_free")
    inner = allocator.allocator()
    for setter, function in SETTERS.items():
        if hasattr(inner, setter):
            getattr(inner, setter)(pool.library.address_of(function))
        elif setter in NEEDED:
            raise PoolError(f"PyTorch {version} has no {setter}\n\nhint: use PyTorch 2.1 or later")
    try:
        memory.change_current_allocator(allocator)
    except RuntimeError as error:
        raise PoolError(
            f"PyTorch has used its own allocator already: {str(error).splitlines()[0]}\n\n"
            "hint: call makeroom.use_pool() before the first tensor on a GPU, or run the program with makeroom run --pool"
        ) from error
    _answer(torch._C, pool)
    # Keep the allocator, and with it the library, alive as long as the process.
    pool._allocator = allocator  # type: ignore[attr-defined]


def _answer(functions: Any, pool: Pool) -> None:
    """Replace the functions of `torch._C` that do not support a pluggable allocator."""

    def memory_stats(device: int) -> dict[str, Any]:
        return nested_stats(pool._read("torch_stats", device))

    def reset_peaks(device: int) -> None:
        pool.library.call("torch_reset_peaks", device)

    def nothing(*arguments: Any, **options: Any) -> None:
        return None

    def record_history(enabled: Any = None, *arguments: Any, **options: Any) -> None:
        if enabled is not None and not pool.history:
            warnings.warn(
                "makeroom's pool records history only if you enable it before the first tensor: "
                "makeroom.use_pool(history=100_000)",
                stacklevel=4,
            )

    def snapshot(*arguments: Any) -> dict[str, Any]:
        handle, path = tempfile.mkstemp(suffix=".pickle")
        os.close(handle)
        try:
            pool.library.call("torch_snapshot", path.encode())
            with open(path, "rb") as file:
                snapshot: dict[str, Any] = pickle.load(file)
                return snapshot
        finally:
            os.unlink(path)

    for name, function in {
        "_cuda_memoryStats": memory_stats,
        "_cuda_resetPeakMemoryStats": reset_peaks,
        "_cuda_resetAccumulatedMemoryStats": nothing,
        "_cuda_memorySnapshot": snapshot,
        "_cuda_record_memory_history": record_history,
        "_cuda_record_memory_history_legacy": record_history,
        "_cuda_isHistoryEnabled": lambda: pool.history > 0,
    }.items():
        if hasattr(functions, name):
            setattr(functions, name, function)


def nested_stats(stats: Stats) -> dict[str, Any]:
    """Return the pool's figures in the format of PyTorch's.

    The figures of the small and large pools are zero, because makeroom's pool does not have them. The total bytes allocated
    and freed are not counted, so they are zero too.
    """

    def all_of(current: int, peak: int, allocated: int = 0) -> dict[str, dict[str, int]]:
        whole = {"current": current, "peak": peak, "allocated": allocated, "freed": allocated - current if allocated else 0}
        return {part: whole if part == "all" else dict.fromkeys(whole, 0) for part in _PARTS}

    none = all_of(0, 0)
    return {
        "allocated_bytes": all_of(stats.live, stats.peak_live),
        "requested_bytes": all_of(stats.live, stats.peak_live),
        "active_bytes": all_of(stats.live, stats.peak_live),
        "reserved_bytes": all_of(stats.reserved, stats.peak_reserved),
        "inactive_split_bytes": all_of(stats.cached, stats.cached),
        "allocation": all_of(stats.blocks, stats.blocks, stats.allocations),
        "active": all_of(stats.blocks, stats.blocks, stats.allocations),
        "segment": none,
        "inactive_split": none,
        "oversize_allocations": none["all"],
        "oversize_segments": none["all"],
        "num_alloc_retries": 0,
        "num_ooms": stats.refusals,
        "num_sync_all_streams": 0,
        "num_device_alloc": 0,
        "num_device_free": 0,
        "max_split_size": -1,
    }
