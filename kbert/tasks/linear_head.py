"""Heads that are fitted to the vectors of an encoder as it is: where the training of all weights starts from.

A head that starts at random sends large and meaningless gradients into the encoder, which costs some of what the
checkpoint knows. One that starts from a linear probe does not (Kumar et al., 2022, "Fine-Tuning can Distort Pretrained
Features and Underperform Out-of-Distribution"), if the vectors tell something: see `kbert.tasks.probe.LEAST_EXPLAINED`.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np
from sklearn.exceptions import ConvergenceWarning

if TYPE_CHECKING:
    import keras
    from sklearn.linear_model import LogisticRegression

# Inverse strength of a logistic regression's regularisation, on vectors whose mean squared distance from their centre
# is 1: within a point of the best of 0.3, 1, 3, 10 and 30 on SST-2, AG News and the support messages, at 8 to 250 rows
# a class (minilm-l6).
_C = 2.0
# Regularisation of a ridge regression, for each row. Alone it is better with less, but training that starts from it is
# better with this (docs/benchmarks/defaults.md, "Numbers").
_ALPHA = 0.04
# A label that none of the rows has, or all, is taken to have half a row more, or less: its odds are not 0 or infinity.
_HALF_A_ROW = 0.5


class LinearHead(NamedTuple):
    """The weights of a linear head.

    Attributes
    ----------
    kernel : ndarray of float64, shape (n_features, n_outputs)
    bias : ndarray of float64, shape (n_outputs,)
    """

    kernel: np.ndarray
    bias: np.ndarray

    def __call__(self, vectors: np.ndarray) -> np.ndarray:
        """Outputs for vectors: (n, n_features) to (n, n_outputs)."""
        return vectors @ self.kernel + self.bias

    def assign_to(self, layer: keras.layers.Dense) -> None:
        """Give a layer these weights."""
        layer.kernel.assign(self.kernel)
        layer.bias.assign(self.bias)


class FitHead(Protocol):
    """Fits a head to ``vectors`` (n, n_features), with the targets and the weights that the loss takes."""

    def __call__(self, vectors: np.ndarray, targets: np.ndarray, weights: np.ndarray, n_outputs: int) -> LinearHead:
        """The best head."""
        ...


def softmax_head(vectors: np.ndarray, targets: np.ndarray, weights: np.ndarray, n_outputs: int) -> LinearHead:
    """The head with the lowest cross-entropy of a softmax. ``targets``: the number of each row's class."""
    kernel, bias = np.zeros((vectors.shape[1], n_outputs)), np.full(n_outputs, 0.0)
    some = weights > 0
    vectors, targets, weights = vectors[some], targets[some], weights[some]
    masses = np.bincount(targets, weights, n_outputs)
    present = np.unique(targets)
    bias[masses == 0] = np.log(_HALF_A_ROW / len(vectors))
    if len(present) > 1:
        centre, scale = _centre_and_scale(vectors, weights)
        model = _logistic((vectors - centre) / scale, targets, weights)
        of_classes, offsets = model.coef_.T / scale, model.intercept_
        if len(present) == 2:  # scikit-learn gives the second class's logit over the first one's
            of_classes, offsets = np.hstack([-of_classes, of_classes]) / 2, np.array([-offsets[0], offsets[0]]) / 2
        kernel[:, present], bias[present] = of_classes, offsets - centre @ of_classes
    return LinearHead(kernel, bias)


def sigmoid_head(vectors: np.ndarray, targets: np.ndarray, weights: np.ndarray, n_outputs: int) -> LinearHead:
    """The head with the lowest cross-entropy of each label by itself.

    ``targets``, shape (n, n_outputs), hold the label's weight where a row has it, and less than 0 where it has not.
    """
    kernel, bias = np.zeros((vectors.shape[1], n_outputs)), np.zeros(n_outputs)
    centre, scale = _centre_and_scale(vectors, weights)
    scaled = (vectors - centre) / scale
    for label, column in enumerate(targets.T):
        has_label, mass = column > 0, np.abs(column) * weights
        if has_label[mass > 0].any() and not has_label[mass > 0].all():
            model = _logistic(scaled, has_label, mass)
            kernel[:, label] = model.coef_[0] / scale
            bias[label] = model.intercept_[0] - centre @ kernel[:, label]
        else:
            with_label = np.average(has_label, weights=mass) * len(vectors)
            bias[label] = np.log((with_label + _HALF_A_ROW) / (len(vectors) - with_label + _HALF_A_ROW))
    return LinearHead(kernel, bias)


def ridge_head(vectors: np.ndarray, targets: np.ndarray, weights: np.ndarray, n_outputs: int) -> LinearHead:
    """The head with the lowest squared error. ``targets``: numbers, shape (n, n_outputs)."""
    from sklearn.linear_model import Ridge

    centre, scale = _centre_and_scale(vectors, weights)
    model = Ridge(alpha=_ALPHA * weights.sum()).fit((vectors - centre) / scale, targets, sample_weight=weights)
    kernel = model.coef_.reshape(n_outputs, -1).T / scale
    return LinearHead(kernel, np.broadcast_to(model.intercept_, n_outputs) - centre @ kernel)


def _centre_and_scale(vectors: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, float]:
    """The mean, and the root of the mean squared distance from it: so one regularisation suits all encoders."""
    centre = np.average(vectors, axis=0, weights=weights)
    scale = np.sqrt(np.average(((vectors - centre) ** 2).sum(axis=1), weights=weights))
    return centre, float(scale) if scale > 0 else 1.0


def _logistic(vectors: np.ndarray, labels: np.ndarray, weights: np.ndarray) -> LogisticRegression:
    from sklearn.linear_model import LogisticRegression

    with warnings.catch_warnings():  # a start need not be the very best
        warnings.simplefilter("ignore", ConvergenceWarning)
        warnings.filterwarnings("ignore", "The number of unique classes", UserWarning)  # `check_labels` warns of it
        return LogisticRegression(C=_C, max_iter=200).fit(vectors, labels, sample_weight=weights)
