"""Which models' transformer layers PyTorch computes in few operations, and with which weights."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import keras
import torch

from kbert.model.layers import TransformerLayer
from kbert.model.layers_torch import weights_in_use


class FusedLayers:
    """Has the transformer layers of a model computed by `kbert.model.layers_torch`.

    Where they compute in bfloat16, it casts their weights once, for a step or a prediction, and not at each use.

    Parameters
    ----------
    model : keras.Model
    """

    def __init__(self, model: keras.Model):
        layers = [layer for layer in _layers(model) if isinstance(layer, TransformerLayer)]
        variables = [v for layer in layers if layer.compute_dtype == "bfloat16" for v in layer.variables]
        if any(variable.value.device.type != "cpu" for variable in variables):
            variables = []
        self._values = [variable.value.detach() for variable in variables]
        self._cast = [value.to(torch.bfloat16) for value in self._values]
        for cast, variable in zip(self._cast, variables, strict=True):
            cast.requires_grad_(variable.trainable)
        self._by_variable = {id(variable): cast for variable, cast in zip(variables, self._cast, strict=True)}
        self._by_value = {id(variable.value): cast for variable, cast in zip(variables, self._cast, strict=True)}

    @torch.no_grad()
    def cast(self) -> None:
        """Take the weights that the model has now."""
        if self._cast:
            torch._foreach_copy_(self._cast, self._values)

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Within this context, the layers are computed so, with the weights of the last `cast`."""
        token = weights_in_use.set(self._by_variable)
        try:
            yield
        finally:
            weights_in_use.reset(token)

    def gradients(self, loss: torch.Tensor, parameters: list[torch.Tensor]) -> list[torch.Tensor]:
        """The derivatives of a loss by the model's parameters, in float32."""
        cast = [self._by_value.get(id(parameter)) for parameter in parameters]
        used = [*parameters, *(tensor for tensor in cast if tensor is not None)]
        found = torch.autograd.grad(loss, used, allow_unused=True)
        rest = iter(found[len(parameters) :])
        gradients = []
        for parameter, own, other in zip(parameters, found, cast, strict=False):
            by_cast = None if other is None else next(rest)
            gradient = torch.zeros_like(parameter) if own is None and by_cast is None else own
            if by_cast is not None:
                gradient = by_cast.to(parameter.dtype) if own is None else own + by_cast  # in the same order in memory
            gradients.append(gradient)
        return gradients


def _layers(model: keras.Model) -> Iterator[keras.layers.Layer]:
    """The layers of a functional model, and of the models in it."""
    for layer in model.layers:
        if isinstance(layer, keras.Model):
            yield from _layers(layer)
        else:
            yield layer
