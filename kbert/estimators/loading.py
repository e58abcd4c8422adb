"""Opening a saved estimator without knowing which one it is."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import kbert
from kbert.atomic_folder import complete_interrupted_replacement
from kbert.errors import WeightsMismatchError
from kbert.estimators.persistence import saved_estimator
from kbert.hub import resolve_folder


def load(folder: str | os.PathLike[str], verify: bool = False) -> Any:
    """Open a saved estimator of any kind.

    Parameters
    ----------
    folder : str or Path
        A folder that an estimator's ``save`` wrote; a hub name works too.
    verify : bool, default=False
        Predict a few stored texts and compare with the logits that were stored with them.

    Returns
    -------
    estimator
        Fitted: a BertClassifier, BertTagger or whatever was saved.

    Raises
    ------
    WeightsNotFoundError, WeightsMismatchError
        When the folder is not there, not complete, or holds no estimator of kbert's.

    Examples
    --------
    >>> import kbert
    >>> model = kbert.load("reviews-model")
    """
    complete_interrupted_replacement(folder)
    path = resolve_folder(folder if isinstance(folder, Path) else os.fspath(folder))
    name = saved_estimator(path)
    if name is None:
        raise WeightsMismatchError(
            f"{path} holds no saved estimator. If it holds weights, load them with the estimator that is meant: "
            "kbert.BertClassifier.load(folder), for example."
        )
    if not name.startswith("Bert") or name not in kbert.__all__:
        raise WeightsMismatchError(f"{path} holds a {name}, which this version of kbert does not have. Update kbert.")
    return getattr(kbert, name).load(folder, verify)
