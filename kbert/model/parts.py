"""A model in two parts: its lower layers, where these are frozen, and what is trained above them.

What the lower part gives for a text is the same in every step, so it need not be computed in each
(`kbert.training.frozen`). Both parts have the layers of the whole model, not copies.
"""

from __future__ import annotations

import keras

from kbert.model.base import INPUT_NAMES, Tensor, token_inputs
from kbert.model.layers import SameText


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
        x: Tensor = hidden
        if n_layers < len(model.encoder.transformer_layers):
            mask = SameText(name="same_text")(inputs["text_ids"])
            for layer in model.encoder.transformer_layers[n_layers:]:
                x = layer(x, mask)
        given = {tensor.name: tensor for tensor in model.inputs}
        head = keras.Model([model.hidden, *(given[name] for name in names)], model.outputs[0])
        super().__init__(inputs=inputs, outputs=head([x, *(inputs[name] for name in names)]))
        _take_after(self, model, n_layers)


def _take_after(part: keras.Model, model: keras.Model, n_layers: int) -> None:
    """Give a part what a compiled function of it depends on (`kbert.training.compiled`)."""
    part.config, part.dtype_policy = model.config, model.dtype_policy
    part.choices = {**model.choices, "of": type(model).__name__, "n_layers": n_layers}
