"""Which models' transformer layers PyTorch computes in few operations, and with which weights."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from weakref import WeakKeyDictionary

import torch

from kbert.forks import LockOfProcess
from kbert.model.layers import TransformerLayer
from kbert.model.layers_torch import weights_in_use
from kbert.model.products_torch import packed
from kbert.model.setup import keras

# What `FusedLayers.for_predicting` keeps, for as long as the model lives.
_kept: WeakKeyDictionary[keras.Model, FusedLayers] = WeakKeyDictionary()
_lock = LockOfProcess()


class FusedLayers:
    """Has the transformer layers of a model computed by `kbert.model.layers_torch`, or `layers_cuda`.

    Where they compute in bfloat16, it casts their weights once, for a step or a prediction, and not at each use. Those
    of LayerNorm stay in float32.

    Parameters
    ----------
    model : keras.Model
    """

    def __init__(self, model: keras.Model):
        layers = [layer for layer in _layers(model) if isinstance(layer, TransformerLayer)]
        layers = [layer for layer in layers if layer.compute_dtype == "bfloat16"]
        norms = {
            id(v): v.value for layer in layers for v in (*layer.attention_norm.variables, *layer.output_norm.variables)
        }
        # Without the seeds of dropout, which are variables and no weights.
        variables = [v for layer in layers for v in layer.weights if id(v) not in norms]
        if any(variable.value.device.type not in ("cpu", "cuda") for variable in variables):
            variables, norms = [], {}
        self._variables = variables
        self._values = [variable.value.detach() for variable in variables]
        self._given = [variable.value for variable in variables]
        self._stamps = list(map(_stamp, self._given))
        self._cast = [value.to(torch.bfloat16) for value in self._values]
        for cast, variable in zip(self._cast, variables, strict=True):
            cast.requires_grad_(variable.trainable)
        self._by_variable = norms | {id(variable): cast for variable, cast in zip(variables, self._cast, strict=True)}
        self._by_value = {id(variable.value): cast for variable, cast in zip(variables, self._cast, strict=True)}

    @classmethod
    def for_predicting(cls, model: keras.Model) -> FusedLayers:
        """Those of a model's last prediction, if no weight has changed: casting takes as long as predicting a text."""
        with _lock:
            kept = _kept.get(model)
            if kept is None or not kept._is_up_to_date():
                kept = _kept[model] = cls(model)
                kept._pack()
        return kept

    def _pack(self) -> None:
        """Have the cast kernels in the order that products read fastest, which serves for predictions alone."""
        for variable, cast in zip(self._variables, self._cast, strict=True):
            if cast.dim() == 2:
                self._by_variable[id(variable)] = packed(cast.detach())
        self._cast, self._by_value = [], {}

    @staticmethod
    def forget(model: keras.Model) -> None:
        """Free what `for_predicting` keeps of a model."""
        with _lock:
            _kept.pop(model, None)

    def _is_up_to_date(self) -> bool:
        return all(
            stamp is not None and _stamp(value) == stamp for value, stamp in zip(self._given, self._stamps, strict=True)
        )

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
        # A weight may be used itself, as its cast, or as both: by another layer that shares it.
        used = [(parameter, self._by_value.get(id(parameter))) for parameter in parameters]
        tensors = [tensor for pair in used for tensor in pair if tensor is not None]
        found = dict(zip(map(id, tensors), torch.autograd.grad(loss, tensors, allow_unused=True), strict=True))
        if loss.device.type == "cuda":
            self._in_float32(found)
        gradients = []
        for parameter, cast in used:
            gradient = found[id(parameter)]
            by_cast = None if cast is None else found[id(cast)]
            if by_cast is not None:  # `to` keeps the order in memory
                by_cast = by_cast.to(parameter.dtype)
                gradient = by_cast if gradient is None else gradient + by_cast
            gradients.append(torch.zeros_like(parameter) if gradient is None else gradient)
        return gradients

    def _in_float32(self, found: dict[int, torch.Tensor | None]) -> None:
        """Cast the derivatives by casts all at once: a GPU takes as long to begin with one as to cast it."""
        by_casts = {id(cast): array for cast in self._cast if (array := found.get(id(cast))) is not None}
        floats = {key: torch.empty_like(array, dtype=torch.float32) for key, array in by_casts.items()}
        if floats:
            torch._foreach_copy_(list(floats.values()), list(by_casts.values()))
        found |= floats


def _stamp(value: torch.Tensor) -> tuple[int, int] | None:
    """Where a tensor lies, and how often PyTorch has changed it; None where PyTorch does not count.

    That is so for a model that was made under ``torch.inference_mode()``.
    """
    return None if value.is_inference() else (value.data_ptr(), value._version)


def _layers(model: keras.Model) -> Iterator[keras.layers.Layer]:
    """The layers of a functional model, and of the models in it."""
    for layer in model.layers:
        if isinstance(layer, keras.Model):
            yield from _layers(layer)
        else:
            yield layer
