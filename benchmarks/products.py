"""How fast each backend multiplies matrices on this CPU, in float32 and in bfloat16.

    python benchmarks/products.py

Which dtype and which backend kbert takes on a CPU follows from this (docs/project/performance_notes.md). The product is
that of 2,048 tokens with the wide layer of BERT-base; each way has a process of its own. TensorFlow is measured as its
own kernels (oneDNN) and as XLA, JAX as it is and with XLA's flag for oneDNN. A line for each is printed: GFLOP/s, the
best of 20 calls.
"""

import argparse
import os
import subprocess
import sys
import time
from importlib.util import find_spec

import pandas as pd

TOKENS, INNER, COLUMNS, CALLS = 2048, 768, 3072, 20
DTYPES = ("float32", "bfloat16")


def of_torch(dtype: str):
    import torch

    x, kernel = torch.ones(TOKENS, INNER, dtype=getattr(torch, dtype)), torch.ones(INNER, COLUMNS)
    kernel = kernel.to(x.dtype)
    return lambda: x @ kernel


def of_jax(dtype: str):
    import jax
    from jax import numpy as jnp

    x, kernel = jnp.ones((TOKENS, INNER), dtype), jnp.ones((INNER, COLUMNS), dtype)
    product = jax.jit(jnp.matmul)
    return lambda: product(x, kernel).block_until_ready()


def of_tensorflow(dtype: str, jit_compile: bool = False):
    import tensorflow as tf

    x, kernel = tf.ones((TOKENS, INNER), dtype), tf.ones((INNER, COLUMNS), dtype)
    product = tf.function(tf.matmul, jit_compile=jit_compile)
    return lambda: product(x, kernel)[0, 0].numpy()


# What is measured, and the environment that it has.
WAYS = {
    "torch": (of_torch, {}),
    "jax": (of_jax, {}),
    "jax, --xla_cpu_use_onednn": (of_jax, {"XLA_FLAGS": "--xla_cpu_use_onednn=true"}),
    "tensorflow": (of_tensorflow, {}),
    "tensorflow, XLA": (lambda dtype: of_tensorflow(dtype, jit_compile=True), {}),
}


def rate(way: str, dtype: str) -> float:
    product, best = WAYS[way][0](dtype), float("inf")
    for _ in range(1 + CALLS):  # the first one compiles
        start = time.perf_counter()
        product()
        best = min(best, time.perf_counter() - start)
    return 2 * TOKENS * INNER * COLUMNS / best / 1e9


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        print(*[rate(options.child, dtype) for dtype in DTYPES])
        return
    lines = []
    for way, (_, environment) in WAYS.items():
        if find_spec(way.partition(",")[0]):
            call = [sys.executable, __file__, "--child", way]
            done = subprocess.run(call, env={**os.environ, **environment}, capture_output=True, text=True)
            rates = map(float, done.stdout.split()[-2:]) if not done.returncode else [float("nan")] * 2
            columns = [f"{dtype}, GFLOP/s" for dtype in DTYPES]
            lines.append({"": way, **dict(zip(columns, rates, strict=True))})
    print(pd.DataFrame(lines).round().to_string(index=False))


if __name__ == "__main__":
    main()
