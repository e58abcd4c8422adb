"""BertForPreTraining: tied embeddings, packed rows, precision, what is trained, input checks, Keras's serialisation."""

import copy
from dataclasses import replace

import keras
import numpy as np
import pytest
from keras import ops

from kbert import BertForPreTraining
from kbert.pretraining.objective import pretraining_losses
from kbert.training.backends import backend_step
from kbert.training.compiled import model_key
from kbert.training.hyperparameters import Hyperparameters
from kbert.training.step import StepBatch

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def toy_config(toy_config):
    """One layer compiles twice as fast as two."""
    return replace(toy_config, num_hidden_layers=1)


@pytest.fixture(scope="module")
def model(toy_config):
    """One in which no weight has its start value, and nothing is dropped."""
    model = BertForPreTraining(toy_config.with_dropout(0.0), seed=1)
    rng = np.random.default_rng(0)
    for weight in model.weights:
        weight.assign(rng.normal(1.0 if weight.name == "gamma" else 0.0, 0.1, weight.shape).astype("float32"))
    return model


@pytest.fixture(scope="module")
def inputs(rows_of, texts):
    """Two rows of 28 tokens with three and two texts; 5 and 4 tokens to predict, and a free slot."""
    return {
        **rows_of([[texts[9], texts[4], texts[3]], [texts[11], texts[1]]], 28),
        "first_positions": np.array([[0, 11, 17], [0, 13, 0]], "int32"),
        "masked_positions": np.array([[3, 1, 12, 16, 18], [2, 5, 14, 7, 0]], "int32"),
    }


@pytest.fixture(scope="module")
def targets():
    """Some of the masked tokens are also among those of the rows."""
    return {
        "mlm": np.array([[5, 17, 99, 63, 5], [40, 41, 42, 8, 0]], "int32"),
        "nsp": np.array([[0, 1, 1], [1, 0, 0]], "int32"),
    }


WEIGHTS = {
    "mlm": np.array([[1] * 5, [1] * 4 + [0]], "float32") / 9,
    "nsp": np.array([[1] * 3, [1] * 2 + [0]], "float32") / 5,
}


def _outputs(model, inputs, **options):
    return {name: ops.convert_to_numpy(tensor) for name, tensor in model(inputs, **options).items()}


def _without_nsp(inputs):
    return {name: array for name, array in inputs.items() if name != "first_positions"}


def _hyper(model, learning_rate=0.0):
    n = len(model.trainable_variables)
    rates = np.full(n, learning_rate, "float32")
    return Hyperparameters(rates, np.zeros(n, "float32"), *map(np.float32, (0.1, 0.001, 1.0)), np.zeros(2, "uint32"))


def _gradients(model, inputs, targets):
    trainer = backend_step().Trainer(model, pretraining_losses)
    gradients, losses = trainer.accumulate(StepBatch(inputs, targets, WEIGHTS), _hyper(model))
    paths = [variable.path for variable in model.trainable_variables]
    return dict(zip(paths, map(ops.convert_to_numpy, gradients), strict=True)), float(losses[0])


# === What it computes ===


@pytest.mark.backend
def test_logits_are_the_heads_of_the_encoders_vectors(model, toy_config, inputs):
    outputs = _outputs(model, inputs)
    assert {name: array.shape for name, array in outputs.items()} == {
        "mlm_logits": (2, 5, toy_config.vocab_size),
        "nsp_logits": (2, 3, 2),
    }
    encoder, head = model.encoder, model.mlm_head
    hidden = ops.convert_to_numpy(encoder({name: inputs[name] for name in encoder.input})["sequence_output"])
    word, kernel, dense_bias, gamma, beta, bias, nsp_kernel, nsp_bias = (
        ops.convert_to_numpy(variable.value)
        for variable in (
            *(encoder.embeddings.word, head.dense.kernel, head.dense.bias, head.norm.gamma, head.norm.beta, head.bias),
            *(model.nsp_head.kernel, model.nsp_head.bias),
        )
    )
    for b in range(2):
        x = hidden[b, inputs["masked_positions"][b]] @ kernel + dense_bias
        x = ops.convert_to_numpy(ops.gelu(x, approximate=False))
        x = (x - x.mean(axis=1, keepdims=True)) / x.std(axis=1, keepdims=True) * gamma + beta
        np.testing.assert_allclose(outputs["mlm_logits"][b], x @ word.T + bias, rtol=0, atol=1e-4)
        pooled = ops.convert_to_numpy(encoder.pooler(hidden[b, inputs["first_positions"][b]]))
        np.testing.assert_allclose(outputs["nsp_logits"][b], pooled @ nsp_kernel + nsp_bias, rtol=0, atol=1e-5)


