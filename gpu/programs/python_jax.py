"""JAX with the Python package on a real GPU, one part for each run: python python_jax.py watch | explain | fill | profile FOLDER

Prints one JSON object with a sentence and figures; exit status 1 where something does not hold."""

import json
import os
import sys

# Without it, one allocation fills the GPU before the program begins, and the failure is that of the preallocation.
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

import jax
import jax.numpy as jnp

import makeroom

MIB = 1 << 20
kept = []


def leak():
    kept.append(jnp.ones((2 * MIB,), jnp.float32) + len(kept))


def temporary():
    return float(jnp.sum(jnp.ones((64, MIB), jnp.float32) * 2))


def watch():
    temporary()
    with makeroom.watch(lines=True) as w:
        for _ in range(6):
            temporary()
            leak()
            jax.block_until_ready(kept)
            w.step()
    (device,) = w.devices
    lines = [site.place for site in device.leaking]
    figures = {
        "peak": w.peak_bytes, "leak": w.leak_per_step_bytes, "left": w.left_bytes, "source": w.source, "lines": lines,
        "notes": w.notes,
    }
    holds = w.source == "jax" and w.leak_per_step_bytes == 8 * MIB and lines and lines[0].endswith(" leak")
    return bool(holds), f"each step leaks {w.leak_per_step_bytes} bytes at {lines[:1]}, peak {w.peak_bytes >> 20} MiB", figures


def explain():
    """Arrays whose computation failed are not listed: `huge` has no memory, although the program refers to it."""
    held = [jnp.ones((256, MIB), jnp.float32) + number for number in range(4)]
    jax.block_until_ready(held)
    huge = None
    try:
        huge = jnp.ones((1 << 20, MIB), jnp.float32)
        jax.block_until_ready(huge)
    except Exception as error:
        explanation = makeroom.explain(error)
    else:
        return False, "4 TiB fit", {}
    listed, used = sum(site.bytes for site in explanation.sites), in_use()
    at_line = sum(site.bytes for site in explanation.sites if "python_jax.py" in site.place)
    figures = {
        "cause": explanation.cause, "request": explanation.request_bytes, "listed": listed, "in_use": used,
        "is_huge_alive": huge is not None, "notes": explanation.notes, "answer": explanation.text(100),
    }
    (note,) = [note for note in explanation.notes if "largest live arrays" in note] or [""]
    shapes = "4 × float32[256,1048576] (4.00 GiB)" in note and "TiB" not in note
    holds = 4 << 30 <= at_line <= listed <= used and shapes and explanation.cause not in ("none", "undetermined")
    text = f"{explanation.cause}: {listed >> 20} MiB of live buffers listed, {used >> 20} MiB in use"
    return holds, text, figures


def in_use():
    """What JAX's allocator has in use."""
    return jax.local_devices()[0].memory_stats()["bytes_in_use"]


def layer(rows):
    return jax.block_until_ready(jnp.ones((rows, MIB), jnp.float32) + 1)


def fill(rows="1024"):
    """Live buffers fill what JAX may use: all of them are at one line of the program when the next one fails.

    The failed computation frees its other buffer, so the request would succeed when the error is explained.
    """
    held = []
    try:
        while True:
            held.append(layer(int(rows)))
    except Exception as error:
        explanation = makeroom.explain(error)
    taken, used = sum(array.nbytes for array in held), in_use()
    at_line = sum(site.bytes for site in explanation.sites if "python_jax.py" in site.place)
    stats = jax.local_devices()[0].memory_stats()
    figures = {"arrays": len(held), "taken": taken, "at_line": at_line, "stats": stats, "answer": explanation.text(100)}
    holds = len(held) > 1 and taken <= at_line <= used and explanation.cause == "live_data_fills_device"
    text = f"{explanation.cause}: {at_line >> 20} MiB of {taken >> 20} MiB in {len(held)} arrays at lines of the program"
    return holds, text, figures


def profile(folder):
    """The file that JAX writes has the same bytes as its counters, to within rounding and code."""
    held = [jnp.ones((128, MIB), jnp.float32) + number for number in range(2)]
    jax.block_until_ready(held)
    path = os.path.join(folder, "memory.prof")
    jax.profiler.save_device_memory_profile(path)
    used = in_use()
    trace = makeroom.open(path)
    live = sum(trace.allocations["size"])
    holds = trace.kind == "jax-profile" and trace.devices == [0] and abs(live - used) <= 64 * MIB
    return holds, f"the profile has {live >> 20} MiB, JAX's counter {used >> 20} MiB", {"live": live, "in_use": used}


if __name__ == "__main__":
    part, *arguments = sys.argv[1:]
    holds, text, figures = {"watch": watch, "explain": explain, "fill": fill, "profile": profile}[part](*arguments)
    print(json.dumps({"text": text, "figures": figures}))
    sys.exit(0 if holds else 1)
