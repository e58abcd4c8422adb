"""Estimators that predict, ready for the first request of a service."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Self

from kbert.data.batches import prediction_layouts
from kbert.estimators.base import BertEstimator, of_one_fit
from kbert.estimators.recipe import settled_values
from kbert.training.backends import tokens_at_once
from kbert.training.predict import predict_padding
from kbert.values.number_rules import whole_number


class ServableEstimator(BertEstimator):
    """An estimator with ``warm_up``."""

    def warm_up(self, lengths: Iterable[int] | None = None, n_texts: int = 1) -> Self:
        """Compile what predicting needs now, so that the first request of a service does not wait for it.

        JAX and TensorFlow compile the model for each shape of a batch when they meet it first, which takes a second or
        more. There are few shapes: lengths are rounded up to 16, 24, 32, 48, 64, 96 and so on. What is compiled serves
        as long as the process lives.

        Parameters
        ----------
        lengths : iterable of int, optional
            Numbers of tokens that texts have, special ones included. By default all lengths up to ``max_length``; give
            those that you expect to start faster.
        n_texts : int, default=1
            The most texts of a request; of long texts each window counts as one, of multiple choice each option. A
            request of 32 may make batches of 1, 2, 4, 8, 16 or 32 rows, and each is compiled.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            If a length or ``n_texts`` is not a whole number of at least 1, or a length is over ``max_length``.

        Examples
        --------
        >>> from kbert import BertClassifier
        >>> texts, labels = ["so good", "so bad"] * 20, ["pos", "neg"] * 20
        >>> BertClassifier("minilm-l6", epochs=1).fit(texts, labels).save("reviews")
        >>> classifier = BertClassifier.load("reviews").warm_up(range(1, 33))
        """
        self._predict_padding(lengths, n_texts)
        return self

    @of_one_fit
    def _predict_padding(self, lengths: Iterable[int] | None, n_texts: int) -> None:
        longest = settled_values(vars(self))["max_length"]
        wanted = range(1, longest + 1) if lengths is None else [_length(length, longest) for length in lengths]
        for layout in prediction_layouts(wanted, whole_number(n_texts, "n_texts"), tokens_at_once(self.model_)):
            predict_padding(self.model_, layout)


def _length(value: Any, longest: int) -> int:
    length = whole_number(value, "each of lengths")
    if length > longest:
        raise ValueError(
            f"lengths holds {length}, and no text has more tokens than max_length={longest}: longer ones are cut, or "
            "read in windows. Leave it out."
        )
    return length
