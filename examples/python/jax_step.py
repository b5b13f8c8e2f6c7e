"""Watches five steps of JAX on a GPU, each of which keeps a slice too many; then runs out of memory and explains it.

    python jax_step.py

On a machine without a GPU, JAX uses the CPU: nothing is watched, a warning says so, and the failure is explained all the same.
"""

from typing import Any

import jax
import jax.numpy as jnp

import makeroom

kept: "list[Any]" = []


def step(weights: Any) -> Any:
    gradients = jnp.tanh(weights @ weights)
    kept.append(gradients[:1024])
    return weights - 0.01 * gradients


def main() -> None:
    weights = jnp.ones((4096, 4096), jnp.float32)
    with makeroom.watch(lines=True) as w:
        for _ in range(5):
            weights = step(weights)
            w.step()
        jax.block_until_ready(weights)
    print(w)
    try:
        # 512 TiB, more than any machine has.
        jax.block_until_ready(jnp.ones((1 << 20, 1 << 27), jnp.float32))
    except Exception as error:
        print(makeroom.explain(error))


if __name__ == "__main__":
    main()