@pytest.mark.backend
def test_logits_of_packed_texts_are_those_of_each_alone(model, inputs, rows_of, texts):
    packed = _outputs(model, inputs)
    order = [texts[i] for i in (9, 4, 3, 11, 1)]
    alone = _outputs(
        model,
        {
            **rows_of([[text] for text in order], 28),
            "first_positions": np.zeros((5, 1), "int32"),
            "masked_positions": np.array([[3, 1], [1, 5], [1, 0], [2, 5], [1, 0]], "int32"),
        },
    )
    both = [((0, 0), (0, 0)), ((0, 1), (0, 1)), ((0, 2), (1, 0)), ((0, 3), (1, 1)), ((0, 4), (2, 0))]
    both += [((1, 0), (3, 0)), ((1, 1), (3, 1)), ((1, 2), (4, 0))]
    for here, there in both:
        np.testing.assert_allclose(packed["mlm_logits"][here], alone["mlm_logits"][there], rtol=0, atol=1e-5)
    slots = [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1)]
    np.testing.assert_allclose(
        [packed["nsp_logits"][slot] for slot in slots], alone["nsp_logits"][:, 0], rtol=0, atol=1e-5
    )


# === Tied embeddings ===


def test_the_word_embeddings_are_one_variable(model, toy_config):
    size = (toy_config.vocab_size, toy_config.hidden_size)
    assert [tuple(weight.shape) for weight in model.weights].count(size) == 1
    assert not any(weight is model.encoder.embeddings.word for weight in model.mlm_head.weights)


@pytest.mark.backend
def test_the_gradient_of_the_word_embeddings_is_the_sum_of_both_uses(model, inputs, targets):
    gradients, loss = _gradients(model, inputs, targets)
    word = model.encoder.embeddings.word
    gradient = gradients[word.path]
    before = ops.convert_to_numpy(word.value).copy()

    def loss_at(table):
        word.assign(table)
        outputs = {name: ops.cast(tensor, "float32") for name, tensor in model(inputs).items()}
        return ops.convert_to_numpy(pretraining_losses(outputs, *_tensors(targets, WEIGHTS)))[0].item()

    rng = np.random.default_rng(0)
    # Of a token in a row and among the targets; of one in a row alone; of one that is only a wrong answer.
    in_rows = set(np.unique(inputs["token_ids"][inputs["text_ids"] > 0]).tolist())
    wanted = set(targets["mlm"][WEIGHTS["mlm"] > 0].tolist())
    kinds = [in_rows & wanted, in_rows - wanted, set(range(100)) - in_rows - wanted]
    assert all(kinds)
    try:
        assert loss_at(before) == pytest.approx(loss, abs=1e-5)
        for tokens in kinds:
            direction = np.zeros_like(before)
            direction[list(tokens)] = rng.normal(size=(len(tokens), before.shape[1]))
            direction /= np.linalg.norm(direction)
            slope = (loss_at(before + 0.02 * direction) - loss_at(before - 0.02 * direction)) / 0.04
            assert slope == pytest.approx((gradient * direction).sum(), rel=0.02, abs=2e-4)
            assert np.abs(gradient[list(tokens)]).max() > 1e-3
    finally:
        word.assign(before)


def _tensors(*dicts):
    return ({name: ops.convert_to_tensor(array) for name, array in values.items()} for values in dicts)


def test_a_head_that_is_not_trained_leaves_the_embeddings_trained(toy_config):
    model = BertForPreTraining(toy_config)
    model.mlm_head.trainable = False
    assert any(variable is model.encoder.embeddings.word for variable in model.trainable_variables)


# === What is trained ===


