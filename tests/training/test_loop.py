"""The training loop: what a step computes, what repeats, what is not finite, and what is left alone."""

import gc
import random
import sys
import weakref

import keras
import numpy as np
import pytest
from keras import ops

from kbert.data.batches import make_batch
from kbert.data.packing import Layout
from kbert.errors import DivergedError
from kbert.training import loop, memory
from kbert.training.backends import backend_step
from kbert.training.hyperparameters import Hyperparameters
from kbert.training.losses import softmax_cross_entropy
from kbert.training.predict import predict_logits
from kbert.training.step import StepBatch

pytestmark = pytest.mark.backend

on_compiling_backends = pytest.mark.skipif(keras.backend.backend() == "torch", reason="PyTorch compiles nothing")


def _same(first, second):
    return all(np.array_equal(a, b) for a, b in zip(first, second, strict=True))


def _logits(model, sequences):
    starts = np.zeros((len(sequences), 1), "int32")
    return ops.convert_to_numpy(model({**sequences.padded(length=8), "first_positions": starts}))[:, 0]


def _hyper(model, loss_scale=1.0):
    """Of the first step."""
    n = len(model.trainable_variables)
    rates, decays = np.full(n, 1e-3, "float32"), np.full(n, 0.01, "float32")
    return Hyperparameters(rates, decays, *map(np.float32, (0.1, 0.001, loss_scale)), np.zeros(2, "uint32"))


# === What a step computes ===


def test_training_learns(model_of, trained, sequences, targets):
    model = model_of()
    history = trained(model, epochs=12, learning_rate=3e-3)
    assert len(history["loss"]) == 12 and history["loss"][-1] < 0.3 * history["loss"][0]
    assert (_logits(model, sequences)[:64].argmax(axis=1) == targets[:64]).mean() > 0.95


@pytest.mark.compiles
def test_the_loss_in_the_history_is_the_mean_over_texts(model_of, trained, sequences, targets):
    model = model_of(dropout=0.0)
    logits = _logits(model, sequences.take(slice(40)))
    losses = np.logaddexp(0, -np.where(targets[:40] == 1, 1, -1) * (logits[:, 1] - logits[:, 0]))
    # Rate zero, and a last step of half the size.
    assert trained(model, n_texts=40, learning_rate=0.0)["loss"] == pytest.approx([losses.mean()], abs=1e-5)


def test_a_step_on_packed_texts_is_the_step_on_one_text_a_row(
    model_of, arrays_of, sequences, targets, largest_difference
):
    def step(layout, rows):
        model = model_of(dropout=0.0)
        trainer = backend_step().Trainer(model, softmax_cross_entropy)
        batch = make_batch(sequences, [np.array(row) for row in rows], layout)
        weights = np.where(batch.texts >= 0, 1 / 8, 0).astype("float32")
        gradients, loss = trainer.accumulate(StepBatch(batch.inputs, targets[batch.texts], weights), _hyper(model))
        arrays = [np.array(ops.convert_to_numpy(gradient)) for gradient in gradients]
        trainer.update(gradients, _hyper(model))
        trainer.write_back()
        return float(loss), arrays, arrays_of(model)

    alone = step(Layout(8, 16, 2), [[i] for i in range(8)])
    packed = step(Layout(5, 16, 2), [[0, 5], [2, 1], [7, 3], [4, 6]])  # and a row of padding
    assert packed[0] == pytest.approx(alone[0], abs=1e-6)
    assert all(np.abs(gradient).max() > 1e-3 for gradient in alone[1][-2:])
    assert largest_difference(alone[1], packed[1]) < 1e-6
    assert largest_difference(alone[2], packed[2]) < 1e-6


