"""Looking at held-out rows after each epoch, and stopping when they no longer gain."""

from collections.abc import Callable

import keras
import numpy as np


class Evaluation:
    """Called at the end of each epoch; keeps the best weights where it may stop.

    Parameters
    ----------
    model : keras.Model
        The model in training.
    evaluate : callable
        Gives ``{"val_loss": ..., "val_score": ...}`` of its present weights; a higher score is better.
    patience : int or None
        Epochs without a better score after which training stops; None only looks.
    """

    def __init__(self, model: keras.Model, evaluate: Callable[[], dict[str, float]], patience: int | None):
        self.model, self.evaluate, self.patience = model, evaluate, patience
        self.best: tuple[float, float] | None = None
        self.best_epoch = 0
        self.best_weights: list[np.ndarray] = []

    def __call__(self, epoch: int, logs: dict[str, float]) -> dict[str, float]:
        values = self.evaluate()
        if self.patience is not None:
            # Of two epochs with the same score, which small sets often give, the one with the lower loss; where there
            # is no score, as no R² of one row, too. NaN is less than nothing, so that the first would stay the best.
            rank = (np.nan_to_num(values["val_score"], nan=-np.inf), -values["val_loss"])
            if self.best is None or rank > self.best:
                self.best, self.best_epoch = rank, epoch
                self.best_weights = [
                    np.array(keras.ops.convert_to_numpy(v.value)) for v in self.model.trainable_weights
                ]
            elif epoch - self.best_epoch >= self.patience:
                self.model.stop_training = True
        return values

    def restore_best(self) -> None:
        """Put the weights of the best epoch back, where there was a choice."""
        for variable, array in zip(self.model.trainable_weights, self.best_weights, strict=False):
            variable.assign(array)
        self.best_weights = []
