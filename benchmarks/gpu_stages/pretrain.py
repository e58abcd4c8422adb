"""Pre-training: tokens a second, the share of the measured bfloat16 peak, and the same losses on both backends.

    SIZE, LENGTH      full rows of 128 or 512 tokens, 15% masked, by `kbert.pretraining.Pretraining` as a user runs it:
                      tokens without padding a second of the updates after the first fifth. ``busy`` and ``kernels`` are
                      those of the last updates of a further short run, by the profiler
    SIZE, LENGTH, short texts   the same of texts of a few sentences, which are packed
    losses            tiny for 200 updates, in float32, from weights that do not depend on the backend: ``losses``, and
                      the greatest difference to the other backend's, once that is in the results too

``peak_share`` is the arithmetic of training on these tokens (`kbert.pretraining.rates.flops_per_token`) over that of
large products in the same run.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from gpu_stages import texts
from gpu_stages.records import Results
from gpu_stages.setting import Cell, Setting

SIZES = ("base", "small", "mini", "tiny")
# Rows of a batch, and updates.
_BATCH = {128: 256, 512: 64}
_UPDATES = {"base": 60, "small": 150, "mini": 300, "tiny": 300}
_LOSS_UPDATES = 200
# Updates of the run for the profiler: the second half is profiled, when all is compiled and recorded.
_PROFILED = 16
# Documents of Wikipedia that are read, where they are there.
_DOCUMENTS = 600


def cells(setting: Setting) -> list[Cell]:
    """The losses first, since they need both backends; then the largest model."""
    found = [Cell("losses", {"size": "tiny", "length": setting.pick(128, 16), "kind": "losses"}, 60)]
    for size in setting.pick(SIZES, ("tiny",)):
        for length in setting.pick((512, 128), (16,)):
            for kind in ("full rows", "short texts"):
                name = f"{size}, {length}" + ", short texts" * (kind == "short texts")
                found.append(Cell(name, {"size": size, "length": length, "kind": kind}, 35))
    return found


def measure(setting: Setting, seconds: float, size: str, length: int, kind: str) -> dict[str, Any]:
    """One cell."""
    return losses(setting, size, length) if kind == "losses" else rates(setting, size, length, kind)


@functools.cache
def documents(setting: Setting, longest: int | None = None) -> Any:
    """Tokenised documents of Wikipedia, or of made-up words; with ``longest`` no longer than so many lines each."""
    from kbert.pretraining import Corpus
    from kbert.pretraining.shards import tokenised

    tokenizer = _tokenizer(setting)
    read = list(itertools.islice(_documents(setting, tokenizer), setting.pick(_DOCUMENTS, 40)))
    if longest is not None:
        read = [document[i : i + longest] for document in read for i in range(0, len(document), longest)]
    return list(tokenised(Corpus(read, split="lines"), tokenizer))


def _documents(setting: Setting, tokenizer: Any) -> Iterator[list[str]]:
    from kbert.pretraining import Corpus

    files = wiki_files(setting)
    if files:
        yield from Corpus(files[0], split="lines")
        return
    rng = np.random.default_rng(0)
    words = np.array([word for word in tokenizer.vocab if word.isalpha() and len(word) > 1])
    while True:
        # One of a few words in three says which come next, so that there is something to learn.
        starts = rng.integers(0, min(50, len(words)), 20)
        lines = [words[(start + np.arange(rng.integers(8, 30)) ** 2) % len(words)] for start in starts]
        yield [" ".join(line) for line in lines]


def wiki_files(setting: Setting) -> list[Path]:
    """The files of Wikipedia that are there. In miniature made-up words serve, which take less time to read."""
    if setting.data is None or setting.miniature:
        return []
    return sorted((setting.data / "wiki_en").glob("*.txt*"))


def _tokenizer(setting: Setting) -> Any:
    """That of all sizes: minilm-l6's, which is that of BERT."""
    from kbert import WordPieceTokenizer

    return WordPieceTokenizer.from_pretrained(texts.weights_folder("minilm-l6", setting))


