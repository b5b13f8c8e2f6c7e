"""Records how PyTorch's native allocator behaves under the settings that decide what it keeps cached.

For each case, a child process runs a seeded random sequence of allocations and frees with one PYTORCH_CUDA_ALLOC_CONF, under
a memory limit if the case has one, and writes two files into $OUT: CASE.pickle.gz, the memory snapshot from the first
allocation on, and CASE.json, the settings, PyTorch's statistics and the limit in bytes, which a snapshot does not contain.
`makeroom replay --check CASE.pickle.gz` then has to predict every recorded segment.

Usage: native_settings.py [CASE...]    [default: every case]"""

import ctypes
import gzip
import json
import os
import pathlib
import pickle
import random
import subprocess
import sys
import traceback

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30

# conf: PYTORCH_CUDA_ALLOC_CONF. cap: what set_per_process_memory_fraction allows, in MiB. room: what a foreign allocation
# leaves free on the device, in MiB. late: steps before the history starts. The other fields are those of `work`.
CASES = {
    # Garbage collection needs a fraction: without one, the threshold has no effect.
    "gc50-nolimit": {"conf": "garbage_collection_threshold:0.5", "live": 2048},
    "gc20-cap": {"conf": "garbage_collection_threshold:0.2", "cap": 2048},
    "gc50-cap": {"conf": "garbage_collection_threshold:0.5", "cap": 2048},
    "gc80-cap": {"conf": "garbage_collection_threshold:0.8", "cap": 2048},
    "gc80-cap-tight": {"conf": "garbage_collection_threshold:0.8", "cap": 1024, "live": 1100},
    "gc1-fraction-one": {"conf": "garbage_collection_threshold:0.01", "cap": -1, "live": 1200},
    "gc50-room": {"conf": "garbage_collection_threshold:0.5", "room": 2048},
    "gc50-cap-changes": {"conf": "garbage_collection_threshold:0.5", "cap": 3072, "second_cap": 1536},
    "gc50-cap-late": {"conf": "garbage_collection_threshold:0.5", "cap": 2048, "late": 1500},
    "gc50-cap-empty": {"conf": "garbage_collection_threshold:0.5", "cap": 2048, "empties": 12},
    "split32-nolimit": {"conf": "max_split_size_mb:32", "live": 2048},
    "split128-nolimit": {"conf": "max_split_size_mb:128", "live": 2048},
    "split512-nolimit": {"conf": "max_split_size_mb:512", "live": 2048},
    "split32-cap": {"conf": "max_split_size_mb:32", "cap": 2048},
    "split128-cap": {"conf": "max_split_size_mb:128", "cap": 2048},
    "split128-cap-tight": {"conf": "max_split_size_mb:128", "cap": 1024, "live": 1100},
    "split128-room": {"conf": "max_split_size_mb:128", "room": 2048},
    "split64-rounding": {"conf": "max_split_size_mb:64,max_non_split_rounding_mb:48", "cap": 2048},
    "gc20-split32-cap": {"conf": "garbage_collection_threshold:0.2,max_split_size_mb:32", "cap": 2048},
    "gc50-split128-cap": {"conf": "garbage_collection_threshold:0.5,max_split_size_mb:128", "cap": 2048},
    "gc80-split64-cap": {"conf": "garbage_collection_threshold:0.8,max_split_size_mb:64", "cap": 2048},
    "gc80-split64-cap-tight": {"conf": "garbage_collection_threshold:0.8,max_split_size_mb:64", "cap": 1024, "live": 1100},
    "gc80-split64-nolimit": {"conf": "garbage_collection_threshold:0.8,max_split_size_mb:64", "live": 2048},
    "gc80-split64-room": {"conf": "garbage_collection_threshold:0.8,max_split_size_mb:64", "room": 2048},
    "gc60-split128-roundup-cap": {
        "conf": "garbage_collection_threshold:0.6,max_split_size_mb:128,roundup_power2_divisions:4",
        "cap": 2048,
    },
    "gc50-split64-streams-cap": {
        "conf": "garbage_collection_threshold:0.5,max_split_size_mb:64",
        "cap": 2048,
        "streams": 3,
    },
    "gc50-streams-tight": {"conf": "garbage_collection_threshold:0.5", "cap": 1024, "live": 1100, "streams": 3},
    "gc50-expandable-cap": {"conf": "garbage_collection_threshold:0.5,expandable_segments:True", "cap": 2048},
    "split64-expandable-cap": {"conf": "max_split_size_mb:64,expandable_segments:True", "cap": 2048},
    "plain-cap": {"conf": "", "cap": 2048},
    "plain-streams": {"conf": "", "live": 1024, "streams": 3},
    # Short ones, small enough to keep as tests.
    "short-gc": {"conf": "garbage_collection_threshold:0.5", "cap": 768, "steps": 500},
    "short-split": {"conf": "max_split_size_mb:64", "cap": 768, "steps": 500},
    "short-gc-split": {"conf": "garbage_collection_threshold:0.7,max_split_size_mb:64", "cap": 768, "steps": 500},
    "short-gc-split-streams": {
        "conf": "garbage_collection_threshold:0.7,max_split_size_mb:64",
        "cap": 768,
        "steps": 500,
        "streams": 2,
    },
}


