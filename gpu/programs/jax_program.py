"""JAX: a small regression, compiled by XLA, whose losses are printed to the last bit.

XLA chooses kernels by measuring them, unless told not to: then a program has one result."""

import os

os.environ.setdefault("XLA_FLAGS", "--xla_gpu_deterministic_ops=true --xla_gpu_autotune_level=0")
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

import jax
import jax.numpy as jnp


def loss(weights, x, y):
    hidden = jnp.tanh(x @ weights[0])
    return jnp.mean((hidden @ weights[1] - y) ** 2)


@jax.jit
def step(weights, x, y):
    value, slopes = jax.value_and_grad(loss)(weights, x, y)
    return value, [weight - 0.1 * slope for weight, slope in zip(weights, slopes)]


key = jax.random.split(jax.random.PRNGKey(0), 4)
weights = [jax.random.normal(key[0], (256, 512)) * 0.05, jax.random.normal(key[1], (512, 16)) * 0.05]
x, y = jax.random.normal(key[2], (4096, 256)), jax.random.normal(key[3], (4096, 16))
for number in range(8):
    value, weights = step(weights, x, y)
    print(f"step {number}: {float(value).hex()}")
print(jax.devices()[0].platform)