@pytest.mark.compiles
@pytest.mark.parametrize("n_texts", [16, 12])
def test_gradients_of_two_half_batches_are_those_of_one_batch(
    n_texts, model_of, trained, arrays_of, largest_difference
):
    """Also where the second half has fewer texts, or more texts without a weight: all texts count alike."""
    whole, halves = model_of(dropout=0.0), model_of(dropout=0.0)
    start, weights = arrays_of(whole), np.where(np.arange(n_texts) % 5 == 0, 0, 1.0).astype("float32")
    first = trained(whole, n_texts=n_texts, weights=weights, batch_size=16, epochs=2)["loss"]
    second = trained(halves, n_texts=n_texts, weights=weights, batch_size=8, epochs=2, gradient_accumulation=2)["loss"]
    assert second == pytest.approx(first, abs=1e-5)
    assert largest_difference(arrays_of(whole), start) > 1e-3
    assert largest_difference(arrays_of(whole), arrays_of(halves)) < 1e-5


@pytest.mark.parametrize("accumulation", [1, 3])
def test_the_history_has_the_loss_of_each_update(model_of, trained, monkeypatch, accumulation):
    batches, counts = [], []
    labelled = loop.labelled_batches

    def counted(*arguments):
        for count, batch in labelled(*arguments):
            counts.append(count.weighted)
            yield count, batch

    monkeypatch.setattr(loop, "labelled_batches", counted)
    watch = keras.callbacks.LambdaCallback(on_train_batch_end=lambda batch, logs: batches.append(float(logs["loss"])))
    weights = (np.arange(80) % 3 > 0).astype("float32")
    history = trained(
        model_of(), n_texts=80, weights=weights, epochs=2, gradient_accumulation=accumulation, callbacks=[watch]
    )
    assert len(batches) == len(counts) == 10 and len(set(counts)) > 1
    bounds = [slice(i, min(i + accumulation, 5)) for i in range(0, 5, accumulation)]
    for epoch, found in enumerate(history["update_loss"]):
        losses, weighted = batches[5 * epoch : 5 * epoch + 5], counts[5 * epoch : 5 * epoch + 5]
        expected = [np.average(losses[some], weights=weighted[some]) for some in bounds]
        assert found == (pytest.approx(expected, rel=1e-12) if accumulation > 1 else expected)
        assert all(type(value) is float for value in found)
        # The epoch's mean as it always was.
        assert history["loss"][epoch] == np.average(losses, weights=weighted)


def test_a_weight_of_zero_leaves_a_text_out(model_of, trained, arrays_of, largest_difference):
    weights = np.ones(16, "float32")
    weights[::2] = 0
    first, second = model_of(dropout=0.0), model_of(dropout=0.0)
    trained(first, n_texts=16, weights=weights)
    weights[::2] = 1
    trained(second, n_texts=16, weights=weights)
    assert largest_difference(arrays_of(first), arrays_of(second)) > 1e-4


# === What repeats ===


def test_the_same_seed_trains_the_same_weights_and_another_seed_others(
    model_of, trained, arrays_of, largest_difference
):
    first, second, other = model_of(), model_of(), model_of()
    trained(first, seed=3, epochs=2)
    trained(second, seed=3, epochs=2)
    assert _same(arrays_of(first), arrays_of(second))
    # One step of all texts, in which a seed decides nothing but the dropout.
    third = model_of()
    trained(other, seed=4, n_texts=16)
    trained(third, seed=3, n_texts=16)
    assert largest_difference(arrays_of(other), arrays_of(third)) > 1e-4


def test_each_step_drops_other_values(model_of, trained):
    # At rate zero only the dropout tells one epoch of one batch from the next.
    losses = trained(model_of(), n_texts=16, learning_rate=0.0, epochs=3)["loss"]
    assert len(set(losses)) == 3
    losses = trained(model_of(dropout=0.0), n_texts=16, learning_rate=0.0, epochs=3)["loss"]
    assert losses == pytest.approx([losses[0]] * 3, abs=1e-6)


@on_compiling_backends
def test_a_second_training_and_prediction_of_the_same_shape_compile_nothing(
    model_of, trained, sequences, arrays_of, monkeypatch, largest_difference
):
    step, compilations = backend_step(), []
    before = step.compiled

    def counting(key, compile):
        return before(key, lambda: compilations.append(key) or compile())

    monkeypatch.setattr(step, "compiled", counting)
    config = {"dropout": 0.15}  # of which no other test has compiled
    for i in range(3):
        model = model_of(**config, seed=i)
        start = arrays_of(model)
        trained(model, learning_rate=10.0 ** (-2 - i), weight_decay=0.1 * i, seed=i, bias_correction=bool(i % 2))
        assert largest_difference(arrays_of(model), start) > 1e-5
        predict_logits(model, [sequences], 96)
        assert len(compilations) == 2


