"""Whether JAX compiles faster if the code of one layer serves for all, and what a step then takes.

    python benchmarks/layer_scan.py

A gradient step of minilm-l6's shape in plain JAX (encoder_step.py, the hashed dropout) on 8 packed rows of 64 tokens:
with the six layers one after the other, as in kbert, and with `jax.lax.scan` over their weights, which lie in one
array for each kind. Tracing, compiling and the step are timed apart; one line each.
"""

import time

import jax
import numpy as np
import pandas as pd
from encoder_step import LAYERS, ROUNDS, TEXT, D, H, N, dropout, encode, linear, norm, start
from jax import numpy as jnp

ROWS, LENGTH = 8, 64


def encode_scanned(params, tokens, text_ids, seed):
    """`encode` with the layers' weights stacked: (LAYERS, ...) each."""
    B, T = tokens.shape
    mask = (text_ids[:, :, None] == text_ids[:, None, :])[:, None]

    def layer(x, inputs):
        p, number = inputs
        seeds = seed + 3 * number.astype(jnp.uint32) + jnp.arange(2, 5, dtype="uint32")
        q, k, v = (linear(x, part).reshape(B, T, N, H) for part in p["qkv"])
        scores = jnp.where(mask, jnp.einsum("btnh,bsnh->bnts", q * H**-0.5, k), -1e9)
        probabilities = dropout(jax.nn.softmax(scores), seeds[0], "hash")
        context = jnp.einsum("bnts,bsnh->btnh", probabilities, v).reshape(B, T, D)
        x = norm(x + dropout(linear(context, p["out"]), seeds[1], "hash"), p["norm_1"])
        wide = jax.nn.gelu(linear(x, p["up"]), approximate=False)
        return norm(x + dropout(linear(wide, p["down"]), seeds[2], "hash"), p["norm_2"]), None

    x = dropout(norm(params["table"][tokens], params["norm"]), seed + np.uint32(1), "hash")
    return jax.lax.scan(layer, x, (params["layers"], jnp.arange(LAYERS)))[0]


def timed(function, *arguments):
    begin = time.perf_counter()
    found = function(*arguments)
    return found, time.perf_counter() - begin


def computed(function, *arguments):
    return jax.block_until_ready(function(*arguments))


def main() -> None:
    tokens = np.random.default_rng(1).integers(0, 5000, (ROWS, LENGTH), dtype="int32")
    text_ids = np.tile(np.arange(LENGTH, dtype="int32") // TEXT + 1, (ROWS, 1))
    seed = np.uint32(3)
    one_by_one = start(False)
    stacked = {**one_by_one, "layers": jax.tree.map(lambda *parts: jnp.stack(parts), *one_by_one["layers"])}
    variants = {
        "one by one": (one_by_one, lambda *given: encode(*given, False, "hash")),
        "scan": (stacked, encode_scanned),
    }
    lines, losses = [], {}
    for name, (params, model) in variants.items():
        step = jax.jit(jax.value_and_grad(lambda *given, model=model: jnp.square(model(*given)[:, 0]).mean()))
        traced, tracing = timed(step.lower, params, tokens, text_ids, seed)
        compiled, compiling = timed(traced.compile)
        losses[name] = float(compiled(params, tokens, text_ids, seed)[0])
        lines.append(({"layers": name, "tracing, s": tracing, "compiling, s": compiling}, compiled, params, []))
    assert np.isclose(*losses.values(), rtol=1e-3), losses
    for _ in range(5 * ROUNDS):
        for _, compiled, params, times in lines:
            times.append(timed(computed, compiled, params, tokens, text_ids, seed)[1])
    table = [{**line, "a step, ms": 1e3 * np.median(times)} for line, _, _, times in lines]
    print(pd.DataFrame(table).round({"tracing, s": 2, "compiling, s": 2, "a step, ms": 0}).to_string(index=False))


if __name__ == "__main__":
    main()
