"""The start of training: an architecture, a tokenizer and weights, the same for fine-tuning and pre-training."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from kbert.config import BertConfig
from kbert.errors import WeightsMismatchError
from kbert.hub import resolve_folder
from kbert.sizes import named_size
from kbert.text import WordPieceTokenizer
from kbert.text.files import check_vocabulary

if TYPE_CHECKING:
    import keras

Model = TypeVar("Model", bound="keras.Model")
# Copies a folder's arrays into a model, such as `load_encoder_weights`.
Load = Callable[[Model, Path, dict[str, np.ndarray] | None], None]


@dataclass(frozen=True)
class Start:
    """An architecture, a tokenizer, and the weights that training starts from.

    The weights are in a folder, or in a fitted model of the same architecture and head. Without either the start is
    random.

    Attributes
    ----------
    config : BertConfig
    tokenizer : WordPieceTokenizer
    folder : Path or None
        A weights folder.
    model : keras.Model or None
        The model of an earlier fit, which a warm start goes on from.
    """

    config: BertConfig
    tokenizer: WordPieceTokenizer
    folder: Path | None = None
    model: keras.Model | None = None

    def new_model(self, make: Callable[[], Model], load: Load[Model]) -> Model:
        """Make a model with these weights.

        Parameters
        ----------
        make : callable
            Makes a model of this architecture.
        load : callable
            ``load(model, folder, arrays)`` copies a folder's arrays into it. What the folder lacks starts at random.

        Raises
        ------
        WeightsMismatchError
            When the arrays do not have the sizes of the architecture. They are read before the model is made, since a
            damaged config.json may describe one that does not fit into memory.
            Or when the model of an earlier fit was given further weights since.
        """
        from kbert.model.encoder import skip_initialisation
        from kbert.weights.models import read_checkpoint

        arrays = None if self.folder is None else read_checkpoint(self.folder)[1]
        with skip_initialisation(self.folder is not None or self.model is not None):
            model = make()
        if self.model is not None:
            if len(model.weights) != len(self.model.weights):
                raise WeightsMismatchError(
                    f"The model that a warm start goes on from has {len(self.model.weights)} arrays of weights, where "
                    f"its architecture has {len(model.weights)}: low-rank adapters, or layers, were added to it. Save "
                    "the estimator, which merges adapters into the weights, and start from that folder: weights=folder."
                )
            for variable, earlier in zip(model.weights, self.model.weights, strict=True):
                variable.assign(earlier.value)
        elif self.folder is not None:
            load(model, self.folder, arrays)
        return model


def pretrained_start(
    size: str | BertConfig, weights: str | os.PathLike[str], revision: str | None, caller: str
) -> Start:
    """Return the start from released weights, a folder or a hub name.

    Parameters
    ----------
    size : str or BertConfig
        Which released weights ``weights="auto"`` stands for.
    weights : "auto", str or Path
    revision : str or None
        Branch, tag or commit of a hub repository.
    caller : str
        The estimator's name, for messages.

    Raises
    ------
    ValueError
        When the size is an architecture of the user's own and the weights are "auto".
    WeightsNotFoundError, WeightsMismatchError
        When there are no usable weights under that name, or the tokenizer beside them belongs to another model.
    """
    name = weights if isinstance(weights, str) else Path(weights)
    if weights == "auto":
        if isinstance(size, BertConfig):
            raise ValueError(
                f"{caller}: size is a BertConfig, for which there are no released weights. "
                "Give weights=<a folder or a hub name>, or weights=None for a random start."
            )
        name = named_size(size).hub_name
    folder = resolve_folder(name, revision)
    config, tokenizer = BertConfig.from_folder(folder), WordPieceTokenizer.from_pretrained(folder)
    check_vocabulary(tokenizer.vocab_size, config.vocab_size, folder)
    return Start(config, tokenizer, folder)


def random_start(size: str | BertConfig, texts: Iterable[str], vocab_size: int | None = None) -> Start:
    """Return the start from random weights, with a vocabulary that is learned from texts.

    Parameters
    ----------
    size : str or BertConfig
        The architecture. The sizes whose names end in "-cased" tell upper and lower case apart.
    texts : iterable of str
    vocab_size : int, optional
        The most word pieces of the vocabulary; by default as many as the architecture has.
    """
    config = size if isinstance(size, BertConfig) else BertConfig.from_size(size)
    lowercase = not (isinstance(size, str) and size.lower().endswith("-cased"))
    tokenizer = WordPieceTokenizer.train(texts, vocab_size=vocab_size or config.vocab_size, lowercase=lowercase)
    return Start(replace(config, vocab_size=tokenizer.vocab_size, num_trained_positions=None), tokenizer)
