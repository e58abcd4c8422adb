"""The weights of rows in a score."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def row_weights(sample_weight: Any, y_true: list[Any], y_pred: list[Any]) -> NDArray[Any]:
    """A weight for each row, ones by default.

    Raises
    ------
    ValueError
        If there are not as many predictions as rows, or a weight is missing, negative or not finite.
    """
    if len(y_true) != len(y_pred):
        raise ValueError(f"y_true has {len(y_true)} rows and y_pred {len(y_pred)}. Give as many predictions as rows.")
    if sample_weight is None:
        return np.ones(len(y_true), dtype=int)
    weights = np.asarray(sample_weight, dtype=float)
    if weights.shape != (len(y_true),) or not np.isfinite(weights).all() or (weights < 0).any():
        raise ValueError(
            f"sample_weight has shape {weights.shape}; give a weight of 0 or more for each of {len(y_true)} rows."
        )
    return weights
