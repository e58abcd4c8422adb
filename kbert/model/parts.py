"""Parts of a model. All of them have the layers of the whole model, not copies.

Where the lower layers are frozen, what they give for a text is the same in every step, so it need not be computed in
each (`kbert.training.frozen`). And what a model's output owes to each word is seen where the words enter it
(`kbert.training.attributions`).
"""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

from kbert.model.base import Tensor, token_inputs
from kbert.model.layers import BertEmbeddings, SameText
from kbert.model.names import INPUT_NAMES
from kbert.model.setup import keras, ops


class LowerPart(keras.Model):
    """The embeddings and the first layers: BertEncoder's four arrays to vectors (B, T, D).

    Parameters
    ----------
    model : keras.Model
        Has an ``encoder``.
    n_layers : int
        How many of the encoder's layers, from 1 on.
    """

    def __init__(self, model: keras.Model, n_layers: int):
        given = {tensor.name: tensor for tensor in model.encoder.inputs}
        inputs = {name: given[name] for name in INPUT_NAMES}
        super().__init__(inputs=inputs, outputs=model.encoder.transformer_layers[n_layers - 1].output)
        _take_after(self, model, n_layers)


class UpperPart(keras.Model):
    """The other layers and the head: the vectors (B, T, D) as ``hidden``, and what else these take, to the outputs.

    Parameters
    ----------
    model : keras.Model
        Has an ``encoder``, and ``hidden``, the encoder's output in its graph.
    n_layers : int
        How many of the encoder's layers are in the other part.
    """

    def __init__(self, model: keras.Model, n_layers: int):
        # Float32 holds the numbers of all dtypes; the first layer that takes them rounds them back.
        hidden = keras.Input((None, model.config.hidden_size), dtype="float32", name="hidden")
        names = [tensor.name for tensor in model.inputs if tensor.name in ("text_ids", "first_positions")]
        inputs = {"hidden": hidden, **token_inputs(*names)}
        super().__init__(inputs=inputs, outputs=_above(model, n_layers, hidden, inputs))
        _take_after(self, model, n_layers)


class BlendedWords(keras.layers.Layer):
    """The embeddings of a text whose words lie between a baseline's word embeddings and its own.

    The word embedding of a token is ``baseline + share * (own - baseline)``; position and segment embeddings are the
    text's. It computes in float32 under every policy, so that small steps of the shares are not rounded away.

    Parameters
    ----------
    embeddings : BertEmbeddings
        The model's own.
    """

    def __init__(self, embeddings: BertEmbeddings, **kwargs: Any):
        super().__init__(dtype="float32", **kwargs)
        self.embeddings = embeddings

    def call(
        self, token_ids: Tensor, baseline_ids: Tensor, shares: Tensor, position_ids: Tensor, segment_ids: Tensor
    ) -> Tensor:
        own = ops.take(self.embeddings.word, token_ids, axis=0)  # (B, T, D)
        baseline = ops.take(self.embeddings.word, baseline_ids, axis=0)
        words = baseline + shares[..., None] * (own - baseline)
        return self.embeddings.of_words(words, position_ids, segment_ids)

    def compute_output_spec(self, token_ids: Tensor, *_: Any) -> keras.KerasTensor:
        return keras.KerasTensor((*token_ids.shape, self.embeddings.config.hidden_size), "float32")


class BlendedModel(keras.Model):
    """The whole model, of a text whose words lie between a baseline and the text: see `BlendedWords`.

    Beside the model's inputs it takes ``baseline_ids`` (B, T), int32, and ``shares`` (B, T), float32: with shares of 1
    it gives the model's outputs.

    Parameters
    ----------
    model : keras.Model
        Has an ``encoder``, and ``hidden``, the encoder's output in its graph.
    """

    def __init__(self, model: keras.Model):
        names = [tensor.name for tensor in model.inputs]
        inputs = {
            **token_inputs(*names, "baseline_ids"),
            "shares": keras.Input((None,), dtype="float32", name="shares"),
        }
        x = BlendedWords(model.encoder.embeddings, name="blended_words")(
            *(inputs[name] for name in ("token_ids", "baseline_ids", "shares", "position_ids", "segment_ids"))
        )
        super().__init__(inputs=inputs, outputs=_above(model, 0, x, inputs))
        _take_after(self, model, 0)


# One for each model: each leaves nodes in the model's layers for good.
_blended: WeakKeyDictionary[keras.Model, BlendedModel] = WeakKeyDictionary()


def blended_model(model: keras.Model) -> BlendedModel:
    """The `BlendedModel` of a model."""
    found = _blended.get(model)
    if found is None:
        found = _blended[model] = BlendedModel(model)
    return found


def _above(model: keras.Model, n_layers: int, x: Tensor, inputs: dict[str, Tensor]) -> Tensor:
    """The model's output, from the vectors x (B, T, D) that its first ``n_layers`` layers gave."""
    names = [tensor.name for tensor in model.inputs if tensor.name in ("text_ids", "first_positions")]
    if n_layers < len(model.encoder.transformer_layers):
        mask = SameText(name="same_text")(inputs["text_ids"])
        for layer in model.encoder.transformer_layers[n_layers:]:
            x = layer(x, mask)
    given = {tensor.name: tensor for tensor in model.inputs}
    head = keras.Model([model.hidden, *(given[name] for name in names)], model.outputs[0])
    return head([x, *(inputs[name] for name in names)])


def _take_after(part: keras.Model, model: keras.Model, n_layers: int) -> None:
    """Give a part what a compiled function of it depends on (`kbert.training.compiled`)."""
    part.config, part.dtype_policy = model.config, model.dtype_policy
    part.choices = {**model.choices, "of": type(model).__name__, "n_layers": n_layers}
