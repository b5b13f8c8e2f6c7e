"""Uses one thing that a pool must not break. Argument: which."""

import sys

import torch


def graph():
    values = torch.arange(1024, device="cuda", dtype=torch.float32)
    for _ in range(3):
        values * 2 + 1
    torch.cuda.synchronize()
    captured = torch.cuda.CUDAGraph()
    with torch.cuda.graph(captured):
        result = values * 2 + 1
    for step in range(4):
        values.fill_(step)
        captured.replay()
        print(result.sum().item())


def streams():
    side = torch.cuda.Stream()
    total = torch.zeros((), device="cuda")
    for step in range(200):
        made = torch.full((1 << 18,), float(step), device="cuda")
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            part = made.sum()
            made.record_stream(side)
        del made
        torch.cuda.current_stream().wait_stream(side)
        total += part
    print(total.item())


def out_of_memory():
    held = []
    try:
        while True:
            held.append(torch.empty(1 << 30, dtype=torch.uint8, device="cuda"))
    except torch.cuda.OutOfMemoryError as error:
        print(len(held), "out of memory" in str(error))
    held.clear()
    torch.cuda.empty_cache()
    print(torch.ones(1 << 20, device="cuda").sum().item())


if __name__ == "__main__":
    globals()[sys.argv[1]]()
