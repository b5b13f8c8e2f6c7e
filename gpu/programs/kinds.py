"""Models whose memory is known: writes a PyTorch snapshot and, next to it, what each moment's memory was.

    kinds.py SCENARIO FOLDER [CHANGE]
    makeroom run -o FOLDER/SCENARIO.room -- kinds.py SCENARIO FOLDER [CHANGE] --room

Moments are named by the number of events that the snapshot's trace has at that time. Bytes are those of the blocks that
hold the tensors, so views and shared storages count once. Activations are what autograd saved for the backward pass,
parameters excluded. With --room, only the truth is written, and an allocation in `mark` marks each moment.
"""
import json
import os
import sys

import torch
import torch.nn.functional as F
from torch import nn

DEVICE = "cuda"
WIDTH, LAYERS, HEADS, WORDS, LENGTH = 256, 4, 4, 4000, 128


class Attention(nn.Module):
    def __init__(self, keeps_scores):
        super().__init__()
        self.into = nn.Linear(WIDTH, 3 * WIDTH)
        self.out = nn.Linear(WIDTH, WIDTH)
        self.keeps_scores = keeps_scores

    def forward(self, x):
        batch, length, _ = x.shape
        q, k, v = self.into(x).view(batch, length, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        if self.keeps_scores:
            scores = q @ k.transpose(-2, -1) / WIDTH**0.5
            y = scores.softmax(-1) @ v
        else:
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).reshape(batch, length, WIDTH))


class Block(nn.Module):
    def __init__(self, keeps_scores):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attention = Attention(keeps_scores)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class Gpt(nn.Module):
    def __init__(self, checkpointing=False, keeps_scores=False, features=None):
        super().__init__()
        self.features = features
        self.words = nn.Embedding(WORDS, WIDTH)
        self.blocks = nn.ModuleList(Block(keeps_scores) for _ in range(LAYERS))
        self.head = nn.Linear(WIDTH, WORDS)
        self.checkpointing = checkpointing

    def forward(self, ids):
        x = self.words(ids)
        for block in self.blocks:
            if self.checkpointing:
                x = torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False)
            else:
                x = block(x)
        if self.features is not None:
            self.features.append(x.detach().clone())
        return self.head(x)


class Convolutions(nn.Module):
    def __init__(self):
        super().__init__()
        sizes = [3, 32, 64, 128, 128]
        self.layers = nn.Sequential(
            *(
                nn.Sequential(nn.Conv2d(a, b, 3, padding=1), nn.BatchNorm2d(b), nn.ReLU())
                for a, b in zip(sizes, sizes[1:])
            )
        )
        self.head = nn.Linear(128, 10)

    def forward(self, images):
        return self.head(self.layers(images).mean((2, 3)))


class Lora(nn.Module):
    """A frozen linear layer with a trained correction of low rank."""

    def __init__(self, base, rank=8):
        super().__init__()
        self.base = base.requires_grad_(False)
        self.down = nn.Parameter(torch.randn(rank, base.in_features, device=DEVICE) * 0.01)
        self.up = nn.Parameter(torch.zeros(base.out_features, rank, device=DEVICE))

    def forward(self, x):
        return self.base(x) + x @ self.down.T @ self.up.T


