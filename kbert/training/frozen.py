"""Lower layers that are frozen are computed once for each text, not in each step.

They have no dropout, so what they give for a text is always the same. It is kept, also from one fit to the next, for
the folds and candidates of a search have texts in common.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Iterator
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from kbert.data.batches import Batch
from kbert.forks import LockOfProcess
from kbert.model.base import to_numpy
from kbert.model.parts import LowerPart, UpperPart
from kbert.model.setup import keras
from kbert.text.sequences import Sequences, some_at_a_time
from kbert.training.predict import batch_outputs, batches_for

# Vectors are kept in memory up to so many bytes of one model, and beyond them in a file without a name.
MOST_IN_MEMORY = 512 * 1024**2
_DTYPES = {"float32": np.dtype("f4"), "float16": np.dtype("f2"), "bfloat16": np.dtype(ml_dtypes.bfloat16)}


class _Room(NamedTuple):
    """Vectors that were made together, and the texts that they are of."""

    vectors: NDArray[Any]
    texts: list[bytes]


class Vectors:
    """What the lower part of one model gives for texts: an array (n_tokens, D) for each.

    Parameters
    ----------
    width : int
        D, numbers of a vector.
    dtype : numpy.dtype
        What they are kept in.
    """

    def __init__(self, width: int, dtype: np.dtype[Any]):
        self.width, self.dtype, self.n_bytes = width, dtype, 0
        self._of: dict[bytes, NDArray[Any]] = {}
        self._rooms: list[_Room] = []
        self.lock = LockOfProcess()

    def __contains__(self, text: bytes) -> bool:
        return text in self._of

    def __getitem__(self, text: bytes) -> NDArray[Any]:
        return self._of[text]

    def forget_others(self, texts: set[bytes]) -> None:
        """Drop vectors that none of these texts has, all that were made together at once.

        An array that is still used elsewhere stays valid.
        """
        others = [room for room in self._rooms if texts.isdisjoint(room.texts)]
        self._rooms = [room for room in self._rooms if not texts.isdisjoint(room.texts)]
        for room in others:
            self.n_bytes -= room.vectors.nbytes
            for text in room.texts:
                del self._of[text]

    def size(self, n_tokens: int) -> int:
        """Bytes of the vectors of so many tokens."""
        return n_tokens * self.width * self.dtype.itemsize

    def room(self, n_tokens: int) -> NDArray[Any]:
        """An array (n_tokens, D) to be filled.

        Raises
        ------
        OSError
            Where the temporary folder has no room for it.
        """
        shape, n_bytes = (n_tokens, self.width), self.size(n_tokens)
        if self.n_bytes + n_bytes <= MOST_IN_MEMORY:
            room: NDArray[Any] = np.empty(shape, self.dtype)
        else:
            try:
                with tempfile.TemporaryFile() as file:  # its space is given back when the array goes
                    if hasattr(os, "posix_fallocate"):  # a file with holes would kill the process on a full disk
                        os.posix_fallocate(file.fileno(), 0, n_bytes)
                    room = np.memmap(file, self.dtype, "w+", shape=shape)
            except OSError as error:
                raise OSError(
                    f"What the frozen layers give for the texts takes {n_bytes / 1e9:.1f} GB in "
                    f"{tempfile.gettempdir()}, which could not be had ({error}). Set TMPDIR to a folder with room, or "
                    "freeze=0."
                ) from error
        return room

    def keep(self, texts: list[bytes], lengths: NDArray[np.int64], room: NDArray[Any]) -> None:
        """Have the texts whose vectors stand in ``room``, one after the other."""
        self._of.update(zip(texts, np.split(room, np.cumsum(lengths)[:-1]), strict=True))
        self._rooms.append(_Room(room, texts))
        self.n_bytes += room.nbytes


class _Last:
    """The vectors of the model that was trained last, under a key of all that they depend on."""

    key: str | None = None
    vectors: Vectors | None = None


_last, _lock = _Last(), LockOfProcess()


def _kept_vectors(key: str, width: int, dtype: np.dtype[Any]) -> Vectors:
    with _lock:
        if _last.vectors is None or _last.key != key:
            _last.key, _last.vectors = key, Vectors(width, dtype)
        return _last.vectors


class FrozenPart:
    """The lower part of a model, which is frozen, and what it gives for the texts of a training.

    Parameters
    ----------
    model : keras.Model
    n_layers : int
        How many layers are frozen, beside the embeddings.
    sequences : TokenSequences or QuestionWindows
        All texts of the training.

    Attributes
    ----------
    model : keras.Model
        What is trained: `kbert.model.parts.UpperPart`.
    """

    def __init__(self, model: keras.Model, n_layers: int, sequences: Sequences):
        self.model = UpperPart(model, n_layers)
        lower = LowerPart(model, n_layers)
        width = model.config.hidden_size
        vectors = _kept_vectors(_key_of(lower), width, _DTYPES[model.compute_dtype])
        self._width = width
        texts = list(_names(sequences))
        with vectors.lock:
            _compute(vectors, texts, lower, sequences)
            self._of_text = [vectors[text] for text in texts]

    def inputs_of(self, batch: Batch) -> dict[str, NDArray[Any]]:
        """What the upper part takes of a batch."""
        names = (tensor.name for tensor in self.model.inputs)
        return {**batch.inputs_of(name for name in names if name != "hidden"), "hidden": self._hidden(batch)}

    def _hidden(self, batch: Batch) -> NDArray[np.float32]:
        """The vectors of a batch's tokens, shape (B, T, D); zeros for padding."""
        found = np.zeros((*batch.tokens.shape, self._width), np.float32)
        for row, slot in zip(*np.nonzero(batch.texts >= 0), strict=True):
            vectors = self._of_text[batch.texts[row, slot]]
            start = batch.inputs["first_positions"][row, slot]
            found[row, start : start + len(vectors)] = vectors
        return found


