"""Which labels are doubted most."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def label_doubt(probabilities: NDArray[np.float64], given: NDArray[np.int64]) -> NDArray[np.float64]:
    """How much to doubt the given labels, to go by a classifier's probabilities.

    This is 1 minus the self-confidence of confident learning (Northcutt, Jiang and Chuang, 2021, "Confident Learning:
    Estimating Uncertainty in Dataset Labels"), by which cleanlab ranks labels unless it is told otherwise. The
    classifier should not have been trained on the rows.

    Parameters
    ----------
    probabilities : ndarray of shape (n_rows, n_classes)
    given : ndarray of int, shape (n_rows,)
        The number of each row's label; -1 for a label that the classifier does not know.

    Returns
    -------
    ndarray of shape (n_rows,)
        From 0 to 1; the labels with the highest values are the most doubtful.
    """
    return 1 - given_probability(probabilities, given)


def given_probability(probabilities: NDArray[np.float64], given: NDArray[np.int64]) -> NDArray[np.float64]:
    """The probability of each row's given label, shape (n_rows,); 0 for an unknown one, whose number is -1."""
    return np.where(given >= 0, probabilities[np.arange(len(given)), given], 0.0)
