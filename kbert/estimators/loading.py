"""Opening a saved estimator without knowing which one it is."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import kbert
from kbert.errors import WeightsMismatchError
from kbert.estimators.base import BertEstimator
from kbert.estimators.kbert_json import FILE, saved_estimator
from kbert.files.atomic_folder import read_whole
from kbert.hub import resolve_saved


def load(
    folder: str | os.PathLike[str], verify: bool = False, revision: str | None = None, runtime: str = "auto"
) -> Any:
    """Open a saved or exported estimator of any kind.

    Parameters
    ----------
    folder : str or Path
        A folder that an estimator's ``save`` or ``export`` wrote; or a name on the Hugging Face hub, "owner/name", to
        which ``push_to_hub`` uploaded one. What was downloaded stays in the hub's cache, and is taken from there
        without asking the hub again.
    verify : bool, default=False
        Predict a few stored texts and compare with the logits that were stored with them.
    revision : str, optional
        Branch, tag or commit of a hub name. Give the commit to have the same model always.
    runtime : {"auto", "onnxruntime", "openvino", "tensorflow"}, default="auto"
        What runs the model of a folder that ``export`` wrote; see ``load`` of the estimators.

    Returns
    -------
    estimator
        Fitted: a BertClassifier, BertTagger or whatever was saved.

    Raises
    ------
    WeightsNotFoundError, WeightsMismatchError
        When the folder is not there, not complete, or holds no estimator of kbert's.

    ValueError
        When a ``revision`` is given for a folder.

    Examples
    --------
    >>> import kbert
    >>> texts, labels = ["so good", "so bad"] * 20, ["pos", "neg"] * 20
    >>> kbert.BertClassifier("minilm-l6", epochs=1).fit(texts, labels).save("reviews-model")
    >>> kbert.load("reviews-model")
    BertClassifier(epochs=1, size='minilm-l6')
    """

    def find() -> tuple[Path, str | None]:
        path = resolve_saved(folder if isinstance(folder, Path) else os.fspath(folder), revision, FILE)
        return path, saved_estimator(path)

    path, name = read_whole(folder, find)
    if name is None:
        raise WeightsMismatchError(
            f"{os.fspath(folder)!r} holds no saved estimator (there is no {FILE} in {path}). If it holds weights, "
            f"fine-tune from them, BertClassifier(weights={os.fspath(folder)!r}), or open a model that transformers "
            "saved with the estimator of its task, such as BertClassifier.load."
        )
    kind = getattr(kbert, name) if name in kbert.__all__ else None
    if not (isinstance(kind, type) and issubclass(kind, BertEstimator)):
        raise WeightsMismatchError(
            f"{path} holds a {name}, which this version of kbert does not have. Update kbert; or, if it is a class of "
            f"your own, open it with {name}.load."
        )
    return kind.load(path, verify, runtime=runtime)
