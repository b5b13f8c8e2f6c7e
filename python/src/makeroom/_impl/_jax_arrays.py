"""JAX's live arrays: which of them have memory, and a note about the largest.

`jax.live_arrays` and JAX's memory profile list every array that the program refers to, including the result of a computation
that ran out of memory: its buffer was never allocated. Nothing here waits for a computation.
"""

from __future__ import annotations

from collections import Counter as Tally
from typing import Any

from . import _native
from ._sizes import show

_MOST_SHAPES = 3

_Buffers = list[tuple[int, int, list[tuple[str, int]]]]


def only_real(jax: Any, profile: _native.Recording, stats: dict[int, dict[str, int]]) -> _native.Recording:
    """Return the profile without the buffers that have no memory, and with a note about the largest arrays.

    `stats` has the figures of each device's allocator. No more is listed than they have in use.
    """
    kept, failed, pending = _sorted(jax.live_arrays())
    in_use = {device: figures["bytes_in_use"] for device, figures in stats.items()}
    cleaned = profile.without(_buffers(failed), [], [])
    if _exceeding(cleaned, in_use):
        # An array that is still being computed may not have its memory yet.
        cleaned = cleaned.without(_buffers(pending), [], [])
    else:
        kept += pending
    excess = _exceeding(cleaned, in_use)
    notes = [
        f"JAX's profile lists {show(listed)} on GPU {device}, but JAX's allocator has only {show(in_use[device])} in use "
        "there, so the profile's lines for this GPU are omitted"
        for device, listed in excess.items()
    ]
    if not excess:
        notes += _largest(kept, sum(in_use.values()) if in_use else None)
    return cleaned.without([], list(excess), notes)


def _sorted(arrays: list[Any]) -> tuple[list[Any], list[Any], list[Any]]:
    """Return the arrays that are computed, those whose computation failed, and those that are still being computed."""
    computed: list[Any] = []
    failed: list[Any] = []
    pending: list[Any] = []
    for array in arrays:
        if array.is_deleted():
            continue
        if not array.is_ready():
            pending.append(array)
        elif _has_failed(array):
            failed.append(array)
        else:
            computed.append(array)
    return computed, failed, pending


def _has_failed(array: Any) -> bool:
    """Return whether the computation of an array failed. The array must be ready, so that this does not wait."""
    try:
        array.block_until_ready()
    except Exception:
        return True
    return False


def _buffers(arrays: list[Any]) -> _Buffers:
    """Return the buffers of arrays: device, bytes and stack."""
    found: _Buffers = []
    for array in arrays:
        stack = getattr(array, "traceback", None)
        frames = [(frame.file_name, frame.line_num) for frame in stack.frames] if stack is not None else []
        for shard in array.addressable_shards:
            index = int(getattr(shard.device, "local_hardware_id", 0) or 0)
            found.append((index, int(shard.data.on_device_size_in_bytes()), frames))
    return found


def _exceeding(profile: _native.Recording, in_use: dict[int, int]) -> dict[int, int]:
    """Return the devices of which a profile lists more than is in use, with the bytes that it lists."""
    table = profile.allocations().select(["device", "size"])
    listed: Tally[int] = Tally()
    for device, size in table.rows(0, len(table)):
        listed[device] += size
    return {device: size for device, size in listed.items() if size > in_use.get(device, size)}


def _largest(arrays: list[Any], most: int | None) -> list[str]:
    """Return a note about the arrays that hold the most memory, by type and shape, unless they exceed `most` bytes."""
    if most is not None and sum(array.nbytes for array in arrays) > most:
        return []
    counts: Tally[tuple[str, int]] = Tally()
    for array in arrays:
        shape = ",".join(map(str, array.shape))
        counts[f"{array.dtype}[{shape}]", array.nbytes] += 1
    largest = sorted(counts.items(), key=lambda item: -item[0][1] * item[1])[:_MOST_SHAPES]
    listed = [f"{count} × {name} ({show(count * size)})" for (name, size), count in largest if size]
    return [f"largest live arrays: {', '.join(listed)}"] if listed else []
