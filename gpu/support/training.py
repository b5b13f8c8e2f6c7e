"""The training runs that several sections share: a GPT with a new sequence length in every step."""

SETTINGS = {"native": "backend:native", "expandable": "expandable_segments:True", "async": "backend:cudaMallocAsync"}
STEPS = 8


def allocator(mode):
    """The environment that selects one of PyTorch's allocators."""
    return {"PYTORCH_CUDA_ALLOC_CONF": SETTINGS[mode]}


def command(runs):
    return runs.python("torch_train.py", "gpt2", STEPS)


def recorded(runs, mode):
    """Training under `makeroom run`; sections share this run."""
    return runs.recorded(f"train_{mode}", command(runs), environment=allocator(mode))
