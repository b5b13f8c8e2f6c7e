"""Asks for memory until PyTorch refuses, catches that, says so and goes on.

Arguments: the size of a piece in MiB, and how many pieces to ask for at most."""

import sys

import torch

import figures


def main():
    mebibytes, most = int(sys.argv[1]), int(sys.argv[2])
    held = []
    try:
        for _ in range(most):
            held.append(torch.empty(mebibytes << 20, dtype=torch.uint8, device="cuda"))
    except torch.OutOfMemoryError:
        figures.note("refused", torch=figures.torch_counts(), nvml=figures.nvml(), pieces=len(held))
        print(f"refused after {len(held)} pieces of {mebibytes} MiB")
    held.clear()
    torch.cuda.empty_cache()
    print("goes on:", int(torch.arange(100, device="cuda").sum()))
    figures.note("end", torch=figures.torch_counts(), nvml=figures.nvml())


main()
