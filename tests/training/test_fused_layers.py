"""A layer in few operations of PyTorch is the layer in the operations of every backend, and so are its gradients."""

import gc
import weakref

import keras
import numpy as np
import pytest

from kbert import BertConfig
from kbert.model.heads import BertForSequenceClassification
from kbert.training.step import StepBatch

pytestmark = [
    pytest.mark.backend,
    pytest.mark.skipif(keras.backend.backend() != "torch", reason="of PyTorch: run with KERAS_BACKEND=torch"),
]

DROPOUT = {"hidden_dropout_prob": 0.2, "attention_probs_dropout_prob": 0.3}


def config(**options):
    sizes = {"vocab_size": 50, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
    return BertConfig(**sizes, intermediate_size=48, max_position_embeddings=16, initializer_range=0.2, **options)


@pytest.fixture
def inputs():
    """Two rows of 12 tokens: two texts and some padding, and one text that fills its row."""
    token_ids = np.random.default_rng(0).integers(1, 50, (2, 12)).astype("int32")
    text_ids = np.array([[1] * 5 + [2] * 4 + [0] * 3, [1] * 12], "int32")
    position_ids = np.array([[*range(5), *range(4), 0, 0, 0], [*range(12)]], "int32")
    first_positions = np.array([[0, 5], [0, 0]], "int32")
    return {
        "token_ids": token_ids, "segment_ids": text_ids % 2, "position_ids": position_ids, "text_ids": text_ids,
        "first_positions": first_positions,
    }  # fmt: skip


def outputs_and_gradients(model, inputs, training, fused, monkeypatch):
    """Of a loss that depends on every logit, in training with the random numbers of one seed."""
    import torch

    from kbert.model import layers_torch
    from kbert.training.fused_layers import FusedLayers

    layers = FusedLayers(model)
    calls = []
    original = layers_torch.fused_layer

    def counted(*arguments):
        calls.append(original(*arguments))
        return calls[-1]

    with monkeypatch.context() as patch:
        patch.setattr(layers_torch, "fused_layer", counted if fused else lambda *_: None)
        torch.manual_seed(5)
        with layers.in_use():
            outputs = model(inputs, training=training)
    assert not fused or (calls and all(call is not None for call in calls))
    factors = torch.linspace(-1, 1, outputs.numel()).view(outputs.shape)
    parameters = [variable.value for variable in model.trainable_variables]
    gradients = layers.gradients((outputs * factors).sin().sum(), parameters)
    return outputs.detach(), gradients


@pytest.mark.parametrize("pooling", ["cls", "mean"])
@pytest.mark.parametrize("hidden_act", ["gelu", "gelu_new"])
@pytest.mark.parametrize("training", [False, True])
def test_outputs_and_gradients(inputs, training, hidden_act, pooling, monkeypatch):
    model = BertForSequenceClassification(config(hidden_act=hidden_act, classifier_pooling=pooling, **DROPOUT), 3)
    found, gradients = outputs_and_gradients(model, inputs, training, True, monkeypatch)
    expected, plain = outputs_and_gradients(model, inputs, training, False, monkeypatch)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
    for variable, one, other in zip(model.trainable_variables, gradients, plain, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-5, err_msg=variable.path)


@pytest.mark.parametrize("training", [False, True])
def test_in_bfloat16_they_are_close_to_float32(inputs, training, monkeypatch):
    model = BertForSequenceClassification(config(**DROPOUT), 3, dtype="mixed_bfloat16", seed=1)
    exact = BertForSequenceClassification(config(**DROPOUT), 3, seed=1)
    found, gradients = outputs_and_gradients(model, inputs, training, True, monkeypatch)
    expected, plain = outputs_and_gradients(exact, inputs, training, False, monkeypatch)
    np.testing.assert_allclose(found, expected, atol=0.05)
    for variable, one, other in zip(model.trainable_variables, gradients, plain, strict=True):
        assert one.dtype == other.dtype
        assert (one - other).norm() < 0.05 * other.norm() + 5e-3, variable.path


@pytest.mark.parametrize("pooling", ["cls", "mean"])
@pytest.mark.parametrize("hidden_act", ["gelu", "gelu_new"])
@pytest.mark.parametrize("dtype", ["float32", "mixed_bfloat16"])
@pytest.mark.parametrize("scores", [1, 10**6])
def test_predictions_keep_nothing_for_gradients(inputs, dtype, hidden_act, pooling, scores, monkeypatch):
    """They have a form of their own, though the weights could be trained; attention a row or all rows at a time."""
    import torch

    from kbert.model import layers_torch
    from kbert.training.fused_layers import FusedLayers

    settings = config(hidden_act=hidden_act, classifier_pooling=pooling, **DROPOUT)
    model = BertForSequenceClassification(settings, 3, dtype=dtype)
    monkeypatch.setattr(layers_torch, "_SCORES", scores)
    with torch.no_grad():
        expected = model(inputs)
        for function in (layers_torch._Attention, layers_torch._Expansion, layers_torch._OutputAndNorm):
            monkeypatch.setattr(function, "forward", None)
        layers, predicted = [], layers_torch._predicted
        monkeypatch.setattr(layers_torch, "_predicted", lambda *of: layers.append(of) or predicted(*of))
        with FusedLayers(model).in_use():
            found = model(inputs)
    tolerance = 1e-5 if dtype == "float32" else 0.05
    np.testing.assert_allclose(found.float(), expected.float(), rtol=tolerance, atol=tolerance)
    assert len(layers) == 2


def test_layer_norm_keeps_its_weights_in_float32(inputs, monkeypatch):
    import torch

    from kbert.model import layers_torch

    seen = []

    def noted(residual, shape, gamma, beta, epsilon):
        seen.append((residual.dtype, gamma.dtype, beta.dtype))
        return norm(residual, shape, gamma, beta, epsilon)

    norm = torch.native_layer_norm
    monkeypatch.setattr(layers_torch.torch, "native_layer_norm", noted)
    model = BertForSequenceClassification(config(), 3, dtype="mixed_bfloat16")
    outputs_and_gradients(model, inputs, False, True, monkeypatch)
    assert seen and set(seen) == {(torch.bfloat16, torch.float32, torch.float32)}


def test_gradients_lie_in_memory_as_their_parameters_do(inputs, monkeypatch):
    """So that the optimiser copies none: kernels that come from a file are transposed."""
    import torch

    model = BertForSequenceClassification(config(), 3)
    for variable in model.trainable_variables:
        if len(variable.shape) == 2 and "layer_" in variable.path:
            variable.value.data = variable.value.data.t().contiguous().t()
    _, gradients = outputs_and_gradients(model, inputs, False, True, monkeypatch)
    for variable, gradient in zip(model.trainable_variables, gradients, strict=True):
        if "layer_" in variable.path:
            assert gradient.stride() == variable.value.stride(), variable.path
    assert any(not g.is_contiguous() for g in gradients) and torch.get_num_threads() > 0


def test_weights_that_are_frozen_have_no_gradient(inputs, monkeypatch):
    model = BertForSequenceClassification(config(), 3, dtype="mixed_bfloat16")
    model.encoder.transformer_layers[0].trainable = False
    _, gradients = outputs_and_gradients(model, inputs, True, True, monkeypatch)
    _, plain = outputs_and_gradients(model, inputs, True, False, monkeypatch)
    assert len(gradients) == len(plain) == len(model.trainable_variables)
    for one, other in zip(gradients, plain, strict=True):
        assert (one - other).norm() < 0.05 * other.norm() + 5e-3


def test_weights_that_change_between_steps_are_those_of_the_step(inputs):
    from kbert.training.fused_layers import FusedLayers

    model = BertForSequenceClassification(config(), 3, dtype="mixed_bfloat16")
    layers = FusedLayers(model)
    with layers.in_use():
        before = model(inputs)
    model.encoder.transformer_layers[1].intermediate.kernel.assign(
        model.encoder.transformer_layers[1].intermediate.kernel.value * 2
    )
    layers.cast()
    with layers.in_use():
        after = model(inputs)
    assert abs((after - before).detach()).max() > 1e-3


def test_elsewhere_there_are_derivatives_of_any_order(inputs):
    import torch

    model = BertForSequenceClassification(config(**DROPOUT), 3)
    kernel = model.encoder.transformer_layers[0].intermediate.kernel.value
    (first,) = torch.autograd.grad(model(inputs, training=True).sin().sum(), kernel, create_graph=True)
    (second,) = torch.autograd.grad((first**2).sum(), kernel)
    assert second.abs().max() > 0


def test_this_pytorch_has_what_they_use():
    """Not public in PyTorch: where this fails, look for the new names (`layers_torch`, `products_torch`)."""
    import torch

    from kbert.model import layers_torch, products_torch

    assert layers_torch.can_differentiate
    assert products_torch._linear is not None or not torch.backends.mkldnn.is_available()


@pytest.mark.parametrize("reason", ["activation", "float16", "LoRA", "rate", "PyTorch"])
def test_what_it_cannot_compute_is_left_to_the_layers(inputs, reason, monkeypatch):
    from kbert.model import layers_torch
    from kbert.training.fused_layers import FusedLayers

    model = BertForSequenceClassification(
        config(hidden_act="relu" if reason == "activation" else "gelu", hidden_dropout_prob=0.96), 3,
        dtype="mixed_float16" if reason == "float16" else None,
    )  # fmt: skip
    layer = model.encoder.transformer_layers[0]
    if reason == "LoRA":
        layer.attention.value.enable_lora(2)
    x = keras.ops.cast(keras.random.normal((1, 4, 32)), layer.compute_dtype)
    mask = keras.ops.ones((1, 1, 4, 4), "bool")
    if reason == "PyTorch":
        monkeypatch.setattr(layers_torch, "can_differentiate", False)
    with FusedLayers(model).in_use():
        assert layers_torch.fused_layer(layer, x, mask, x, reason == "rate") is None
        assert layer(x, mask).shape == x.shape


def test_predictions_follow_the_weights():
    """The cast weights of a prediction are kept, until a weight changes."""
    import torch

    from kbert.training.fused_layers import FusedLayers

    model = BertForSequenceClassification(config(), 2, dtype="mixed_bfloat16")
    kernel = model.encoder.transformer_layers[0].output_dense.kernel
    layers = FusedLayers.for_predicting(model)
    assert FusedLayers.for_predicting(model) is layers
    kernel.assign(2 * kernel.value)
    changed = FusedLayers.for_predicting(model)
    assert changed is not layers
    cast = kernel.value.to(torch.bfloat16)
    packed = changed._by_variable[id(kernel)]
    assert torch.equal(packed.to_dense().t() if packed.is_mkldnn else packed, cast)
    FusedLayers.forget(model)
    assert FusedLayers.for_predicting(model) is not changed
    # A model that is gone takes them along.
    reference = weakref.ref(FusedLayers.for_predicting(model))
    del model, kernel, layers, changed
    gc.collect()
    assert reference() is None


def test_kernels_are_packed_for_predicting(inputs, monkeypatch):
    """By a call that is not public: if PyTorch no longer has it, predictions in bfloat16 are slower, and the same."""
    import torch

    from kbert.model import products_torch
    from kbert.training.fused_layers import FusedLayers
    from kbert.training.step_torch import predictor

    model = BertForSequenceClassification(config(), 2, dtype="mixed_bfloat16")
    kernel = model.encoder.transformer_layers[0].intermediate.kernel
    found = predictor(model)(inputs).float().numpy()
    in_bfloat16 = torch.backends.mkldnn.is_available() and torch.ops.mkldnn._is_mkldnn_bf16_supported()
    assert FusedLayers.for_predicting(model)._by_variable[id(kernel)].is_mkldnn == in_bfloat16
    FusedLayers.forget(model)
    monkeypatch.setattr(products_torch, "_pack", None)
    np.testing.assert_allclose(found, predictor(model)(inputs).float().numpy(), atol=0.02)
    assert not FusedLayers.for_predicting(model)._by_variable[id(kernel)].is_mkldnn


def test_predictions_are_not_by_the_products_of_training(inputs, monkeypatch):
    """Their last digits may depend on the number of rows: a row would get another prediction alone."""
    from kbert.model import layers_torch
    from kbert.training.fused_layers import FusedLayers
    from kbert.training.step_torch import predictor

    model, calls = BertForSequenceClassification(config(), 2), []
    product = layers_torch.product_in_training
    monkeypatch.setattr(layers_torch, "product_in_training", lambda *given: calls.append(given) or product(*given))
    predictor(model)(inputs)
    assert not calls
    with FusedLayers(model).in_use():
        model(inputs, training=True).sum().backward()
    assert calls


@pytest.mark.parametrize("optimizer", ["adamw", "lamb"])
def test_predictions_follow_a_training_step(inputs, optimizer):
    """PyTorch's fused AdamW changes weights without counting that as a change."""
    from kbert.training.fused_layers import FusedLayers
    from kbert.training.hyperparameters import Hyperparameters
    from kbert.training.losses import softmax_cross_entropy
    from kbert.training.step_torch import Trainer, predictor

    model = BertForSequenceClassification(config(), 2, dtype="mixed_bfloat16")
    trainer = Trainer(model, softmax_cross_entropy, optimizer)
    predictor(model)(inputs)  # as for a validation set
    n = len(trainer.parameters)
    rates, decays, seed = np.full(n, 0.1, "float32"), np.zeros(n, "float32"), np.array([1, 2], "uint32")
    hyper = Hyperparameters(rates, decays, np.float32(0.1), np.float32(0.001), np.float32(1), seed)
    trainer.train(StepBatch(inputs, np.array([[0, 1], [1, 0]], "int32"), np.full((2, 2), 0.25, "float32")), hyper)
    found = predictor(model)(inputs)
    FusedLayers.forget(model)
    np.testing.assert_array_equal(found.float().numpy(), predictor(model)(inputs).float().numpy())


def test_models_of_inference_mode_predict(inputs):
    """PyTorch does not count the changes of their weights."""
    import torch

    from kbert.training.step_torch import predictor

    with torch.inference_mode():
        model = BertForSequenceClassification(config(), 2, dtype="mixed_bfloat16")
        before = predictor(model)(inputs).float().numpy()
        kernel = model.encoder.transformer_layers[0].output_dense.kernel
        kernel.assign(2 * kernel.value)
        assert not np.array_equal(predictor(model)(inputs).float().numpy(), before)
