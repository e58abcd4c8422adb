"""That kbert computes on this device what it computes elsewhere: fit, save, load, and transformers' own outputs.

    fit, DTYPE                    500 rows of SST-2, minilm-l6: accuracy on dev, whether what was saved and loaded
                                  predicts the same, and whether a second fit with the same seed gives the same weights
    parity, float32               the logits of the saved classifier with TF32 off, and those of transformers, which
                                  computes in float32 on the CPU: within 1e-4
    parity, float32 as it comes   the same with the backend's own choice of TF32, for comparison
    parity, bfloat16              within 1e-1, and the same labels
    waits                         how often the host waits for the device in a fit on PyTorch, and where, as PyTorch
                                  itself warns of it
    product peak                  operations a second of large products

``passed`` says whether a cell is within its limits. ``unequal_margin`` is how far apart transformers' two logits are in
the most decided of the rows whose labels differ: next to nothing where only rounding decides.

``weights_drift`` is how far the weights of two fits with the same seed are apart, over the way that training has moved
them. It has to be 0 on a CPU. A GPU may add in another order each time: there it has to be 0.05 at most, with the same
labels, and ``weights_repeat`` says whether it is 0.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np

from gpu_stages import texts
from gpu_stages.setting import Absent, Cell, Setting

LIMITS = {"float32": 1e-4, "bfloat16": 1e-1}
# The most of `weights_drift` on a GPU.
DRIFT = 0.05
# Rows of dev on which logits are compared.
_COMPARED = 256


def cells(setting: Setting) -> list[Cell]:
    """The fits first, since the others compare what they save."""
    compared = [("float32", False), ("float32", True), ("bfloat16", True)]
    return [
        *(Cell(f"fit, {dtype}", {"dtype": dtype}, 30) for dtype in LIMITS),
        *(
            Cell(
                f"parity, {dtype}{' as it comes' * (dtype == 'float32' and as_it_comes)}",
                {"dtype": dtype, "as_it_comes": as_it_comes},
                20,
                ("torch", "transformers"),
            )
            for dtype, as_it_comes in compared
        ),
        Cell("waits", {"dtype": "waits"}, 15),
        Cell("product peak", {"dtype": "peak"}, 10),
    ]


def measure(setting: Setting, seconds: float, dtype: str, as_it_comes: bool | None = None) -> dict[str, Any]:
    """One cell."""
    if dtype == "peak":
        return peaks(setting)
    if dtype == "waits":
        return waits(setting)
    if as_it_comes is None:
        return fit(setting, dtype)
    return parity(setting, dtype, as_it_comes)


def peaks(setting: Setting) -> dict[str, Any]:
    """Operations a second of large products, which other stages compare with."""
    from gpu_stages import device

    found: dict[str, Any] = {}
    for dtype in ("bfloat16", "float32"):
        rate, side = device.product_peak(dtype, setting.miniature)
        found |= {f"{dtype}_tflops": rate / 1e12, f"{dtype}_side": side}
    return found


def waits(setting: Setting) -> dict[str, Any]:
    """Waits in the second fit, when all shapes are recorded."""
    from gpu_stages import device

    if setting.backend != "torch" or not device.is_gpu():
        raise Absent("only PyTorch on CUDA tells of waits")
    import torch

    from kbert import BertClassifier

    folder = texts.weights_folder("minilm-l6", setting)
    some, labels, _, _ = _data(setting, folder)

    def fit_once() -> None:
        BertClassifier.paper(weights=folder, max_length=texts.max_length("sst2", setting), random_state=0).fit(
            some, labels
        )

    fit_once()
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")
        try:
            fit_once()
        finally:
            torch.cuda.set_sync_debug_mode("default")
    places = Counter(f"{Path(one.filename).name}:{one.lineno}" for one in told if "synchroniz" in str(one.message))
    return {"updates": 3 * -(-len(some) // 32), "waits": places.total(), "places": places.most_common(12)}


def _data(setting: Setting, folder: Path) -> tuple[list[str], list[int], list[str], list[int]]:
    n, n_dev = setting.pick(500, 32), setting.pick(872, 32)
    if setting.sst2 is None:
        some, labels = texts.rows("sst2", n + n_dev, folder, setting)
        return some[:n], labels[:n], some[n:], labels[n:]
    from kbert import datasets

    parts = [datasets.load("sst2", part).iloc[:rows] for part, rows in (("train", n), ("dev", n_dev))]
    train, dev = ((part.text.tolist(), part.label.astype(int).tolist()) for part in parts)
    return *train, *dev


def _saved(setting: Setting, dtype: str) -> Path:
    return setting.state / f"{'toy-' * setting.miniature}check-{setting.backend}-{dtype}"


def fit(setting: Setting, dtype: str) -> dict[str, Any]:
    """Fit twice, save and load."""
    from gpu_stages import device
    from kbert import BertClassifier, BertEncoder

    folder = texts.weights_folder("minilm-l6", setting)
    some, labels, dev, dev_labels = _data(setting, folder)

    def fitted() -> BertClassifier:
        longest = texts.max_length("sst2", setting)
        return BertClassifier.paper(weights=folder, max_length=longest, dtype=dtype, random_state=0).fit(some, labels)

    classifier = fitted()
    logits = classifier._outputs(dev)
    classifier.save(_saved(setting, dtype))
    loaded = BertClassifier.load(_saved(setting, dtype))._outputs(dev)
    again: list[BertClassifier] = []
    seconds = device.seconds_of(lambda: again.append(fitted()))
    logits_again = again[0]._outputs(dev)
    drift = weights_drift(classifier.model_, again[0].model_, BertEncoder.from_pretrained(folder))
    same, repeats = float(np.abs(loaded - logits).max()), float(np.abs(logits_again - logits).max())
    labels_repeat = bool(np.array_equal(logits_again.argmax(axis=1), logits.argmax(axis=1)))
    return {
        "accuracy": float(np.mean(logits.argmax(axis=1) == np.array(dev_labels))),
        "released_weights": texts.is_released("minilm-l6", setting),
        "loaded_difference": same,
        "repeat_difference": repeats,
        "labels_repeat": labels_repeat,
        "weights_drift": drift,
        "weights_repeat": drift == 0,
        "second_fit_s": seconds,
        "passed": same <= LIMITS[dtype] and labels_repeat and drift <= (DRIFT if device.is_gpu() else 0),
    }


def weights_drift(first: Any, second: Any, start: Any) -> float:
    """How far the encoders of two models are apart, over how far the first is from where it started."""
    encoders = (first.encoder, second.encoder, start)
    # Without the seeds of dropout.
    arrays = [[array for array in encoder.get_weights() if array.dtype.kind == "f"] for encoder in encoders]

    def squares(one: list[np.ndarray], other: list[np.ndarray]) -> float:
        return sum(float(np.sum((a - b) ** 2, dtype=np.float64)) for a, b in zip(one, other, strict=True))

    return float(np.sqrt(squares(arrays[0], arrays[1]) / squares(arrays[0], arrays[2])))


@contextmanager
def without_tf32(backend: str) -> Iterator[None]:
    """Within this, no TF32, in which a GPU computes float32 products with ten bits after the point."""
    from kbert.training.compiled import _cache

    if backend == "jax":
        import jax

        _cache.clear()  # its keys do not tell the precision
        with jax.default_matmul_precision("highest"):
            yield
        _cache.clear()
        return
    import torch

    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    yield
    torch.set_float32_matmul_precision(before)


def parity(setting: Setting, dtype: str, as_it_comes: bool) -> dict[str, Any]:
    """The saved classifier beside the same folder opened by transformers."""
    import torch
    import transformers

    from kbert import BertClassifier

    folder = _saved(setting, dtype)
    if not folder.is_dir():  # it was fitted on another machine
        fit(setting, dtype)
    _, _, dev, _ = _data(setting, texts.weights_folder("minilm-l6", setting))
    dev = dev[:_COMPARED]
    with nullcontext() if as_it_comes else without_tf32(setting.backend):
        ours = BertClassifier.load(folder)._outputs(dev)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModelForSequenceClassification.from_pretrained(folder, dtype=torch.float32).eval()
    longest = texts.max_length("sst2", setting)
    with torch.no_grad():
        encoded = tokenizer(dev, truncation=True, max_length=longest, padding=True, return_tensors="pt")
        theirs = model(**encoded).logits.numpy()
    difference = float(np.abs(theirs - ours).max())
    is_unequal = theirs.argmax(axis=1) != ours.argmax(axis=1)
    unequal = int(is_unequal.sum())
    margins = np.abs(theirs[:, 1] - theirs[:, 0])[is_unequal]
    return {
        "rows": len(dev),
        "logit_difference": difference,
        "limit": LIMITS[dtype],
        "unequal_labels": unequal,
        "unequal_margin": float(margins.max(initial=0.0)),
        "largest_logit": float(np.abs(theirs).max()),
        "passed": difference <= LIMITS[dtype] and unequal == 0,
    }
