"""Puts PyTorch on makeroom's pool by its pluggable allocator, with nothing but the C library, and compares.

    python pluggable.py LIBRARY [FOLDER]

trains a small model twice, with PyTorch's own allocator and with the pool, each in a process of its own, and prints one
JSON object: whether all losses are equal to the last bit, what a captured graph and a second stream computed, what a
refusal looked like, and what was reserved. Exit status 1 where something differs. FOLDER is where the pool's snapshot
goes."""

import ctypes
import json
import os
import subprocess
import sys

STEPS = 30
GIB = 1 << 30

SETTERS = {
    "set_init_fn": "makeroom_torch_init",
    "set_reset_fn": "makeroom_torch_reset",
    "set_memory_fraction_fn": "makeroom_torch_memory_fraction",
    "set_base_alloc_fn": "makeroom_torch_base_alloc",
    "set_record_stream_fn": "makeroom_torch_record_stream",
    "set_begin_allocate_to_pool": "makeroom_torch_begin_pool",
    "set_end_allocate_to_pool_fn": "makeroom_torch_end_pool",
    "set_release_pool": "makeroom_torch_release_pool",
}


class Options(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t)] + [(name, ctypes.c_uint64) for name in ("limit", "spill", "history")]


class Stats(ctypes.Structure):
    _names = (
        "live pending rounding reserved cached peak_live peak_reserved blocks allocations refusals spilled peak_spilled "
        "driver_nanoseconds"
    ).split()
    _fields_ = [("size", ctypes.c_size_t)] + [(name, ctypes.c_uint64) for name in _names]


class Pool:
    """The pool as PyTorch's allocator, and its figures."""

    def __init__(self, path):
        import torch

        self.library = ctypes.CDLL(path)
        self.library.makeroom_last_error.restype = ctypes.c_char_p
        options = Options(size=ctypes.sizeof(Options), history=100_000)
        self.check(self.library.makeroom_torch_configure(ctypes.byref(options)))
        allocator = torch.cuda.memory.CUDAPluggableAllocator(path, "makeroom_torch_alloc", "makeroom_torch_free")
        for setter, function in SETTERS.items():
            address = ctypes.cast(getattr(self.library, function), ctypes.c_void_p).value
            getattr(allocator.allocator(), setter)(address)
        torch.cuda.memory.change_current_allocator(allocator)

    def check(self, status):
        if status:
            raise RuntimeError(self.library.makeroom_last_error().decode())

    def stats(self):
        stats = Stats(size=ctypes.sizeof(Stats))
        self.check(self.library.makeroom_torch_stats(0, ctypes.byref(stats)))
        return {name: getattr(stats, name) for name in Stats._names}

    def snapshot(self, path):
        self.check(self.library.makeroom_torch_snapshot(path.encode()))


def model(torch):
    block = lambda: torch.nn.TransformerEncoderLayer(512, 8, 2048, dropout=0.0, batch_first=True)
    layers = torch.nn.Sequential(torch.nn.Embedding(8192, 512), *(block() for _ in range(4)), torch.nn.Linear(512, 8192))
    return layers.cuda()


def train(torch):
    """Losses to the last bit, with another length every step."""
    torch.manual_seed(1)
    network = model(torch)
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-4)
    generator = torch.Generator().manual_seed(2)
    losses = []
    for step in range(STEPS):
        length = int(torch.randint(64, 1024, (1,), generator=generator))
        words = torch.randint(0, 8192, (8, length + 1), generator=generator).cuda()
        output = network(words[:, :-1])
        loss = torch.nn.functional.cross_entropy(output.flatten(0, 1), words[:, 1:].flatten())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        losses.append(loss.item().hex())
    return losses


def two_streams(torch):
    """A tensor that another stream still reads when it is freed."""
    side = torch.cuda.Stream()
    total = torch.zeros((), device="cuda", dtype=torch.float64)
    for step in range(20):
        tensor = torch.full((4 << 20,), float(step), device="cuda")
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            torch.cuda._sleep(10_000_000)
            total += tensor.sum(dtype=torch.float64)
        tensor.record_stream(side)
        del tensor
        torch.full((4 << 20,), -1.0, device="cuda")
    torch.cuda.synchronize()
    return total.item()


