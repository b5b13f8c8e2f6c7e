"""Ranks of one job that share a GPU and step together (with gloo, because NCCL refuses to share a GPU).

The argument names the program: in `heavy`, the last rank keeps something of every step until the GPU is full; in `caught`,
it then frees what it kept and goes on; in `victim`, it takes nearly the whole GPU at the start, and rank 0 fails."""

import sys

import torch
import torch.distributed as dist

GIB = 1 << 30
STEPS = 60


def tensor(size):
    return torch.empty(size, dtype=torch.uint8, device="cuda")


def load_weights():
    return [tensor(GIB // 8) for _ in range(8)]


def keep_scores(kept):
    kept.append(torch.empty(4 * GIB, dtype=torch.uint8, device="cuda"))


def take_cache():
    """All of what is left except 1 GiB."""
    return tensor(torch.cuda.mem_get_info()[0] - GIB)


def main():
    program = sys.argv[1]
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    is_last = rank == dist.get_world_size() - 1
    torch.cuda.set_device(0)
    weights, kept = load_weights(), []
    dist.barrier()
    cache = take_cache() if program == "victim" and is_last else None
    dist.barrier()
    for step in range(STEPS):
        activations = tensor(GIB // 4)
        if program == "victim" and rank == 0 and step == 3:
            kept.append(tensor(2 * GIB))
        elif program != "victim" and is_last:
            try:
                keep_scores(kept)
            except torch.OutOfMemoryError:
                if program == "heavy":
                    raise
                kept.clear()
                torch.cuda.empty_cache()
                print(f"rank {rank} goes on after step {step}", flush=True)
        del activations
        dist.barrier()
    dist.destroy_process_group()
    del weights, cache


main()
