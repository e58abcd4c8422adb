"""Fine-tuning on those rows of the token table that the texts use: of 30,522 a few thousand, as a rule.

A row whose token does not occur has no gradient, so its moments stay 0, and all that AdamW does to it is to multiply it
by 1 - rate * decay at every step. That can be made up for afterwards. So the model that is trained has the other rows.
"""

import keras
import numpy as np
from keras import ops

from kbert.model.encoder import skip_initialisation

# A table has so many sixteenths of its rows, so that similar texts (the folds of a grid search) get the same shape.
_PARTS = 16
# Tables of more than this share of the rows are left as they are.
_LARGEST_SHARE = 0.8
_SEQUENCES_AT_ONCE = 4096


class CompactModel:
    """A copy of a model with some rows of its token table.

    Parameters
    ----------
    model : keras.Model
        Has an ``encoder`` and a ``get_config``.
    rows : ndarray of int, shape (n_rows,)
        The tokens to keep.

    Attributes
    ----------
    model : keras.Model
        The copy, which is trained.
    table : int
        The table's place among the trainable variables.
    """

    def __init__(self, model: keras.Model, rows: np.ndarray):
        self._whole, self._rows = model, rows
        config = model.get_config()
        with skip_initialisation():
            self.model = type(model).from_config({**config, "config": {**config["config"], "vocab_size": len(rows)}})
        for copy, variable in zip(self.model.weights, model.weights, strict=True):
            same = tuple(copy.shape) == tuple(variable.shape)
            copy.trainable = variable.trainable
            copy.assign(variable.value if same else ops.take(variable.value, rows, axis=0))
        self._numbers = np.zeros(model.config.vocab_size, np.int32)
        self._numbers[rows] = np.arange(len(rows))
        table = model.encoder.embeddings.word
        self.table = next(i for i, variable in enumerate(model.trainable_variables) if variable is table)

    def token_ids(self, token_ids: np.ndarray) -> np.ndarray:
        """Tokens by their rows in the copy."""
        return self._numbers[token_ids]

    def write_back(self, decay: float) -> None:
        """Give the model the copy's weights; rows that the copy lacks are multiplied by ``decay``."""
        for copy, variable in zip(self.model.weights, self._whole.weights, strict=True):
            if tuple(copy.shape) == tuple(variable.shape):
                variable.assign(copy.value)
            else:
                decayed = variable.value * np.float32(decay)
                variable.assign(ops.scatter_update(decayed, self._rows[:, None], copy.value))


def compact(model: keras.Model, sequences, pad_id: int) -> CompactModel | None:
    """A copy that suffices for the tokens of some sequences, or None where it would be hardly smaller.

    Parameters
    ----------
    model : keras.Model
    sequences : TokenSequences or QuestionWindows
    pad_id : int
        Token id of the padding.
    """
    table = model.encoder.embeddings.word
    # Where layers are frozen the table is too, and costs an update nothing.
    if not table.trainable:
        return None
    size = model.config.vocab_size
    occurs = np.zeros(size, bool)
    occurs[pad_id] = True
    for start in range(0, len(sequences), _SEQUENCES_AT_ONCE):
        some = np.arange(start, min(start + _SEQUENCES_AT_ONCE, len(sequences)))
        occurs[sequences.take(some).tokens.values] = True
    part = -(-size // _PARTS)
    n_rows = -(-int(occurs.sum()) // part) * part
    if n_rows > _LARGEST_SHARE * size:
        return None
    # Filled up with tokens that do not occur.
    rows = np.sort(np.argsort(~occurs, kind="stable")[:n_rows])
    return CompactModel(model, rows)
