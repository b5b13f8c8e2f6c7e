"""A training loop fed by data-loader workers, which begin by fork or by spawn, with a CUDA program as a subprocess.

The workers only make data. The subprocess uses the GPU and is a process of its own to a recorder."""

import subprocess
import sys

import torch
from torch.utils.data import DataLoader, Dataset

import figures

CHILD = "import torch; print(int(torch.arange(1000, device='cuda').sum()))"


class Squares(Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, index):
        return torch.full((1024,), float(index)), index * index


def main(start):
    model = torch.zeros(1024, device="cuda")
    loader = DataLoader(Squares(), batch_size=8, num_workers=2, multiprocessing_context=start, pin_memory=True)
    for rows, squares in loader:
        model += rows.cuda(non_blocking=True).sum(0)
        print(int(model.sum()), int(squares.cuda(non_blocking=True).sum()), flush=True)
    child = subprocess.run([sys.executable, "-c", CHILD], capture_output=True, text=True)
    print("child", child.returncode, child.stdout.strip(), flush=True)
    print("shell", subprocess.run("exit 7", shell=True).returncode)
    figures.note("end", torch=figures.torch_counts(), nvml=figures.nvml())


if __name__ == "__main__":
    main(sys.argv[1])
