"""Damaged recordings, RMM logs and error texts, read by the whole command.

Each input is a file of the repository with random damage: bytes changed, inserted, removed, repeated or cut off, or the
middle of another file. `makeroom why` must answer or refuse it: no panic, no signal, no hang.
"""
import os
import random
import subprocess
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

from harness import Figure, at_most, build, figure, once

ROOT = Path(__file__).resolve().parent.parent.parent
SEEDS = ["crates/makeroom-trace/tests/golden/*.room", "crates/makeroom/tests/cli/*.csv", "examples/**/*.txt"]
LARGEST = 1 << 20
SLOW_S = 10


def options(parser, quick):
    inputs = 500 if quick else 50_000
    parser.add_argument("--inputs", type=int, default=inputs, help=f"[default: {inputs}]")
    parser.add_argument("--seed", type=int, default=16)


@dataclass
class Result:
    answered: int = 0
    refused: int = 0
    slowest_s: float = 0
    bad: list = field(default_factory=list)


def damage(seeds):
    data = bytearray(random.choice(seeds))
    for _ in range(random.choice((1, 1, 2, 4, 16, 64))):
        at, length = random.randrange(len(data) + 1), int(2 ** random.uniform(0, 10))
        match random.randrange(7):
            case 0 if at < len(data):
                data[at] = random.randrange(256)
            case 1 if at < len(data):
                data[at] = random.choice((0, 1, 0x7F, 0x80, 0xFF))
            case 2:
                data[at:at] = random.randbytes(length)
            case 3:
                del data[at : at + length]
            case 4:
                data[at:at] = data[at : at + length] * random.choice((1, 2, 50))
            case 5:
                other = random.choice(seeds)
                start = random.randrange(len(other))
                data[at : at + length] = other[start : start + length]
            case 6 if random.random() < 0.2:
                del data[at:]
    return bytes(data[:LARGEST])


@once
def measured(options):
    random.seed(options.seed)
    seeds = [path.read_bytes() for pattern in SEEDS for path in sorted(ROOT.glob(pattern))]
    result = Result()
    with tempfile.TemporaryDirectory() as directory:
        path = os.path.join(directory, "input")
        for number in range(options.inputs):
            with open(path, "wb") as file:
                file.write(damage(seeds))
            began = time.monotonic()
            command = [build.makeroom(), "why", "--json", path]
            try:
                why = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, timeout=6 * SLOW_S)
                status, said = why.returncode, why.stderr
            except subprocess.TimeoutExpired:
                status, said = None, b"no end"
            took = time.monotonic() - began
            result.slowest_s = max(result.slowest_s, took)
            if status not in (0, 1) or b"panicked" in said or took > SLOW_S:
                kept = f"{tempfile.gettempdir()}/mutated-{number}"
                os.replace(path, kept)
                result.bad.append(f"{kept}: status {status}, {took:.1f} s")
            elif status == 0:
                result.answered += 1
            else:
                result.refused += 1
    return result


@figure
def survived(options):
    result = measured(options)
    note = f"{result.answered} answered, {result.refused} refused" + "".join(f"; {bad}" for bad in result.bad[:4])
    yield Figure("panics, signals and hangs", len(result.bad), f"of {options.inputs}", goal=at_most(0), note=note)


@figure
def slowest(options):
    yield Figure("slowest input", measured(options).slowest_s, "s", goal=at_most(SLOW_S))