# The same network as a program that gives nothing away by its names.
class C1(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Parameter(torch.randn(512, 1024, device=DEVICE) * 0.02)
        self.b = nn.Parameter(torch.randn(1024, 512, device=DEVICE) * 0.02)

    def f1(self, x):
        return torch.relu(x @ self.a) @ self.b + x


def f2(parts, x):
    for part in parts:
        x = part.f1(x)
    return x


class O1:
    """Adam, written by hand."""

    def __init__(self, things):
        self.things = list(things)
        self.m = [torch.zeros_like(thing) for thing in self.things]
        self.v = [torch.zeros_like(thing) for thing in self.things]

    @torch.no_grad()
    def f3(self):
        for thing, m, v in zip(self.things, self.m, self.v):
            m.mul_(0.9).add_(thing.grad, alpha=0.1)
            v.mul_(0.99).addcmul_(thing.grad, thing.grad, value=0.01)
            thing.sub_(1e-4 * m / (v.sqrt() + 1e-8))


class Truth:
    """What the tensors at a moment hold, by kind."""

    def __init__(self, marks=False):
        self.saved, self.moments, self.marks = {}, [], marks

    def mark(self):
        """Marks a moment in the recording: takes a block and frees it."""
        size = (7001 + len(self.moments)) * 512
        torch.empty(size, dtype=torch.uint8, device=DEVICE)
        return {"marker": size}

    def hooks(self):
        def pack(tensor):
            if tensor.is_cuda:
                storage = tensor.untyped_storage()
                self.saved[storage.data_ptr()] = storage.nbytes()
            return tensor

        return torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor)

    def look(self, name, parameters=(), gradients=(), optimizer=(), inputs=(), cache=(), with_saved=False):
        torch.cuda.synchronize()
        snapshot = torch.cuda.memory._snapshot()
        events = len(snapshot["device_traces"][0])
        blocks = {
            block["address"]: block["size"]
            for segment in snapshot["segments"]
            for block in segment["blocks"]
            if block["state"] == "active_allocated"
        }
        seen = set()

        def held(pointers):
            total = 0
            for pointer in pointers:
                if pointer in blocks and pointer not in seen:
                    seen.add(pointer)
                    total += blocks[pointer]
            return total

        def pointers(tensors):
            return [tensor.untyped_storage().data_ptr() for tensor in tensors if tensor is not None and tensor.is_cuda]

        at = self.mark() if self.marks else {"events": events}
        moment = {"name": name, **at, "live": sum(blocks.values())}
        moment["parameters"] = held(pointers(parameters))
        moment["gradients"] = held(pointers(gradients))
        moment["optimizer_state"] = held(pointers(optimizer))
        moment["inputs"] = held(pointers(inputs))
        moment["kv_cache"] = held(pointers(cache))
        moment["activations"] = held(list(self.saved)) if with_saved else 0
        moment["rest"] = moment["live"] - sum(blocks[pointer] for pointer in seen)
        self.moments.append(moment)


def state_of(optimizer):
    return [value for state in optimizer.state.values() for value in state.values() if torch.is_tensor(value)]


def record(stacks="python"):
    torch.cuda.memory._record_memory_history(stacks=stacks, max_entries=200_000)


def train(truth, model, optimizer, batches, loss_of, steps=3, leak=None, records_late=False):
    parameters = lambda: list(model.parameters()) + list(model.buffers())
    gradients = lambda: [parameter.grad for parameter in model.parameters()]
    for step in range(steps):
        if records_late and step == 1:
            truth.moments.clear()
            record()
        inputs = batches()
        truth.saved.clear()
        with truth.hooks():
            loss = loss_of(model, *inputs)
        truth.look(f"forward {step}", parameters(), gradients(), state_of(optimizer), inputs, with_saved=True)
        loss.backward()
        truth.saved.clear()
        truth.look(f"backward {step}", parameters(), gradients(), state_of(optimizer), inputs)
        optimizer.step()
        truth.look(f"step {step}", parameters(), gradients(), state_of(optimizer), inputs)
        optimizer.zero_grad(set_to_none=True)
        if leak is not None:
            leak.append(loss)
        truth.look(f"end {step}", parameters(), gradients(), state_of(optimizer), inputs)


def words_loss(model, ids):
    out = model(ids)
    return F.cross_entropy(out[:, :-1].reshape(-1, WORDS), ids[:, 1:].reshape(-1))


def words(batch):
    return lambda: (torch.randint(WORDS, (batch, LENGTH)).to(DEVICE),)