@pytest.mark.compiles
@pytest.mark.backend
@pytest.mark.parametrize("nsp", [True, False])
def test_a_step_trains_every_weight_that_the_loss_depends_on(toy_config, inputs, targets, nsp):
    model = BertForPreTraining(toy_config, nsp=nsp, seed=1)
    inputs = inputs if nsp else _without_nsp(inputs)
    before = [ops.convert_to_numpy(weight.value).copy() for weight in model.weights]
    trainer = backend_step().Trainer(model, pretraining_losses)
    assert np.isfinite(
        ops.convert_to_numpy(trainer.train(StepBatch(inputs, targets, WEIGHTS), _hyper(model, 1e-3)))
    ).all()
    trainer.write_back()
    changed = {
        weight.path: not np.array_equal(array, ops.convert_to_numpy(weight.value))
        for weight, array in zip(model.weights, before, strict=True)
    }
    # A bias of the keys moves all scores of a query alike, which the softmax does not see.
    still = {path for path, moved in changed.items() if not moved and "key/bias" not in path}
    assert still == (set() if nsp else {"pooler/dense/kernel", "pooler/dense/bias"})


def test_without_nsp_neither_head_nor_pooler_is_there_to_train(toy_config):
    model = BertForPreTraining(toy_config, nsp=False)
    assert model.nsp_head is None and set(model.output) == {"mlm_logits"} and "first_positions" not in model.input
    assert not any(variable is model.encoder.pooler.dense.kernel for variable in model.trainable_variables)


# === Start ===


def test_the_heads_start_as_the_paper_says(toy_config):
    model = BertForPreTraining(toy_config, seed=2)
    kernels = [model.mlm_head.dense.kernel, model.nsp_head.kernel]
    for kernel in kernels:
        values = ops.convert_to_numpy(kernel.value)
        assert np.abs(values).max() <= 0.04 and 0.01 < values.std() < 0.025
    assert len({float(ops.convert_to_numpy(weight.value).ravel()[0]) for weight in kernels}) == 2
    biases = [model.mlm_head.bias, model.mlm_head.dense.bias, model.mlm_head.norm.beta, model.nsp_head.bias]
    assert not any(ops.convert_to_numpy(bias.value).any() for bias in biases)
    assert (ops.convert_to_numpy(model.mlm_head.norm.gamma.value) == 1).all()


def test_the_first_loss_is_that_of_a_guess(toy_config, inputs, targets):
    outputs = BertForPreTraining(toy_config)(inputs)
    loss = ops.convert_to_numpy(pretraining_losses(outputs, *_tensors(targets, WEIGHTS)))[0].item()
    assert loss == pytest.approx(np.log(100) + np.log(2), abs=0.1)


# === Precision ===


@pytest.mark.backend
@pytest.mark.compiles
@pytest.mark.parametrize("dtype, tolerance", [("mixed_bfloat16", 0.1), ("mixed_float16", 0.02)])
def test_half_precision_is_finite_close_and_gives_float32(model, toy_config, inputs, targets, dtype, tolerance):
    half = BertForPreTraining(toy_config.with_dropout(0.0), dtype=dtype)
    for mine, weight in zip(half.weights, model.weights, strict=True):
        mine.assign(weight.value)
    assert half.mlm_head.dense.compute_dtype == dtype.removeprefix("mixed_")
    assert {keras.backend.standardize_dtype(weight.dtype) for weight in half.weights} == {"float32"}
    outputs = half(inputs)
    assert {keras.backend.standardize_dtype(tensor.dtype) for tensor in outputs.values()} == {"float32"}
    for name, array in _outputs(model, inputs).items():
        difference = np.abs(ops.convert_to_numpy(outputs[name]) - array).max()
        assert 0 < difference < tolerance * max(1, np.abs(array).max())
    gradients, loss = _gradients(half, inputs, targets)
    assert np.isfinite(loss) and all(np.isfinite(gradient).all() for gradient in gradients.values())


@pytest.mark.backend
@pytest.mark.parametrize("dtype, tolerance", [("bfloat16", 0.1), ("float16", 0.02)])
def test_weights_in_half_precision_give_float32_too(model, toy_config, inputs, dtype, tolerance):
    """TensorFlow refused to add the bias, which had the weights' dtype."""
    half = BertForPreTraining(toy_config.with_dropout(0.0), dtype=dtype)
    for mine, weight in zip(half.weights, model.weights, strict=True):
        mine.assign(ops.cast(weight.value, mine.dtype))
    outputs = half(inputs)
    assert {keras.backend.standardize_dtype(tensor.dtype) for tensor in outputs.values()} == {"float32"}
    for name, array in _outputs(model, inputs).items():
        difference = np.abs(ops.convert_to_numpy(outputs[name]) - array).max()
        assert 0 < difference < tolerance * max(1, np.abs(array).max())


