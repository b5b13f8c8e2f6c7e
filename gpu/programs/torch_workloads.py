"""Eight PyTorch programs of different kinds, one for each run; prints each loss or sum to the last bit, and notes the peak.

    python torch_workloads.py gpt | unet | vit | compiled | mempool | graphs | history | share [TIMES]

TIMES multiplies the steps, for figures of longer runs.
The allocator is chosen from outside; everything else is deterministic, so the output is the same under every allocator. The
peak is NVML's for this process and its children, sampled while the workload runs."""

import os
import random
import sys
import tempfile

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

import torch
import torch.nn.functional as functional
from torch import nn

import figures
from gpt import Block, Training

# What the steps are multiplied by.
TIMES = 1


def deterministic(seed=0):
    torch.use_deterministic_algorithms(True)
    torch.utils.deterministic.fill_uninitialized_memory = False
    torch.backends.cudnn.benchmark = False
    torch.manual_seed(seed)
    return random.Random(seed)


def train(model, batches, optimizer=None):
    """Trains on each batch; prints the losses."""
    optimizer = optimizer or torch.optim.AdamW(model.parameters(), lr=1e-4)
    for step, (data, target) in enumerate(batches):
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = functional.mse_loss(model(data).float(), target)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        print(f"step {step}: {loss.item().hex()}")


def on_gpu(*shape):
    return torch.randn(*shape).cuda()


def gpt():
    """Variable length: what fragments the most."""
    training = Training("gpt2")
    for step in range(30 * TIMES):
        print(f"step {step}: {training.step().hex()}")


class UNet(nn.Module):
    def __init__(self, width=48, depth=4):
        super().__init__()
        sizes = [width << level for level in range(depth + 1)]
        self.begin = self.pair(3, width)
        self.down = nn.ModuleList(
            nn.Sequential(nn.Conv2d(a, a, 2, 2), self.pair(a, b)) for a, b in zip(sizes, sizes[1:])
        )
        self.up = nn.ModuleList(nn.ConvTranspose2d(b, a, 2, 2) for a, b in zip(sizes, sizes[1:]))
        self.after = nn.ModuleList(self.pair(2 * a, a) for a in sizes[:-1])
        self.end = nn.Conv2d(width, 3, 1)

    @staticmethod
    def pair(inputs, outputs):
        return nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, padding=1), nn.GroupNorm(8, outputs), nn.GELU(),
            nn.Conv2d(outputs, outputs, 3, padding=1), nn.GELU(),
        )

    def forward(self, x):
        kept = [self.begin(x)]
        for layer in self.down:
            kept.append(layer(kept[-1]))
        x = kept.pop()
        for up, after in zip(reversed(self.up), reversed(self.after)):
            x = after(torch.cat([up(x), kept.pop()], 1))
        return self.end(x)


def unet():
    """Convolutions on images of varying size."""
    sizes = deterministic()
    model = UNet().cuda()
    shapes = [(sizes.randint(4, 12), 3, 32 * sizes.randint(4, 14), 32 * sizes.randint(4, 14)) for _ in range(24 * TIMES)]
    train(model, ((on_gpu(*shape), on_gpu(*shape)) for shape in shapes))


class ViT(nn.Module):
    def __init__(self, width=768, layers=12, heads=12):
        super().__init__()
        self.patches = nn.Conv2d(3, width, 16, 16)
        self.places = nn.Parameter(torch.zeros(1, 196, width))
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(layers)))
        self.end = nn.Linear(width, 1000)

    def forward(self, images):
        x = self.patches(images).flatten(2).transpose(1, 2) + self.places
        return self.end(self.blocks(x).mean(1))


def vit():
    """Varying batch."""
    sizes = deterministic()
    model = ViT().cuda()
    batches = [sizes.randint(8, 96) for _ in range(24 * TIMES)]
    train(model, ((on_gpu(batch, 3, 224, 224), on_gpu(batch, 1000)) for batch in batches))


def compiled():
    """CUDA-graph trees: `torch.compile` in its reduce-overhead mode."""
    deterministic()
    model = nn.Sequential(*(Block(512, 8) for _ in range(4)), nn.Linear(512, 512)).cuda()
    model = torch.compile(model, mode="reduce-overhead")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    for step in range(12 * TIMES):
        torch.compiler.cudagraph_mark_step_begin()
        data = on_gpu(16, 256, 512)
        loss = functional.mse_loss(model(data), data)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        print(f"step {step}: {loss.item().hex()}")


def mempool():
    """Memory pools of the program's own, next to training."""
    sizes = deterministic()
    pools = [torch.cuda.MemPool() for _ in range(2)]
    model = nn.Sequential(*(nn.Linear(1024, 1024) for _ in range(8))).cuda()
    kept = []
    for step in range(40 * TIMES):
        with torch.cuda.use_mem_pool(pools[step % 2]):
            kept.append(on_gpu(sizes.randint(100, 9000), 1024))
        if len(kept) > 6:
            kept.pop(sizes.randrange(len(kept)))
        loss = sum(model(held).square().mean() for held in kept)
        loss.backward()
        print(f"step {step}: {loss.item().hex()}")
    del kept, loss
    torch.cuda.empty_cache()
    print(len(torch.cuda.memory_snapshot()) > 0)


def graphs():
    """A whole training step as a CUDA graph, replayed between allocations of varying size."""
    sizes = deterministic()
    model = nn.Sequential(*(Block(512, 8) for _ in range(4)), nn.Linear(512, 512)).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, capturable=True)
    data, target = on_gpu(16, 256, 512), on_gpu(16, 256, 512)

    def step():
        optimizer.zero_grad(set_to_none=True)
        loss = functional.mse_loss(model(data), target)
        loss.backward()
        optimizer.step()
        return loss

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    captured = torch.cuda.CUDAGraph()
    with torch.cuda.graph(captured):
        loss = step()
    for number in range(40 * TIMES):
        others = [on_gpu(sizes.randint(1, 4000), 1024) for _ in range(4)]
        data.copy_(on_gpu(16, 256, 512))
        captured.replay()
        print(f"step {number}: {loss.item().hex()} {sum(other.sum().item() for other in others).hex()}")


def history():
    """Memory history and a snapshot file."""
    torch.cuda.memory._record_memory_history(max_entries=1_000_000)
    training = Training("small")
    for step in range(20 * TIMES):
        print(f"step {step}: {training.step().hex()}")
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "snapshot.pickle")
        torch.cuda.memory._dump_snapshot(path)
        print(os.path.getsize(path) > 100_000)
    events = torch.cuda.memory._snapshot()["device_traces"][0]
    print(sum(event["action"] == "alloc" for event in events), "allocations in the history")


def share():
    """Tensors in a queue to another process, which changes some of them."""
    import torch.multiprocessing as processes

    sizes = deterministic()
    context = processes.get_context("spawn")
    there, back = context.Queue(), context.Queue()
    child = context.Process(target=receive, args=(there, back))
    child.start()
    for step in range(24 * TIMES):
        sent = on_gpu(sizes.randint(100, 9000), 1024)
        there.put(sent)
        print(f"step {step}: {back.get(timeout=60).hex()} {sent.sum().item().hex()}")
    there.put(None)
    child.join(60)
    print(child.exitcode)


def receive(there, back):
    while (received := there.get()) is not None:
        received.mul_(2)
        total = received.sum().item()
        del received
        back.put(total)


if __name__ == "__main__":
    workload, TIMES = globals()[sys.argv[1]], int(sys.argv[2]) if len(sys.argv) > 2 else 1
    with figures.peak("peak"):
        workload()
