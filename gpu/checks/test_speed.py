"""The host time of an allocation and a free with the pool, compared with PyTorch's native allocator: measured in one process
and one run, without Python.

Needs libmakeroom_pool.so next to makeroom or named by MAKEROOM_POOL_LIBRARY (cargo build --release -p makeroom-pool-c)."""

import json

import pytest

from support.needs import ROOT, pool_library
from support.runs import PROGRAMS, execute, last_line
from support.torch_flags import torch_flags


@pytest.mark.needs("torch", "c++", "pool library")
@pytest.mark.goal("at most a third of the host time of PyTorch's native allocator, for every pattern")
def test_speed(runs, show):
    library, program, log = pool_library(runs.makeroom).resolve(), runs.directory / "pool_speed", runs.directory / "pool_speed.build"
    flags = torch_flags()
    if not flags:
        pytest.skip("no CUDA headers")
    command = ["c++", "-std=c++17", "-O2", PROGRAMS / "pool_speed.cpp", f"-I{ROOT / 'crates/makeroom-pool-c/include'}", library,
               f"-Wl,-rpath,{library.parent}", "-Wl,--allow-shlib-undefined", *flags, "-o", program]
    status = execute(command, log, log.with_suffix(".errors"), 300)
    errors = log.with_suffix(".errors").read_text(errors="replace")
    assert status == 0, f"build failed: {next((line for line in errors.splitlines() if 'error' in line), errors[:200])}"
    run = runs.plain("pool_speed", [program])
    assert run.status == 0, f"exit status {run.status}: {last_line(run.err)}"
    times = json.loads(run.out)
    ratios = {name: time["pool_ns"] / time["native_ns"] for name, time in times.items()}
    text = ", ".join(f"{name} {time['pool_ns']:.0f} of {time['native_ns']:.0f} ns" for name, time in times.items())
    show(f"pool / native, per allocate-and-free pair: {text} {last_line(run.err)}", worst=max(ratios.values()), ratios=ratios)
    assert max(ratios.values()) <= 1 / 3, f"{max(ratios.values()):.2f} of PyTorch's time"