@pytest.mark.parametrize("dtype", ["mixed_bfloat16", "mixed_float16"])
def test_the_bias_of_a_token_keeps_float32s_digits(toy_config, inputs, dtype):
    model = BertForPreTraining(toy_config, dtype=dtype)
    plain = _outputs(model, inputs)["mlm_logits"]
    model.mlm_head.bias.assign(np.full(100, 2000.25, "float32"))
    np.testing.assert_allclose(_outputs(model, inputs)["mlm_logits"] - plain, 2000.25, rtol=0, atol=1e-3)


def test_rows_of_nothing_but_padding_are_finite(model, inputs):
    empty = {name: np.zeros_like(array) for name, array in inputs.items()}
    assert all(np.isfinite(array).all() for array in _outputs(model, empty).values())


# === Input checks ===


@pytest.mark.parametrize("key", ["masked_positions", "first_positions"])
def test_a_missing_key_is_named(model, inputs, key):
    with pytest.raises(ValueError, match=f"(lacks|[Mm]issing).*{key}"):
        model({name: array for name, array in inputs.items() if name != key})


def test_without_nsp_first_positions_are_refused(toy_config, inputs):
    model = BertForPreTraining(toy_config, nsp=False)
    with pytest.raises(ValueError, match="unknown first_positions"):
        model(inputs)


@pytest.mark.parametrize("beyond", [28, -1])
def test_a_position_outside_the_row_is_refused(model, inputs, beyond):
    positions = inputs["masked_positions"].copy()
    positions[1, 4] = beyond
    with pytest.raises(ValueError, match=r"masked_positions must lie in \[0, 28\).*got"):
        model({**inputs, "masked_positions": positions})


# === Serialisation ===


@pytest.mark.backend
@pytest.mark.parametrize("nsp", [True, False])
def test_a_model_survives_a_keras_file_and_a_copy(toy_config, inputs, nsp, tmp_path):
    model = BertForPreTraining(toy_config, nsp=nsp, dtype="mixed_bfloat16", seed=3)
    inputs = inputs if nsp else _without_nsp(inputs)
    model.mlm_head.bias.assign(np.linspace(-1, 1, 100).astype("float32"))
    model.encoder.embeddings.word.assign(np.random.default_rng(0).normal(0, 0.1, (100, 32)).astype("float32"))
    model.save(tmp_path / "model.keras")
    for again in (keras.saving.load_model(tmp_path / "model.keras"), copy.deepcopy(model)):
        assert type(again) is BertForPreTraining and again.config == model.config and again.choices == {"nsp": nsp}
        assert model_key(again) == model_key(model)
        for name, array in _outputs(model, inputs).items():
            np.testing.assert_array_equal(_outputs(again, inputs)[name], array)
        # The copy's heads are tied to its own table, not to that of the original.
        again.encoder.embeddings.word.assign(np.zeros((100, 32), "float32"))
        np.testing.assert_array_equal(
            _outputs(again, inputs)["mlm_logits"][0, 0], ops.convert_to_numpy(model.mlm_head.bias.value)
        )


def test_a_model_made_again_from_its_config_has_the_same_start(toy_config, inputs):
    model = BertForPreTraining(toy_config, nsp=False, name="mine", seed=5)
    again = BertForPreTraining.from_config(model.get_config())
    assert (again.name, again.nsp_head) == ("mine", None)
    np.testing.assert_array_equal(
        _outputs(again, _without_nsp(inputs))["mlm_logits"], _outputs(model, _without_nsp(inputs))["mlm_logits"]
    )


def test_compiled_code_is_kept_apart_with_and_without_nsp(toy_config):
    with_nsp, without = (BertForPreTraining(toy_config, nsp=nsp) for nsp in (True, False))
    assert model_key(with_nsp) != model_key(without)


def test_keras_users_can_compile_and_fit_it(toy_config, inputs, targets):
    model = BertForPreTraining(toy_config)
    cross_entropy = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(1e-3), {"mlm_logits": cross_entropy, "nsp_logits": cross_entropy})
    y = {f"{task}_logits": array for task, array in targets.items()}
    history = model.fit(inputs, y, epochs=8, batch_size=2, verbose=0).history
    assert history["loss"][-1] < 0.95 * history["loss"][0]
