"""Evaluation on a validation set after each epoch, and early stopping when its score no longer rises."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from kbert.model.base import to_numpy
from kbert.model.setup import keras
from kbert.training.checkpoint_folders import in_order, numbered


def best_epoch(history: Mapping[str, Sequence[float]]) -> int:
    """The number of the epoch, from 1, whose weights early stopping keeps."""
    ranks = [_rank(score, loss) for score, loss in zip(history["val_score"], history["val_loss"], strict=True)]
    return 1 + ranks.index(max(ranks))


def _rank(score: float, loss: float) -> tuple[float, float]:
    """By what epochs are compared.

    Of two epochs with the same score, which small validation sets often give, the one with the lower loss is better;
    and so it is where there is no score, such as R² of one row. That is NaN, which compares as less than nothing, so
    that the first epoch would stay the best.
    """
    return float(np.nan_to_num(score, nan=-np.inf)), -loss


class Evaluation:
    """Called at the end of each epoch; with ``patience``, it keeps the weights of the best epoch and may stop training.

    Parameters
    ----------
    model : keras.Model
        The model in training.
    evaluate : callable
        Gives ``{"val_loss": ..., "val_score": ...}`` of the model as it is now; a higher score is better.
    patience : int or None
        Epochs without a better score after which training stops. None never stops it and keeps no weights.
    """

    def __init__(self, model: keras.Model, evaluate: Callable[[], dict[str, float]], patience: int | None):
        self.model, self.evaluate, self.patience = model, evaluate, patience
        self.best: tuple[float, float] | None = None
        self.best_epoch = 0
        self.best_weights: list[np.ndarray] = []

    def __call__(self, epoch: int) -> dict[str, float]:
        values = self.evaluate()
        if self.patience is not None:
            rank = _rank(values["val_score"], values["val_loss"])
            if self.best is None or rank > self.best:
                self.best, self.best_epoch = rank, epoch
                self.best_weights = [np.array(to_numpy(v.value)) for v in self.model.trainable_weights]
            elif epoch - self.best_epoch >= self.patience:
                self.model.stop_training = True
        return values

    def state(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """What is known of the best epoch, for a checkpoint: its rank and number, and its weights."""
        return {"rank": self.best, "epoch": self.best_epoch}, numbered(self.best_weights)

    def restore(self, facts: dict[str, Any], weights: dict[str, np.ndarray]) -> None:
        """Take back what `state` gave."""
        rank = facts["rank"]
        self.best, self.best_epoch = None if rank is None else (float(rank[0]), float(rank[1])), int(facts["epoch"])
        self.best_weights = in_order(weights)

    def restore_best(self) -> None:
        """Give the model the weights of the best epoch, if they were kept."""
        for variable, array in zip(self.model.trainable_weights, self.best_weights, strict=False):
            variable.assign(array)
        self.best_weights = []