def new_model(setting: Setting, size: str, dtype: str) -> tuple[Any, Any]:
    """A model with random weights, without dropout, and the tokenizer."""
    from kbert import BertForPreTraining

    config = texts.config_of(size, setting).with_dropout(0.0)
    return BertForPreTraining(config, nsp=False, dtype=dtype, seed=0), _tokenizer(setting)


def rates(setting: Setting, size: str, length: int, kind: str) -> dict[str, Any]:
    """Tokens a second, and the share of the peak."""
    from gpu_stages import device
    from kbert.pretraining import Pretraining, PretrainingOptions
    from kbert.pretraining.rates import flops_per_token
    from kbert.training.precision import dtype_policy

    model, tokenizer = new_model(setting, size, dtype_policy("auto"))
    source = documents(setting, None if kind == "full rows" else 1)
    n = setting.pick(_UPDATES[size], 6)
    options = PretrainingOptions(
        max_steps=n,
        phases=((length, 1.0),),
        batch_size=setting.pick(_BATCH[length] if length in _BATCH else 0, 4),
        learning_rate=1e-4,
    )
    run = Pretraining(model, tokenizer, source, options, distribution=None)
    filled = run.first_batch()
    history = run.run()
    first = n // 5
    elapsed, tokens = (float(history[name].iloc[-1] - history[name].iloc[first]) for name in ("seconds", "tokens"))
    memory = device.peak_memory_mb()
    few = setting.pick(_PROFILED, 4)
    again = Pretraining(model, tokenizer, source, replace(options, max_steps=few), distribution=None)
    profiler, profile = device.Profiler(), dict[str, Any]()

    def profiled(step: int) -> None:
        if step == few // 2:
            profiler.start()
        elif step == few:
            device.wait()
            profile.update(profiler.stop())

    again.on_step_end = profiled
    again.run()
    peak = device.peak_of(setting)
    flops = flops_per_token(model.config, length, options.mask_rate, nsp=False)
    return {
        "tokens_s": tokens / elapsed,
        "update_ms": 1e3 * elapsed / (n - 1 - first),
        "peak_share": tokens / elapsed * flops / peak,
        "peak_tflops": peak / 1e12,
        "real_share": filled.n_tokens / filled.inputs["token_ids"].size,
        "memory_mb": memory,
        **profile,
        "batch_size": options.batch_size,
        "updates": n,
        "dtype": model.compute_dtype,
        "last_loss": float(history.mlm_loss.iloc[-1]),
    }


def same_weights(model: Any) -> None:
    """Give a model random weights that depend on no backend: matrices and tables are drawn, the rest stays."""
    rng = np.random.default_rng(0)
    for variable in model.trainable_variables:
        if len(variable.shape) > 1:
            variable.assign(rng.normal(0, 0.02, variable.shape).astype("float32"))


def losses(setting: Setting, size: str, length: int) -> dict[str, Any]:
    """The losses of a run in float32 without dropout and TF32."""
    from gpu_stages.check import without_tf32
    from kbert.pretraining import Pretraining, PretrainingOptions

    n = setting.pick(_LOSS_UPDATES, 4)
    with without_tf32(setting.backend):
        model, tokenizer = new_model(setting, size, "float32")
        same_weights(model)
        options = PretrainingOptions(
            max_steps=n, phases=((length, 1.0),), batch_size=setting.pick(64, 4), learning_rate=1e-3
        )
        history = Pretraining(model, tokenizer, documents(setting), options, distribution=None).run()
    found = history.mlm_loss.to_numpy()
    values: dict[str, Any] = {"first_loss": found[0], "last_loss": found[-1]}
    other = {"jax": "torch", "torch": "jax"}[setting.backend]
    results = Results(setting.out, "pretrain", other, setting.miniature)
    theirs = [line["losses"] for line in results.lines() if line["cell"] == "losses" and "losses" in line]
    if theirs:
        values[f"difference_to_{other}"] = float(np.abs(found - np.array(theirs[-1])).max())
    return {**values, "losses": [round(float(loss), 6) for loss in found]}
