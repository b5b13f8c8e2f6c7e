"""What checks need: Python modules, compilers, libraries that must be built first. A check without them is skipped."""

import functools
import importlib.util
import os
import shutil
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent


def pool_library(makeroom):
    """libmakeroom_pool.so: next to makeroom, or named by MAKEROOM_POOL_LIBRARY."""
    return Path(os.environ.get("MAKEROOM_POOL_LIBRARY", Path(makeroom).parent / "libmakeroom_pool.so"))


def pool_example(makeroom):
    """The Rust example of the pool: next to makeroom, or named by MAKEROOM_POOL_EXAMPLE."""
    return Path(os.environ.get("MAKEROOM_POOL_EXAMPLE", Path(makeroom).parent / "examples" / "pool"))


def wheel():
    """The newest wheel that python/build made, or the one named by MAKEROOM_WHEEL; None if there is none."""
    if "MAKEROOM_WHEEL" in os.environ:
        return Path(os.environ["MAKEROOM_WHEEL"])
    wheels = sorted((ROOT / "target" / "wheels").glob("makeroom-*.whl"), key=lambda path: path.stat().st_mtime)
    return wheels[-1] if wheels else None


@functools.cache
def has_module(name):
    return importlib.util.find_spec(name) is not None


def missing(what, makeroom, software):
    """Why a check cannot run; None if it can. `what` is one of the words below or the name of a Python module."""
    if what == "gpu":
        return "needs a real GPU" if software else None
    if what == "nvcc":
        return "needs a real GPU: it runs kernels" if software else None if shutil.which("nvcc") else "no nvcc"
    if what == "compiler":
        name = "c++" if software else "nvcc"
        return None if shutil.which(name) else f"no {name}"
    if what in ("cc", "c++"):
        return None if shutil.which(what) else f"no {what}"
    if what == "pool library":
        path = pool_library(makeroom)
        return None if path.exists() else f"no {path}: cargo build --release -p makeroom-pool-c"
    if what == "pool example":
        path = pool_example(makeroom)
        return None if path.exists() else f"no {path}: cargo build --release -p makeroom-pool --examples"
    if what == "wheel":
        return None if wheel() else "no wheel: python/build"
    if software and what in ("torch", "cupy", "jax", "numba"):
        return "needs a real GPU"
    return None if has_module(what) else f"{what} is not installed"