def _compute(vectors: Vectors, texts: list[bytes], lower: keras.Model, sequences: Sequences) -> None:
    """Have the vectors of all texts, the names of the sequences."""
    new = {text: number for number, text in enumerate(texts) if text not in vectors}
    if not new:
        return
    some = sequences.take(np.fromiter(new.values(), np.int64, len(new)))
    n_tokens = int(some.lengths.sum())
    if vectors.n_bytes + vectors.size(n_tokens) > MOST_IN_MEMORY:
        vectors.forget_others(set(texts))
    room = vectors.room(n_tokens)
    for batch, found in batch_outputs(lower, ((batch, batch.inputs) for batch in batches_for(lower, some))):
        is_token = batch.tokens >= 0
        room[batch.tokens[is_token]] = found[is_token]
    vectors.keep(list(new), some.lengths, room)


def frozen_part(model: keras.Model, sequences: Sequences) -> FrozenPart | None:
    """The lower part of a model whose embeddings and first layers are not trained; None where a part of them is.

    The parameters are those of `FrozenPart`.
    """
    encoder = model.encoder
    if encoder.embeddings.trainable:
        return None
    n_layers = next(
        (number for number, layer in enumerate(encoder.transformer_layers) if layer.trainable),
        len(encoder.transformer_layers),
    )
    return FrozenPart(model, n_layers, sequences) if n_layers else None


def _key_of(lower: keras.Model) -> str:
    """What the vectors depend on beside the text: weights, and what is computed of them, in which precision."""
    config, backend = lower.config, keras.backend.backend()
    facts = [backend, lower.dtype_policy.name, config.num_attention_heads, config.hidden_act, config.layer_norm_eps]
    digest = hashlib.blake2b(repr([*facts, [tuple(variable.shape) for variable in lower.weights]]).encode())
    for variable in lower.weights:
        digest.update(to_numpy(variable.value).tobytes())
    return digest.hexdigest()


def _names(sequences: Sequences) -> Iterator[bytes]:
    """A name for each text, by its tokens and where its second text starts."""
    for some in some_at_a_time(sequences):
        splits, tokens = some.tokens.splits, some.tokens.values.astype(np.int32)
        for number, first_length in enumerate(some.first_length.tolist()):
            text = tokens[splits[number] : splits[number + 1]]
            yield hashlib.blake2b(text.tobytes(), digest_size=16, salt=int(first_length).to_bytes(8, "little")).digest()
