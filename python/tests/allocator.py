"""A small model of PyTorch's caching allocator: segments, blocks, counters, memory history and snapshot, as in `torch.cuda`.

A freed block that another stream uses stays pending until the next allocation.
"""

from __future__ import annotations

import sys
import types
from collections import deque

MIB = 1 << 20


class Block:
    def __init__(self, address, size):
        self.address, self.size, self.requested, self.state, self.frames = address, size, 0, "inactive", []


class Segment:
    def __init__(self, address, size):
        self.address, self.size, self.blocks = address, size, [Block(address, size)]


class Cuda(types.ModuleType):
    def __init__(self, clock):
        super().__init__("torch.cuda")
        self._clock, self._segments, self._waiting = clock, [], []
        self._history, self._is_recording = deque(), False
        self._next_address = 0x7F00_0000_0000
        self._counts = {name: [0, 0, 0, 0] for name in ("allocated_bytes", "active", "active_bytes", "requested_bytes")}
        self.memory = types.SimpleNamespace(_record_memory_history=self._record, _snapshot=self._snapshot)

    def take(self, bytes):
        """Allocate; the recorded frame is the caller's."""
        self.complete_frees()
        size = -(-bytes // 512) * 512
        found = min(
            (block for segment in self._segments for block in segment.blocks if block.state == "inactive" and block.size >= size
             and (segment.size == 2 * MIB) == (size <= MIB)),
            key=lambda block: (block.size, block.address),
            default=None,
        ) or self._segment(size)
        segment = next(each for each in self._segments if found in each.blocks)
        if found.size - size >= (512 if size <= MIB else MIB + 1):
            segment.blocks.insert(segment.blocks.index(found) + 1, Block(found.address + size, found.size - size))
            found.size = size
        caller = sys._getframe(1)
        place = {"name": caller.f_code.co_name, "filename": caller.f_code.co_filename, "line": caller.f_lineno}
        found.requested, found.state, found.frames = bytes, "active_allocated", [place]
        self._trace("alloc", found.address, bytes, found.frames)
        amounts = {"allocated_bytes": found.size, "active": 1, "active_bytes": found.size, "requested_bytes": bytes}
        for name, amount in amounts.items():
            self._count(name, amount)
        return found

    def give(self, block, is_used_elsewhere=False):
        """Free a block; if another stream uses it, it stays pending."""
        self._trace("free_requested", block.address, block.requested, [])
        self._count("allocated_bytes", -block.size)
        block.state = "active_pending_free"
        self._waiting.append(block)
        if not is_used_elsewhere:
            self.complete_frees([block])

    def complete_frees(self, blocks=None):
        for block in self._waiting[:] if blocks is None else blocks:
            self._waiting.remove(block)
            self._trace("free_completed", block.address, block.requested, [])
            for name, amount in (("active", 1), ("active_bytes", block.size), ("requested_bytes", block.requested)):
                self._count(name, -amount)
            block.state, block.frames = "inactive", []
            segment = next(each for each in self._segments if block in each.blocks)
            place = segment.blocks.index(block)
            for first, second in ((place, place + 1), (place - 1, place)):
                pair = segment.blocks[first : second + 1] if first >= 0 else []
                if len(pair) == 2 and all(each.state == "inactive" for each in pair):
                    pair[0].size += pair[1].size
                    segment.blocks.remove(pair[1])

    def is_available(self):
        return True

    is_initialized = is_available

    def device_count(self):
        return 1

    def memory_stats_as_nested_dict(self, device):
        names = ("current", "peak", "allocated", "freed")
        return {key: {"all": dict(zip(names, counts))} for key, counts in self._counts.items()}

    def reset_peak_memory_stats(self, device):
        for counts in self._counts.values():
            counts[1] = counts[0]

    def _count(self, name, change):
        counts = self._counts[name]
        counts[0] += change
        counts[1] = max(counts[1], counts[0])
        counts[2 if change > 0 else 3] += abs(change)

    def _segment(self, size):
        total = 2 * MIB if size <= MIB else 20 * MIB if size < 10 * MIB else -(-size // (2 * MIB)) * 2 * MIB
        self._segments.append(Segment(self._next_address, total))
        self._next_address += total
        self._trace("segment_alloc", self._segments[-1].address, total, [])
        return self._segments[-1].blocks[0]

    def _trace(self, action, address, size, frames):
        time_us = self._clock() // 1000
        if self._is_recording:
            event = {"action": action, "addr": address, "size": size, "stream": 0, "time_us": time_us, "frames": frames}
            self._history.append({**event, "compile_context": "N/A", "user_metadata": ""})

    def _record(self, enabled="all", context="all", stacks="all", max_entries=sys.maxsize):
        self._is_recording = enabled is not None
        self._history = deque(maxlen=min(max_entries, 1 << 40)) if self._is_recording else deque()

    def _snapshot(self):
        segments = []
        for segment in self._segments:
            taken = [block for block in segment.blocks if block.state != "inactive"]
            blocks = [
                {"address": block.address, "size": block.size, "requested_size": block.requested, "state": block.state,
                 "frames": block.frames}
                for block in segment.blocks
            ]
            segments.append(
                {"device": 0, "address": segment.address, "total_size": segment.size,
                 "allocated_size": sum(block.size for block in taken if block.state == "active_allocated"),
                 "active_size": sum(block.size for block in taken),
                 "requested_size": sum(block.requested for block in taken), "stream": 0,
                 "segment_type": "small" if segment.size == 2 * MIB else "large", "segment_pool_id": (0, 0),
                 "is_expandable": False, "frames": [], "blocks": blocks}
            )
        settings = {"PYTORCH_CUDA_ALLOC_CONF": "", "max_split_size": -1, "expandable_segments": False}
        traces = [list(self._history)]
        return {"segments": segments, "device_traces": traces, "allocator_settings": settings, "external_annotations": []}
