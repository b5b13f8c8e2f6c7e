"""Trains a model with the batch given, for ever or for a number of steps: fit_train.py MODEL BATCH [STEPS].

Models: `gpt` (one length), `conv` (a small residual network), `varied` (the GPT, a new length every step)."""

import itertools
import random
import sys

import torch
import torch.nn.functional as functional
from torch import nn

from gpt import LONGEST, Model, VOCABULARY


class Residual(nn.Module):
    def __init__(self, channels, stride):
        super().__init__()
        self.network = nn.Sequential(
            nn.Conv2d(channels, 2 * channels, 3, stride, 1), nn.BatchNorm2d(2 * channels), nn.ReLU(),
            nn.Conv2d(2 * channels, 2 * channels, 3, 1, 1), nn.BatchNorm2d(2 * channels))
        self.short = nn.Conv2d(channels, 2 * channels, 1, stride)

    def forward(self, x):
        return functional.relu(self.network(x) + self.short(x))


def convolutional():
    blocks = [Residual(32 * 2**number, 2) for number in range(4)]
    return nn.Sequential(nn.Conv2d(3, 32, 7, 2, 3), *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 100))


def main(kind, batch, steps):
    torch.manual_seed(0)
    lengths = random.Random(0)
    with torch.device("cuda"):
        model = convolutional() if kind == "conv" else Model(width=512, layers=6, heads=8)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    for _ in range(steps) if steps else itertools.count():
        if kind == "conv":
            answers = model(torch.randn(batch, 3, 160, 160, device="cuda"))
            wanted = torch.randint(100, (batch,), device="cuda")
        else:
            length = lengths.randrange(128, 513, 8) if kind == "varied" else LONGEST // 2
            tokens = torch.randint(VOCABULARY, (batch, length + 1), device="cuda")
            answers, wanted = model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten()
        functional.cross_entropy(answers, wanted).backward()
        optimizer.step()
        optimizer.zero_grad()
    torch.cuda.synchronize()


main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]) if len(sys.argv) > 3 else 0)
