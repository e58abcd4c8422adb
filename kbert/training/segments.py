"""Whether a model knows the second segment, which the second text of a pair has."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import keras


def check_segments(
    model: keras.Model, in_second: np.ndarray | bool, instead: str = "Join the two texts into one"
) -> None:
    """Refuse second texts for a model of one segment: looked up in silence, they would get zeros on accelerators.

    Parameters
    ----------
    model : keras.Model
    in_second : ndarray or bool
        Not 0 where a token has the segment id 1.
    instead : str
        What the message advises, beside other weights.

    Raises
    ------
    ValueError
        If there is such a token, and the model's table has one row.
    """
    if model.config.type_vocab_size < 2 and np.any(in_second):
        raise ValueError(
            "The texts are pairs, whose second text has segment 1, and the model knows segment 0 alone "
            f"(type_vocab_size 1 in its config.json). {instead}, or take weights with two segments."
        )