@on_compiling_backends
def test_compiled_steps_keep_no_model_alive(model_of, trained, sequences):
    model = model_of()
    trained(model, n_texts=16)
    predict_logits(model, [sequences], 96)
    weight, model = weakref.ref(model.encoder.embeddings), None
    gc.collect()
    assert weight() is None


def test_a_compiled_step_of_a_whole_model_is_not_used_for_one_with_frozen_layers(model_of, trained, arrays_of):
    trained(model_of())
    model = model_of()
    model.encoder.embeddings.trainable = False
    model.encoder.transformer_layers[0].trainable = False
    frozen = [*model.encoder.embeddings.weights, *model.encoder.transformer_layers[0].weights]
    before = [np.array(ops.convert_to_numpy(weight)) for weight in frozen]
    start = arrays_of(model)
    trained(model, weight_decay=0.5)
    assert _same([ops.convert_to_numpy(weight) for weight in frozen], before)
    changed = sum(not np.array_equal(a, b) for a, b in zip(arrays_of(model), start, strict=True))
    assert changed == len(start) - len(before)


def test_layer_rates_scale_the_updates(model_of, trained):
    model = model_of()
    rates = [0.0 if variable.path.startswith("layer_0") else 1.0 for variable in model.trainable_variables]
    before = [np.array(ops.convert_to_numpy(variable)) for variable in model.trainable_variables]
    trained(model, layer_rates=rates)
    unchanged = [
        np.array_equal(a, ops.convert_to_numpy(b)) for a, b in zip(before, model.trainable_variables, strict=True)
    ]
    assert unchanged == [rate == 0 for rate in rates]


# === What is not finite ===


def test_a_step_whose_loss_is_nan_is_skipped_with_a_warning(model_of, trained, arrays_of, largest_difference):
    weights = np.ones(64, "float32")
    weights[10] = np.nan
    model = model_of()
    with pytest.warns(UserWarning, match="not finite; the step was skipped") as caught:
        history = trained(model, weights=weights, epochs=2)
    assert sum("skipped" in str(warning.message) for warning in caught) == 2
    assert np.isfinite(history["loss"]).all()
    assert np.isnan(history["update_loss"]).sum(axis=1).tolist() == [1, 1] and len(history["update_loss"][0]) == 4
    assert all(np.isfinite(array).all() for array in arrays_of(model))
    assert largest_difference(arrays_of(model), arrays_of(model_of())) > 1e-3


@pytest.mark.filterwarnings("ignore:The loss of step")
def test_a_step_that_is_skipped_changes_nothing(model_of, trained, arrays_of):
    model = model_of()
    history = trained(model, n_texts=16, weights=np.full(16, np.inf, "float32"), epochs=3)
    assert np.isnan(history["loss"]).all() and np.isnan(history["update_loss"]).all()
    assert _same(arrays_of(model), arrays_of(model_of()))


@pytest.mark.filterwarnings("ignore:The loss of step")
@pytest.mark.parametrize("n_texts, epochs", [pytest.param(96, 1, id="in one epoch"), pytest.param(32, 4, id="in four")])
def test_five_steps_in_a_row_that_are_not_finite_end_the_training(model_of, trained, n_texts, epochs):
    weights = np.full(n_texts, np.nan, "float32")
    with pytest.raises(DivergedError, match="5 steps in a row.*learning_rate"):
        trained(model_of(), weights=weights, n_texts=n_texts, epochs=epochs)


def _steep_loss(logits, targets, weights):
    """Finite, with gradients that are not."""
    zero = ops.sum(ops.square(logits) * 0.0, axis=-1)
    return ops.sum((1.0 + ops.sqrt(zero)) * weights)


