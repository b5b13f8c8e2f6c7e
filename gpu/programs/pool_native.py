"""Uses one thing that only PyTorch's native allocator can do: under `run --pool` it has that allocator. Argument: which."""

import sys

import torch


def history():
    torch.cuda.memory._record_memory_history()
    held = torch.ones(1 << 20, device="cuda")
    print(len(torch.cuda.memory._snapshot()["segments"]) > 0, held.sum().item())


def mempool():
    pool = torch.cuda.MemPool()
    with torch.cuda.use_mem_pool(pool):
        held = torch.ones(1 << 20, device="cuda")
    print(held.sum().item())


def share():
    import torch.multiprocessing as processes

    context = processes.get_context("spawn")
    queue = context.Queue()
    child = context.Process(target=receive, args=(queue,))
    child.start()
    held = torch.ones(1 << 20, device="cuda")
    queue.put(held)
    child.join()
    print(child.exitcode)


def receive(queue):
    print(queue.get().sum().item(), flush=True)


if __name__ == "__main__":
    globals()[sys.argv[1]]()
