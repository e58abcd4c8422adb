"""What choices inside the encoder cost: a training step of minilm-l6's shape in plain JAX, on 512 tokens.

    python benchmarks/encoder_step.py

One product for query, key and value or three; dropout bits from JAX's default generator (Threefry) or from the hash of
kbert.model.dropout; rows of 16, 64 or 128 tokens (texts of 16, packed). The variants are timed in turn, several rounds.
"""

import time
from itertools import product

import jax
import numpy as np
import pandas as pd
from jax import numpy as jnp

D, N, H, F, LAYERS, V, TEXT = 384, 12, 32, 1536, 6, 30522, 16
SHAPES = ((32, 16), (8, 64), (4, 128))
RATE, ROUNDS = 0.1, 9


def hashed_bits(shape, seed):
    """The hash of `kbert.model.dropout.random_bits`."""

    def mix(x):
        x = (x ^ (x >> 16)) * np.uint32(0x21F0AAAD)
        x = (x ^ (x >> 15)) * np.uint32(0xD35A2D97)
        return x ^ (x >> 15)

    positions = jax.lax.iota(jnp.uint32, int(np.prod(shape))).reshape(shape)
    return mix(mix(positions + mix(seed)) ^ mix(seed + np.uint32(1)))


def dropout(x, seed, kind):
    if kind == "none":
        return x
    if kind == "hash":
        keep = hashed_bits(x.shape, seed) >= np.uint32(RATE * 2**32)
    else:
        keep = jax.random.bernoulli(jax.random.key(seed), 1 - RATE, x.shape)
    return jnp.where(keep, x / (1 - RATE), 0)


def norm(x, p):
    mean = x.mean(-1, keepdims=True)
    variance = ((x - mean) ** 2).mean(-1, keepdims=True)
    return (x - mean) * jax.lax.rsqrt(variance + 1e-12) * p[0] + p[1]


def linear(x, p):
    return x @ p[0] + p[1]


def start(fused):
    rng = np.random.default_rng(0)

    def dense(rows, columns):
        return jnp.asarray(rng.normal(0, 0.02, (rows, columns)), "float32"), jnp.zeros(columns)

    unit = (jnp.ones(D), jnp.zeros(D))
    layer = {
        "qkv": [dense(D, 3 * D)] if fused else [dense(D, D) for _ in range(3)],
        "out": dense(D, D), "up": dense(D, F), "down": dense(F, D), "norm_1": unit, "norm_2": unit,
    }  # fmt: skip
    table = dense(V, D)[0]
    return {"table": table, "norm": unit, "layers": [jax.tree.map(jnp.copy, layer) for _ in range(LAYERS)]}


def encode(params, tokens, text_ids, seed, fused, kind):
    B, T = tokens.shape
    seeds = iter(range(1, 100))

    def drop(x):
        return dropout(x, seed + np.uint32(next(seeds)), kind)

    x = drop(norm(params["table"][tokens], params["norm"]))
    mask = (text_ids[:, :, None] == text_ids[:, None, :])[:, None]
    for p in params["layers"]:
        if fused:
            q, k, v = jnp.moveaxis(linear(x, p["qkv"][0]).reshape(B, T, 3, N, H), 2, 0)
        else:
            q, k, v = (linear(x, part).reshape(B, T, N, H) for part in p["qkv"])
        scores = jnp.where(mask, jnp.einsum("btnh,bsnh->bnts", q * H**-0.5, k), -1e9)
        context = jnp.einsum("bnts,bsnh->btnh", drop(jax.nn.softmax(scores)), v).reshape(B, T, D)
        x = norm(x + drop(linear(context, p["out"])), p["norm_1"])
        x = norm(x + drop(linear(jax.nn.gelu(linear(x, p["up"]), approximate=False), p["down"])), p["norm_2"])
    return x


def make_step(fused, kind):
    def loss(params, batch, seed):
        return jnp.square(encode(params, *batch, seed, fused, kind)[:, 0]).mean()

    return jax.jit(jax.grad(loss))


def main() -> None:
    runs = []
    for (rows, length), fused, kind in product(SHAPES, (False, True), ("none", "hash", "threefry")):
        tokens = np.random.default_rng(1).integers(0, 5000, (rows, length), dtype="int32")
        text_ids = np.tile(np.arange(length, dtype="int32") // TEXT + 1, (rows, 1))
        step, params = make_step(fused, kind), start(fused)

        def go(step=step, params=params, batch=(tokens, text_ids)):
            jax.block_until_ready(step(params, batch, np.uint32(3)))

        go()
        runs.append(({"row length": length, "QKV": "one" if fused else "three", "dropout": kind}, go, []))
    for _ in range(ROUNDS):
        for _, go, times in runs:
            begin = time.perf_counter()
            go()
            times.append(time.perf_counter() - begin)
    table = pd.DataFrame([{**row, "ms": round(1e3 * float(np.median(times)))} for row, _, times in runs])
    print(table.pivot(index=["row length", "QKV"], columns="dropout", values="ms").to_string())


if __name__ == "__main__":
    main()