def graph(torch):
    """A captured graph, replayed after everything around it was freed and used again."""
    input = torch.ones(1 << 20, device="cuda")
    captured = torch.cuda.CUDAGraph()
    with torch.cuda.graph(captured):
        middle = input * 2
        output = middle + 1
        del middle
    results = []
    for value in (1.0, 5.0):
        input.fill_(value)
        torch.cuda.empty_cache()
        noise = [torch.full((1 << 20,), -7.0, device="cuda") for _ in range(16)]
        captured.replay()
        results.append(output.sum().item())
        del noise
    captured.reset()
    return results


def refusal(torch):
    """What a request beyond the limit looks like, and that the program goes on."""
    torch.cuda.empty_cache()
    total = torch.cuda.mem_get_info()[1]
    torch.cuda.set_per_process_memory_fraction(4 * GIB / total)
    try:
        torch.empty(8 * GIB, dtype=torch.uint8, device="cuda")
        return None
    except RuntimeError as error:
        text = str(error)
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    torch.empty(1 * GIB, dtype=torch.uint8, device="cuda")
    return text


def one(path, folder):
    """One process: prints its figures."""
    import torch

    torch.use_deterministic_algorithms(True)
    # Plain attention: its large, changing matrices are what an allocator has to deal with.
    torch.backends.cuda.enable_flash_sdp(False)
    torch.backends.cuda.enable_mem_efficient_sdp(False)
    pool = Pool(path) if path else None
    figures = {"losses": train(torch)}
    if pool:
        figures["stats"] = pool.stats()
        pool.snapshot(os.path.join(folder, "pluggable.pickle"))
    else:
        figures["peak_reserved"] = torch.cuda.max_memory_reserved()
        figures["peak_allocated"] = torch.cuda.max_memory_allocated()
    figures["two_streams"] = two_streams(torch)
    figures["graph"] = graph(torch)
    figures["refusal"] = refusal(torch)
    if pool:
        torch.cuda.empty_cache()
        figures["stats_at_end"] = pool.stats()
    json.dump(figures, sys.stdout)


def run(path, folder):
    environment = dict(os.environ, CUBLAS_WORKSPACE_CONFIG=":4096:8")
    for name in ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"):
        environment.pop(name, None)
    command = [sys.executable, __file__, "--one", path, folder]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=False)
    if done.returncode:
        sys.exit(f"error: {'the pool' if path else 'the native run'} ended with {done.returncode}")
    return json.loads(done.stdout)


def main(path, folder):
    native, pool = run("", folder), run(os.path.abspath(path), folder)
    differs = [name for name in ("losses", "two_streams", "graph") if native[name] != pool[name]]
    if not (pool["refusal"] or "").startswith("out of memory: 8.00 GiB"):
        differs.append("refusal")
    if pool["stats"]["refusals"] or pool["stats_at_end"]["allocations"] < 1000:
        differs.append("stats")
    report = {
        "differs": differs,
        "steps": STEPS,
        "last_loss": float.fromhex(pool["losses"][-1]),
        "graph": pool["graph"],
        "refusal": pool["refusal"],
        "native_peak_reserved": native["peak_reserved"],
        "pool_peak_reserved": pool["stats"]["peak_reserved"],
        "pool_peak_live": pool["stats"]["peak_live"],
        "pool_driver_milliseconds": pool["stats"]["driver_nanoseconds"] / 1e6,
        "snapshot": os.path.join(folder, "pluggable.pickle"),
    }
    json.dump(report, sys.stdout, indent=1)
    print()
    return 1 if differs else 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["--one"]:
        one(*sys.argv[2:])
    elif len(sys.argv) in (2, 3):
        sys.exit(main(sys.argv[1], sys.argv[2] if len(sys.argv) == 3 else "."))
    else:
        sys.exit(__doc__)
