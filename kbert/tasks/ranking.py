"""How well outputs rank what is true above what is not, whatever their level: 1 is perfect, 0 is chance, -1 reversed.

A run may have learned much although no probability reaches 0.5 and its loss is no lower than that of the labels'
frequencies; its ranking tells.
"""

from __future__ import annotations

import numpy as np
from scipy.stats import rankdata


def label_ranking(outputs: np.ndarray, has_label: np.ndarray) -> float:
    """The mean over the labels of 2 AUC - 1, which is Somers' D, of each label against the rest.

    Parameters
    ----------
    outputs : ndarray, shape (n, n_labels)
    has_label : ndarray of bool, shape (n, n_labels)

    Returns
    -------
    float
        Labels that all rows have, or none, do not count; 0 where no others are left.
    """
    n_true = has_label.sum(axis=0)
    mixed = (n_true > 0) & (n_true < len(has_label))
    if not mixed.any():
        return 0.0
    has_label, n_true = has_label[:, mixed], n_true[mixed]
    # The sum of the ranks gives the number of pairs in the right order (Mann and Whitney); ties count half.
    ranks = np.where(has_label, rankdata(outputs[:, mixed], axis=0), 0).sum(axis=0)
    auc = (ranks - n_true * (n_true + 1) / 2) / (n_true * (len(has_label) - n_true))
    return float((2 * auc - 1).mean())


def class_ranking(log_probabilities: np.ndarray, classes: np.ndarray) -> float:
    """`label_ranking` of rows that have one class each: its number, shape (n,)."""
    return label_ranking(log_probabilities, classes[:, None] == np.arange(log_probabilities.shape[1]))


def number_ranking(outputs: np.ndarray, numbers: np.ndarray) -> float:
    """The mean over the columns of the correlation (Spearman's); a column of equal numbers has none, which is 0."""
    ranks = np.stack([rankdata(outputs, axis=0), rankdata(numbers, axis=0)])
    ranks -= ranks.mean(axis=1, keepdims=True)
    sizes = np.sqrt((ranks**2).sum(axis=1)).prod(axis=0)
    return float((ranks.prod(axis=0).sum(axis=0) / np.where(sizes > 0, sizes, 1)).mean())


def option_ranking(scores: np.ndarray, right: np.ndarray) -> float:
    """Of the wrong options the share below the right one in score, less the share above it.

    Parameters
    ----------
    scores : ndarray, shape (n, most options)
        -inf past a row's own options.
    right : ndarray of int, shape (n,)
    """
    of_right = np.take_along_axis(scores, right[:, None], axis=1)
    is_wrong = np.isfinite(scores) & (np.arange(scores.shape[1]) != right[:, None])
    order = np.where(is_wrong, np.sign(np.where(is_wrong, of_right, 0) - np.where(is_wrong, scores, 0)), 0)
    return float(order.sum() / max(1, is_wrong.sum()))