def scenario(name, change, truth):
    batch = 16 if change == "batch" else 8
    if name == "adamw":
        features = [] if change == "features" else None
        model = Gpt(keeps_scores=change == "scores", features=features).to(DEVICE)
        kind = torch.optim.SGD if change == "sgd" else torch.optim.AdamW
        leak = [] if change == "leak" else None
        late = change == "late"
        steps = 30 if change in ("long", "features") else 3
        optimizer = kind(model.parameters(), lr=1e-4)
        train(truth, model, optimizer, words(batch), words_loss, steps=steps, leak=leak, records_late=late)
    elif name == "checkpointing":
        model = Gpt(checkpointing=change != "off").to(DEVICE)
        train(truth, model, torch.optim.AdamW(model.parameters(), lr=1e-4), words(32), words_loss)
    elif name == "compiled":
        model = torch.compile(Gpt().to(DEVICE))
        train(truth, model, torch.optim.AdamW(model.parameters(), lr=1e-4), words(batch), words_loss)
    elif name == "sgd":
        model = Convolutions().to(DEVICE)
        images = lambda: (torch.randn(16, 3, 64, 64).to(DEVICE), torch.randint(10, (16,)).to(DEVICE))
        loss = lambda model, images, labels: F.cross_entropy(model(images), labels)
        train(truth, model, torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9), images, loss)
    elif name == "fsdp":
        import torch.distributed as dist
        from torch.distributed.fsdp import fully_shard

        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29511", RANK="0", WORLD_SIZE="1")
        dist.init_process_group("nccl")
        model = Gpt().to(DEVICE)
        for block in model.blocks:
            fully_shard(block)
        fully_shard(model)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
        local = lambda tensors: [t.to_local() if hasattr(t, "to_local") else t for t in tensors if t is not None]
        for step in range(3):
            (ids,) = words(batch)()
            loss = words_loss(model, ids)
            loss.backward()
            optimizer.step()
            truth.look(
                f"step {step}",
                local(model.parameters()),
                local([parameter.grad for parameter in model.parameters()]),
                local(state_of(optimizer)),
                [ids],
            )
            optimizer.zero_grad(set_to_none=True)
        dist.destroy_process_group()
    elif name == "lora":
        model = Gpt().to(DEVICE).requires_grad_(False)
        for block in model.blocks:
            block.attention.into, block.attention.out = Lora(block.attention.into), Lora(block.attention.out)
        trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
        train(truth, model, torch.optim.AdamW(trained, lr=1e-4), words(batch), words_loss)
    elif name == "kv":
        model = Gpt().to(DEVICE).eval()
        keys = [torch.empty(8, HEADS, 512, WIDTH // HEADS, device=DEVICE) for _ in range(LAYERS)]
        values = [torch.empty_like(key) for key in keys]
        with torch.no_grad():
            x = model.words(torch.randint(WORDS, (8, 1)).to(DEVICE))
            for position in range(24):
                for block, key, value in zip(model.blocks, keys, values):
                    h = block.norm1(x)
                    q, k, v = block.attention.into(h).view(8, 1, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
                    key[:, :, position : position + 1], value[:, :, position : position + 1] = k, v
                    y = F.scaled_dot_product_attention(q, key[:, :, : position + 1], value[:, :, : position + 1])
                    x = x + block.attention.out(y.transpose(1, 2).reshape(8, 1, WIDTH))
                    x = x + block.mlp(block.norm2(x))
                if position % 8 == 7:
                    truth.look(f"token {position}", model.parameters(), cache=keys + values)
                x = model.words(model.head(x).argmax(-1))
    elif name == "growing":
        model = Gpt().to(DEVICE).eval()
        cache = [None] * LAYERS
        with torch.no_grad():
            x = model.words(torch.randint(WORDS, (8, 64)).to(DEVICE))
            for position in range(24):
                for layer, block in enumerate(model.blocks):
                    h = block.norm1(x)
                    q, k, v = block.attention.into(h).view(8, x.shape[1], 3, HEADS, -1).permute(2, 0, 3, 1, 4)
                    if cache[layer] is not None:
                        k, v = torch.cat([cache[layer][0], k], 2), torch.cat([cache[layer][1], v], 2)
                    else:
                        k, v = k.contiguous(), v.contiguous()
                    cache[layer] = (k, v)
                    y = F.scaled_dot_product_attention(q, k, v)
                    x = x + block.attention.out(y.transpose(1, 2).reshape(8, x.shape[1], WIDTH))
                    x = x + block.mlp(block.norm2(x))
                if position % 8 == 7:
                    truth.look(f"token {position}", model.parameters(), cache=[t for pair in cache for t in pair])
                x = model.words(model.head(x[:, -1:]).argmax(-1))
    elif name == "unnamed":
        parts = nn.ModuleList(C1() for _ in range(6))
        o = O1(parts.parameters())
        for step in range(3):
            x = torch.randn(256, 512).to(DEVICE)
            truth.saved.clear()
            with truth.hooks():
                y = f2(parts, x).pow(2).mean()
            gradients = lambda: [p.grad for p in parts.parameters()]
            truth.look(f"forward {step}", parts.parameters(), gradients(), o.m + o.v, [x], with_saved=True)
            y.backward()
            truth.saved.clear()
            truth.look(f"backward {step}", parts.parameters(), gradients(), o.m + o.v, [x])
            o.f3()
            truth.look(f"step {step}", parts.parameters(), gradients(), o.m + o.v, [x])
            for p in parts.parameters():
                p.grad = None
    else:
        sys.exit(f"no scenario {name}")


def main():
    is_room = "--room" in sys.argv
    name, folder, change = ([word for word in sys.argv[1:] if word != "--room"] + [""])[:3]
    torch.manual_seed(1)
    stacks = "all" if change == "all" else "python"
    if change != "late" and not is_room:
        record(stacks)
    truth = Truth(marks=is_room)
    scenario(name, change, truth)
    base = os.path.join(folder, name + (f"-{change}" if change else ""))
    if is_room:
        base += ".room"
    else:
        torch.cuda.memory._dump_snapshot(base + ".pickle")
    with open(base + ".json", "w") as file:
        json.dump({"torch": torch.__version__, "moments": truth.moments}, file, indent=1)


main()
