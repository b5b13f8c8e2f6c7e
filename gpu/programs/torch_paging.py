"""Small PyTorch programs for paging (`run --pool`): step times, a spill, a soak, memory arithmetic, and several ranks.

    python torch_paging.py steps gpt|unet COUNT | fits gpt|unet | spill BYTES | soak SECONDS | arithmetic | ranks gloo|nccl COUNT

Each prints one line of JSON as its last line; losses are printed to the last bit, so that runs can be compared."""

import json
import os
import statistics
import sys
import tempfile
import time

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

import torch
import torch.nn.functional as functional

import figures
from gpt import Training
from torch_workloads import UNet, deterministic, on_gpu

MIB = 1 << 20


def training(name):
    """A function that trains one step and returns the loss."""
    if name == "gpt":
        return Training("gpt2").step
    sizes, model = deterministic(), UNet().cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)

    def step():
        shape = (sizes.randint(4, 8), 3, 32 * sizes.randint(4, 10), 32 * sizes.randint(4, 10))
        data, target = on_gpu(*shape), on_gpu(*shape)
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = functional.mse_loss(model(data).float(), target)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.item()

    return step


def steps(name, count):
    """The median time of a step after a third of the steps, in milliseconds."""
    step, times = training(name), []
    for _ in range(int(count)):
        begun = time.perf_counter()
        step()
        torch.cuda.synchronize()
        times.append(time.perf_counter() - begun)
    return {"median_ms": 1000 * statistics.median(times[len(times) // 3:]), "inside": figures.pages()}


def fits(name):
    """Ten steps; an out-of-memory error ends the program."""
    step = training(name)
    losses = [step().hex() for _ in range(10)]
    return {"losses": losses, "live": torch.cuda.max_memory_allocated(), "pages": figures.pages()}


def spill(most):
    """Live memory of so many bytes, more than the card has, next to memory history, a graph and a MemPool."""
    most = int(most)
    torch.cuda.memory._record_memory_history(max_entries=100_000)
    sizes, pool = deterministic(), torch.cuda.MemPool()
    weight, data = on_gpu(1024, 1024), on_gpu(64, 1024)
    (data @ weight).relu()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = (data @ weight).relu().sum()
    graph.replay()
    expected = result.item()
    kept, live = [], 0
    while live < most:
        bytes_ = min(sizes.randint(8, 160) * MIB, most - live + MIB)
        with torch.cuda.use_mem_pool(pool) if len(kept) % 4 == 3 else torch.cuda.stream(torch.cuda.current_stream()):
            kept.append(torch.full((bytes_ // 4,), float(len(kept)), device="cuda"))
        live += bytes_
        if len(kept) % 5 == 4:
            # Frees in between make pages move.
            live -= 4 * kept[-3].numel()
            kept[-3] = torch.full((1024,), float(len(kept) - 3), device="cuda")
    wrong = sum(not bool((tensor == float(index)).all()) for index, tensor in enumerate(kept))
    graph.replay()
    events = len(torch.cuda.memory._snapshot()["device_traces"][0])
    return {"wrong": wrong, "tensors": len(kept), "live": torch.cuda.memory_allocated(), "events": events,
            "graph": result.item() == expected, "pages": figures.pages()}


class Soak:
    """Random tensors on three streams and in a MemPool, written on one stream and checked on another. They are freed while the
    check has not run yet, so memory that moves too early shows as wrong elements."""

    def __init__(self, most):
        self.random, self.most = deterministic(), most
        self.streams = [torch.cuda.Stream() for _ in range(3)]
        self.pool, self.graph = torch.cuda.MemPool(), torch.cuda.CUDAGraph()
        self.kept, self.live, self.tag, self.wrong, self.operations = [], 0, 0, 0, 0
        self.counts, self.refused = [], 0
        for stream in self.streams:
            with torch.cuda.stream(stream):
                self.counts.append(torch.zeros((), dtype=torch.int64, device="cuda"))
        self.data, self.busy = on_gpu(256, 256), on_gpu(4096, 4096)
        (self.data @ self.data).relu()
        torch.cuda.synchronize()
        with torch.cuda.graph(self.graph):
            self.result = (self.data @ self.data).relu().sum()
        self.graph.replay()
        self.expected = self.result.item()

    def allocate(self):
        # Half of the tensors are at most 512 KiB, as in training. The others are 1 to 256 MiB, every power of two equally likely.
        count = self.random.randint(1, MIB // 8) if self.random.random() < 0.5 else MIB // 4 << self.random.randint(0, 8)
        self.tag = (self.tag + 1) % 4096
        stream = self.random.choice(self.streams)
        with torch.cuda.stream(stream):
            if self.random.random() < 0.1:
                with torch.cuda.use_mem_pool(self.pool):
                    tensor = torch.full((count,), float(self.tag), device="cuda")
            else:
                tensor = torch.full((count,), float(self.tag), device="cuda")
        self.kept.append((tensor, float(self.tag), stream))
        self.live += 4 * count

    def free(self):
        tensor, tag, stream = self.kept.pop(self.random.randrange(len(self.kept)))
        self.live -= 4 * tensor.numel()
        number = self.random.randrange(len(self.streams))
        other = self.streams[number]
        other.wait_stream(stream)
        with torch.cuda.stream(other):
            if self.operations % 20 == 0:
                # The stream falls behind the program.
                self.busy @ self.busy
            tensor.record_stream(other)
            self.counts[number] += (tensor != tag).sum()

    def recover(self):
        """Frees half of the tensors after running out of memory: PyTorch keeps a MemPool's free blocks, so it can reach the limit."""
        torch.cuda.synchronize()
        self.refused += 1
        del self.kept[::2]
        self.live = sum(4 * tensor.numel() for tensor, _, _ in self.kept)

    def check(self):
        """Waits for all streams, and adds what they found."""
        torch.cuda.synchronize()
        self.graph.replay()
        torch.cuda.synchronize()
        self.wrong += self.result.item() != self.expected

    def step(self):
        self.operations += 1
        if self.live < self.most and (not self.kept or self.random.random() < 0.52):
            self.allocate()
        else:
            self.free()
        if self.operations % 2000 == 0:
            self.check()
        if self.operations % 5000 == 0:
            torch.cuda.empty_cache()


def soak(seconds):
    """Steps until the time is over, with memory history."""
    torch.cuda.memory._record_memory_history(max_entries=10_000)
    state, end = Soak(3 << 30), time.monotonic() + float(seconds)
    while time.monotonic() < end:
        try:
            state.step()
        except torch.OutOfMemoryError:
            state.recover()
    while state.kept:
        state.free()
    state.check()
    wrong = state.wrong + sum(int(count.item()) for count in state.counts)
    return {"operations": state.operations, "refused": state.refused, "wrong": wrong, "pages": figures.pages()}


def arithmetic():
    """vLLM's: memory that is not PyTorch's = used on the device - memory_reserved()."""
    def other():
        free, total = torch.cuda.mem_get_info()
        return total - free - torch.cuda.memory_reserved()

    torch.zeros(1, device="cuda")
    found = {"begin": other()}
    kept = [torch.empty(sizes * 37 * MIB, dtype=torch.uint8, device="cuda") for sizes in range(1, 13)]
    del kept[::2]
    del kept
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    found.update(end=other(), reserved=torch.cuda.memory_reserved())
    return found


def rank(number, count, backend, path):
    torch.distributed.init_process_group(backend, init_method=f"file://{path}", rank=number, world_size=count)
    torch.cuda.set_device(0)
    deterministic(number)
    model = torch.nn.Sequential(*(torch.nn.Linear(1024, 1024) for _ in range(8))).cuda()
    model = torch.nn.parallel.DistributedDataParallel(model, device_ids=[0])
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step in range(12):
        data = on_gpu(512 + 256 * (step * 7 % 5), 1024)
        loss = model(data).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if number == 0:
            print(f"step {step}: {loss.item().hex()}", flush=True)
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


def ranks(backend, count):
    """Ranks of one job on one card."""
    count = int(count)
    with tempfile.TemporaryDirectory() as directory:
        arguments = (count, backend, os.path.join(directory, "rendezvous"))
        if count == 1:
            rank(0, *arguments)
        else:
            torch.multiprocessing.spawn(rank, arguments, nprocs=count)
    return {"done": True}


if __name__ == "__main__":
    with figures.peak("peak"):
        found = globals()[sys.argv[1]](*sys.argv[2:])
    print(json.dumps(found))