@pytest.mark.compiles
@pytest.mark.filterwarnings("ignore:The loss of step")
def test_gradients_that_are_not_finite_end_the_training_too(model_of, trained, arrays_of):
    model = model_of()
    with pytest.raises(DivergedError, match="in a row"):
        trained(model, n_texts=96, loss=_steep_loss)
    assert _same(arrays_of(model), arrays_of(model_of()))


# === Half precision ===


@pytest.mark.parametrize("dropout", [0.1, 0.0])
@pytest.mark.parametrize("dtype", ["mixed_bfloat16", "mixed_float16"])
def test_half_precision_learns_with_rows_of_nothing_but_padding(model_of, sequences, targets, dtype, dropout):
    model = model_of(dropout=dropout, dtype=dtype)
    trainer = backend_step().Trainer(model, softmax_cross_entropy)
    batch = make_batch(sequences, [np.array([0, 1]), np.array([2])], Layout(4, 16, 2))
    weights = np.where(batch.texts >= 0, 1 / 3, 0).astype("float32")
    hyper = _hyper(model, loss_scale=64.0)
    gradients, loss = trainer.accumulate(StepBatch(batch.inputs, targets[batch.texts], weights), hyper)
    gradients = [ops.convert_to_numpy(ops.cast(gradient, "float32")) for gradient in gradients]
    assert all(np.isfinite(gradient).all() for gradient in gradients)
    assert float(loss) == pytest.approx(np.log(2), abs=0.1)
    # Every array but the keys' biases, on which the softmax does not depend, has a gradient.
    paths = [variable.path for variable in model.trainable_variables]
    flat = [path for path, gradient in zip(paths, gradients, strict=True) if not gradient.any()]
    assert all(path.endswith("key/bias") for path in flat)


def test_float16_alone_trains_under_a_loss_scale_and_halves_it_after_an_overflow(model_of, trained, monkeypatch):
    def scales(dtype, n_texts):
        found = []

        def train(self, batch, hyper):
            found.append(float(hyper.loss_scale))
            return float("nan") if len(found) == 1 else 0.7

        monkeypatch.setattr(backend_step().Trainer, "train", train)
        trained(model_of(dtype=dtype), n_texts=n_texts, epochs=2)
        return found

    with pytest.warns(UserWarning, match="not finite"):
        assert scales(None, 16) == scales("mixed_bfloat16", 16) == [1.0, 1.0]
    first, second = scales("mixed_float16", 16)
    assert first > 1 and second == first / 2


# === What is left alone ===


@pytest.mark.usefixtures("own_allocator")
def test_memory_is_kept_while_it_trains(model_of, trained):
    kept = []
    note = keras.callbacks.LambdaCallback(on_train_batch_end=lambda *_, **__: kept.append(memory._users))
    trained(model_of(), n_texts=16, callbacks=[note])
    # On TensorFlow, memory that was kept grew by all the weights in every step.
    assert kept and set(kept) == {int(keras.backend.backend() != "tensorflow")} and memory._users == 0


def test_building_training_and_predicting_leave_the_global_random_states_alone(model_of, trained, sequences):
    torch = sys.modules.get("torch")
    random.seed(1)
    np.random.seed(1)

    def states():
        numbers = torch.random.get_rng_state().tolist() if torch else None
        return (
            random.getstate(),
            [part.tolist() if isinstance(part, np.ndarray) else part for part in np.random.get_state()],
            numbers,
        )

    before = states()
    model = model_of()
    trained(model)
    predict_logits(model, [sequences], 96)
    assert states() == before


def test_training_leaves_targets_and_weights_alone(model_of, trained, targets):
    weights, labels = np.linspace(0, 2, 64, dtype="float32"), targets.copy()
    trained(model_of(), weights=weights)
    np.testing.assert_array_equal(weights, np.linspace(0, 2, 64, dtype="float32"))
    np.testing.assert_array_equal(targets, labels)


def test_training_is_silent_unless_asked(model_of, trained, capfd):
    trained(model_of(), n_texts=16)
    assert capfd.readouterr() == ("", "")
    trained(model_of(), n_texts=16, verbose=1)
    assert "16/16" in capfd.readouterr().err