def draw_size(chance, largest):
    """One request in bytes: about as many small ones as large ones, rarely a multiple of anything."""
    kind = chance.random()
    if kind < 0.30:
        return chance.randint(1, 64 * KIB)
    if kind < 0.45:
        return chance.randint(64 * KIB, MIB)
    if kind < 0.70:
        return chance.randint(MIB + 1, 10 * MIB)
    if kind < 0.90:
        return chance.randint(10 * MIB, max(11 * MIB, largest // 4))
    return chance.randint(max(11 * MIB, largest // 4), largest)


class Work:
    """The random sequence. Each phase of 250 steps repeats a few sizes and has its own amount of live memory, so blocks
    that one phase leaves cached are of no use to the next: that is what garbage collection is for."""

    def __init__(self, torch, seed, live_bytes, streams):
        self.torch = torch
        self.chance = random.Random(seed)
        self.live_bytes = live_bytes
        self.largest = live_bytes // 6
        self.streams = [torch.cuda.current_stream()] + [torch.cuda.Stream() for _ in range(streams - 1)]
        self.live = []
        self.held = 0
        self.notes = []
        self.allocations = 0
        self.new_phase()

    def new_phase(self):
        self.sizes = [draw_size(self.chance, self.largest) for _ in range(12)]
        self.target = int(self.live_bytes * self.chance.uniform(0.25, 1.0))

    def note(self, what):
        """When something happened that a snapshot does not show, counted in allocations."""
        self.notes.append({"allocations": self.allocations, "what": what})

    def free_one(self):
        tensor = self.live.pop(self.chance.randrange(len(self.live)))
        self.held -= tensor.numel()

    def allocate(self, size):
        stream = self.chance.choice(self.streams)
        for attempt in range(4):
            try:
                with self.torch.cuda.stream(stream):
                    tensor = self.torch.empty(size, dtype=self.torch.uint8, device="cuda")
                break
            except self.torch.OutOfMemoryError:
                self.note(f"out of memory: {size} bytes, attempt {attempt + 1}")
                for _ in range(len(self.live) // 3 + 1):
                    if self.live:
                        self.free_one()
        else:
            return
        self.allocations += 1
        if len(self.streams) > 1 and self.chance.random() < 0.1:
            # The free then waits until this stream is done with the tensor.
            other = self.chance.choice(self.streams)
            with self.torch.cuda.stream(other):
                tensor.fill_(1)
            tensor.record_stream(other)
        self.live.append(tensor)
        self.held += size

    def run(self, steps, empties=0):
        for step in range(steps):
            if step % 250 == 249:
                self.new_phase()
            if empties and step % (steps // empties) == steps // empties - 1:
                self.note("empty_cache")
                self.torch.cuda.empty_cache()
            if self.held > self.target or (self.live and self.chance.random() < 0.35):
                self.free_one()
            else:
                repeats = self.chance.random() < 0.6
                size = self.chance.choice(self.sizes) if repeats else draw_size(self.chance, self.largest)
                self.allocate(size)


def occupy(torch, room_bytes):
    """Leaves this much free on the device, through an allocation that PyTorch knows nothing about."""
    torch.cuda.synchronize()
    free, _ = torch.cuda.mem_get_info()
    address = ctypes.c_uint64()
    size = ctypes.c_size_t(free - room_bytes)
    status = ctypes.CDLL("libcuda.so.1").cuMemAlloc_v2(ctypes.byref(address), size)
    if status:
        raise RuntimeError(f"cuMemAlloc of {size.value} bytes failed with {status}")


def set_cap(torch, cap_mib, total):
    """Sets the fraction for this cap and returns both; -1 is the whole device."""
    fraction = 1.0 if cap_mib < 0 else cap_mib * MIB / total
    torch.cuda.set_per_process_memory_fraction(fraction)
    return {"fraction": fraction, "allowed": int(fraction * total)}


def record(name, out):
    """Runs one case in this process and writes its two files."""
    import torch

    case = CASES[name]
    torch.cuda.init()
    torch.cuda.synchronize()
    free, total = torch.cuda.mem_get_info()
    caps = []
    if "cap" in case:
        caps.append(set_cap(torch, case["cap"], total))
    if "room" in case:
        occupy(torch, case["room"] * MIB)
    limit_mib = case.get("room") or case.get("cap")
    # 85 % of a limit: fragmentation alone then reaches it from time to time.
    live_mib = case.get("live") or limit_mib * 85 // 100
    work = Work(torch, f"native_settings {name}", live_mib * MIB, case.get("streams", 1))
    history = {"context": None, "stacks": "python", "max_entries": 200_000}
    if "late" in case:
        work.run(case["late"])
    torch.cuda.memory._record_memory_history(**history)
    steps, empties = case.get("steps", 3500), case.get("empties", 0)
    if "second_cap" in case:
        work.run(steps // 2, empties)
        work.note("second cap")
        caps.append(set_cap(torch, case["second_cap"], total))
        work.run(steps - steps // 2, empties)
    else:
        work.run(steps, empties)
    snapshot = torch.cuda.memory._snapshot()
    figures = {
        "case": name,
        "settings": case,
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "device": torch.cuda.get_device_name(),
        "properties_total": torch.cuda.get_device_properties(0).total_memory,
        "total": total,
        "free_at_start": free,
        "caps": caps,
        "events": len(snapshot["device_traces"][0]),
        "notes": work.notes,
        "statistics": torch.cuda.memory_stats(),
    }
    with gzip.GzipFile(out / f"{name}.pickle.gz", "wb", compresslevel=9, mtime=0) as file:
        pickle.dump(snapshot, file)
    (out / f"{name}.json").write_text(json.dumps(figures, indent=1) + "\n")
    retries, failures = (figures["statistics"].get(key) for key in ("num_alloc_retries", "num_ooms"))
    print(f"{name}: {figures['events']} events, {retries} retries, {failures} out of memory", flush=True)


def main():
    out = pathlib.Path(os.environ["OUT"])
    out.mkdir(parents=True, exist_ok=True)
    if sys.argv[1:2] == ["--child"]:
        return record(sys.argv[2], out)
    failed = []
    for name in sys.argv[1:] or CASES:
        environment = {**os.environ}
        # PyTorch 2.9 and later read PYTORCH_ALLOC_CONF first; one left set would win.
        environment.pop("PYTORCH_ALLOC_CONF", None)
        environment.pop("PYTORCH_CUDA_ALLOC_CONF", None)
        if CASES[name]["conf"]:
            environment["PYTORCH_CUDA_ALLOC_CONF"] = CASES[name]["conf"]
        try:
            done = subprocess.run([sys.executable, __file__, "--child", name], env=environment, timeout=120)
            if done.returncode:
                failed.append(name)
        except subprocess.TimeoutExpired:
            traceback.print_exc()
            failed.append(name)
    if failed:
        sys.exit("failed: " + ", ".join(failed))


if __name__ == "__main__":
    main()
