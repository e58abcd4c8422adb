"""Training a copy of the model whose embedding table holds only the token ids that occur.

Of 30,522 token ids a training set has a few thousand, as a rule. An embedding whose token id does not occur has no
gradient, so Adam's moments of it stay 0, and an update of AdamW does nothing to it but multiply it by 1 - rate * decay.
That can be made up for later. So the copy does without these embeddings, which makes its updates quicker
(docs/project/performance_notes.md).
"""

from __future__ import annotations

import numpy as np

from kbert.data.batches import PADDING_ID, Batch
from kbert.model.encoder import skip_initialisation
from kbert.model.setup import keras, ops
from kbert.text.sequences import Sequences, some_at_a_time
from kbert.training.host_copies import as_numbers
from kbert.training.hyperparameters import Hyperparameters
from kbert.training.step import Tensor

# The table of the copy has a multiple of a sixteenth of the vocabulary, so that similar texts (the folds of a grid
# search) get the same shape, for which the step is compiled once.
_STEPS_OF_SIZE = 16
# Where more than this share of the vocabulary occurs, the model is trained as it is.
_LARGEST_SHARE = 0.8


class TrimmedModel:
    """A copy of a model with a part of its embedding table.

    Parameters
    ----------
    model : keras.Model
        It has an ``encoder`` and a ``get_config``.
    kept_ids : ndarray of int, shape (n_kept,)
        The token ids whose embeddings the copy has, ascending.

    Attributes
    ----------
    model : keras.Model
        The copy, which is trained.
    """

    def __init__(self, model: keras.Model, kept_ids: np.ndarray):
        self._whole_model, self._kept_ids = model, kept_ids
        config = model.get_config()
        with skip_initialisation():
            architecture = {**config["config"], "vocab_size": len(kept_ids)}
            self.model = type(model).from_config({**config, "config": architecture})
        for trimmed, whole in zip(self.model.weights, model.weights, strict=True):
            is_table = tuple(trimmed.shape) != tuple(whole.shape)
            trimmed.assign(ops.take(whole.value, kept_ids, axis=0) if is_table else whole.value)
        # The row of each token id in the copy's table.
        self._rows = np.zeros(model.config.vocab_size, np.int32)
        self._rows[kept_ids] = np.arange(len(kept_ids))
        table = model.encoder.embeddings.word
        self._table_index = next(i for i, variable in enumerate(model.trainable_variables) if variable is table)
        # The factors of updates that the whole model has not had yet, and those that it was given.
        self._decays: list[tuple[np.float32, Tensor]] = []
        self._given: list[np.float32] = []

    def rows(self, token_ids: np.ndarray) -> np.ndarray:
        """The rows of the copy's table in the place of token ids."""
        rows: np.ndarray = self._rows[token_ids]
        return rows

    def inputs_of(self, batch: Batch) -> dict[str, np.ndarray]:
        """What the copy takes of a batch."""
        inputs = batch.inputs_of(tensor.name for tensor in self.model.inputs)
        return {**inputs, "token_ids": self.rows(inputs["token_ids"])}

    def note_update(self, hyper: Hyperparameters, loss: Tensor) -> None:
        """Note how much an update decays an embedding that has no gradient.

        Parameters
        ----------
        hyper : Hyperparameters
            Of the update.
        loss : tensor
            Not finite where the update was skipped, and decayed nothing. It is not read before `write_back`.
        """
        rate, decay = hyper.learning_rates[self._table_index], hyper.decays[self._table_index]
        self._decays.append((np.float32(1) - rate * decay, loss))

    def write_back(self) -> None:
        """Give the whole model the weights of the copy; embeddings that the copy lacks are decayed."""
        # In double precision: there may be many thousand factors.
        decay = np.float32(np.prod(self._factors(), dtype="float64"))
        self._decays = []
        self._given.append(decay)
        for trimmed, whole in zip(self.model.weights, self._whole_model.weights, strict=True):
            if tuple(trimmed.shape) == tuple(whole.shape):
                whole.assign(trimmed.value)
            else:
                decayed = whole.value * decay
                whole.assign(ops.scatter_update(decayed, self._kept_ids[:, None], trimmed.value))

    def _factors(self) -> list[np.float32]:
        finite = np.isfinite(as_numbers([loss for _, loss in self._decays]))
        return [factor for (factor, _), was_made in zip(self._decays, finite, strict=True) if was_made]

    def state(self) -> dict[str, np.ndarray]:
        """The factors, for a checkpoint."""
        return {"given": np.array(self._given, "float32"), "to_give": np.array(self._factors(), "float32")}

    def restore(self, state: dict[str, np.ndarray]) -> None:
        """Take back what `state` gave, in a copy of a model with the weights that it had before all updates."""
        table = self._whole_model.encoder.embeddings.word
        for decay in state["given"]:  # one by one, as they were: each product is rounded
            table.assign(table.value * decay)
        self._given = list(state["given"])
        self._decays = [(factor, 0.0) for factor in state["to_give"]]


def trimmed_model(model: keras.Model, sequences: Sequences) -> TrimmedModel | None:
    """A copy of a model that has the embeddings of some texts; None where it would hardly be smaller.

    Parameters
    ----------
    model : keras.Model
    sequences : TokenSequences or QuestionWindows
        All texts of the training.
    """
    # Where the embeddings are frozen, an update does not touch them.
    if not model.encoder.embeddings.word.trainable:
        return None
    vocab_size = model.config.vocab_size
    occurs = np.zeros(vocab_size, bool)
    occurs[PADDING_ID] = True
    for some in some_at_a_time(sequences):
        occurs[some.tokens.values] = True
    step = -(-vocab_size // _STEPS_OF_SIZE)
    n_kept = -(-int(occurs.sum()) // step) * step
    if n_kept > _LARGEST_SHARE * vocab_size:
        return None
    # Filled up with token ids that do not occur.
    return TrimmedModel(model, np.sort(np.argsort(~occurs, kind="stable")[:n_kept]))
