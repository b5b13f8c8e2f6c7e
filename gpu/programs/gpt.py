"""A GPT, its sizes and one step of its training on random tokens, for the programs that train.

Everything is deterministic: two runs have the same losses to the last bit, whatever the allocator does."""

import os
import random

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

import torch
import torch.nn.functional as functional
from torch import nn

VOCABULARY = 16384
LONGEST = 1024
SIZES = {
    # bound by the host: the GPU waits
    "small": dict(width=256, layers=4, heads=4, batch=4),
    # GPT-2 small
    "gpt2": dict(width=768, layers=12, heads=12, batch=24),
}


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.before_attention, self.before_network = nn.LayerNorm(width), nn.LayerNorm(width)
        self.question, self.answer = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.network = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        batch, length, width = x.shape
        parts = self.question(self.before_attention(x)).view(batch, length, 3, self.heads, -1)
        query, key, value = (part.transpose(1, 2) for part in parts.unbind(2))
        seen = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.answer(seen.transpose(1, 2).reshape(batch, length, width))
        return x + self.network(self.before_network(x))


class Model(nn.Module):
    def __init__(self, width, layers, heads):
        super().__init__()
        self.tokens, self.places = nn.Embedding(VOCABULARY, width), nn.Embedding(LONGEST, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.end = nn.LayerNorm(width)

    def forward(self, tokens):
        x = self.tokens(tokens) + self.places(torch.arange(tokens.shape[1], device=tokens.device))
        for block in self.blocks:
            x = block(x)
        return self.end(x) @ self.tokens.weight.T


class Training:
    """A model with its optimizer, and a sequence of lengths that is the same in every run."""

    def __init__(self, size, seed=0):
        torch.use_deterministic_algorithms(True)
        torch.utils.deterministic.fill_uninitialized_memory = False
        torch.manual_seed(seed)
        self.lengths = random.Random(seed)
        shape = dict(SIZES[size])
        self.batch = shape.pop("batch")
        with torch.device("cuda"):
            self.model = Model(**shape)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=3e-4)

    def step(self):
        """Trains on one batch of a new length; gives the loss."""
        tokens = torch.randint(VOCABULARY, (self.batch, self.lengths.randint(64, LONGEST)))
        tokens = tokens.pin_memory().cuda(non_blocking=True)
        with torch.autocast("cuda", dtype=torch.bfloat16):
            logits = self.model(tokens[:, :-1])
        loss = functional.cross_entropy(logits.flatten(0, 1).float(), tokens[:, 1:].flatten())
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return loss.item()
