"""Outputs of a model that are not finite numbers are an error: they would be read as any answer at all."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from kbert.errors import DivergedError

if TYPE_CHECKING:
    import keras

# Weights of a trained BERT are under 100. As long as all are under this, LayerNorm keeps every product far below the
# largest number of float32 and bfloat16, 3e38.
_LARGEST_SAFE_WEIGHT = 1e3


def may_overflow(model: keras.Model) -> bool:
    """Whether a model's outputs may not be finite: because of a large weight, or because it computes in float16."""
    if model.compute_dtype == "float16":
        return True
    from kbert.model.base import to_numpy
    from kbert.model.setup import ops

    largest = (ops.max(ops.abs(variable.value)) for variable in model.trainable_variables)
    return not all(float(to_numpy(weight)) < _LARGEST_SAFE_WEIGHT for weight in largest)


def require_finite_weights(weights: Iterable[np.ndarray], n_updates: int) -> None:
    """Refuse weights or moments that an update has destroyed: its own loss may have been finite.

    Raises
    ------
    DivergedError
    """
    if not all(np.isfinite(array).all() for array in weights):
        raise DivergedError(
            f"After update {n_updates} the weights are not finite numbers. Train with a lower learning_rate, a longer "
            "warmup, or dtype='float32'."
        )


def require_finite(finite: np.ndarray, first_row: int = 0) -> None:
    """Refuse a model's outputs for rows of which some are not finite.

    Parameters
    ----------
    finite : ndarray of bool, shape (n_rows,)
        Whether all outputs for a row are finite.
    first_row : int, default=0
        The number of the first of these rows in X.

    Raises
    ------
    DivergedError
    """
    if not finite.all():
        raise DivergedError(
            f"The model's outputs are not finite for {np.count_nonzero(~finite)} of {len(finite)} rows, first for row "
            f"{first_row + int(np.argmin(finite))}. Its weights are not usable: train with a lower learning_rate, or "
            "load another model. Under dtype='float16' numbers over 65,504 overflow: take dtype='float32' or "
            "'bfloat16'."
        )
