"""Keras's callbacks, and stopping when held-out rows no longer gain."""

import keras
import numpy as np
import pytest
from keras import ops

from kbert.training.early_stopping import Evaluation

pytestmark = pytest.mark.backend


def _same(first, second):
    return all(np.array_equal(a, b) for a, b in zip(first, second, strict=True))


class _Recorder(keras.callbacks.Callback):
    def __init__(self, arrays_of, stop_after=None):
        super().__init__()
        self.arrays_of, self.stop_after, self.calls, self.weights = arrays_of, stop_after, [], []

    def on_train_begin(self, logs=None):
        self.calls.append("train begins")

    def on_epoch_begin(self, epoch, logs=None):
        self.calls.append(f"epoch {epoch} begins")

    def on_train_batch_end(self, batch, logs=None):
        self.calls.append(f"batch {batch}, loss {0 < float(logs['loss']) < 2}")

    def on_epoch_end(self, epoch, logs=None):
        self.calls.append(f"epoch {epoch} ends with {sorted(logs)}")
        self.weights.append(self.arrays_of(self.model))
        self.model.stop_training = epoch == self.stop_after

    def on_train_end(self, logs=None):
        self.calls.append("train ends")


def test_keras_callbacks_see_every_epoch_and_step_and_the_trained_weights(
    model_of, trained, arrays_of, largest_difference
):
    model, callback = model_of(), _Recorder(arrays_of)
    trained(model, n_texts=32, epochs=2, callbacks=[callback], on_epoch_end=lambda epoch, logs: {"val_score": epoch})
    one = ["batch 0, loss True", "batch 1, loss True"]
    assert callback.calls == [
        *("train begins", "epoch 0 begins", *one, "epoch 0 ends with ['loss', 'val_score']"),
        *("epoch 1 begins", *one, "epoch 1 ends with ['loss', 'val_score']", "train ends"),
    ]
    assert largest_difference(callback.weights[0], arrays_of(model_of())) > 1e-4
    assert largest_difference(callback.weights[0], callback.weights[1]) > 1e-4
    assert _same(callback.weights[1], arrays_of(model))


def test_a_callback_may_stop_the_training_and_the_model_may_be_trained_again(model_of, trained, arrays_of):
    model = model_of()
    assert len(trained(model, n_texts=16, epochs=5, callbacks=[_Recorder(arrays_of, stop_after=1)])["loss"]) == 2
    assert len(trained(model, n_texts=16, epochs=3)["loss"]) == 3


def test_early_stopping_of_keras_restores_the_best_weights(model_of, trained, arrays_of):
    scores = iter([0.5, 0.9, 0.8, 0.7, 0.6])
    recorder = _Recorder(arrays_of)
    early = keras.callbacks.EarlyStopping("val_score", patience=2, mode="max", restore_best_weights=True)
    model = model_of()
    history = trained(
        model, n_texts=16, epochs=5, callbacks=[recorder, early], on_epoch_end=lambda *_: {"val_score": next(scores)}
    )
    assert history["val_score"] == [0.5, 0.9, 0.8, 0.7]
    assert _same(arrays_of(model), recorder.weights[1])


def _evaluated(trained, model, values, patience):
    values = iter(values)
    seen = []

    def evaluate():
        seen.append([np.array(ops.convert_to_numpy(v)) for v in model.trainable_variables])
        score, loss = next(values)
        return {"val_score": score, "val_loss": loss}

    evaluation = Evaluation(model, evaluate, patience)
    history = trained(model, n_texts=16, epochs=6, on_epoch_end=evaluation)
    evaluation.restore_best()
    after = [ops.convert_to_numpy(v) for v in model.trainable_variables]
    return history, evaluation, [_same(after, weights) for weights in seen].index(True)


@pytest.mark.parametrize(
    "values, epochs, best",
    [
        ([(0.5, 1), (0.8, 1), (0.7, 1), (0.8, 1.1), (0.9, 1)], 4, 1),  # the last comes too late
        ([(0.5, 1), (0.5, 0.9), (0.5, 0.8), (0.4, 0.1), (0.5, 0.9)], 5, 2),  # of equal scores the lower loss
        ([(0.1 * i, 1) for i in range(6)], 6, 5),
        ([(float("nan"), loss) for loss in (1, 0.8, 0.9, 0.7, 0.8, 0.8)], 6, 3),  # without scores the loss alone
    ],
)
def test_evaluation_stops_after_its_patience_and_restores_the_best_weights(model_of, trained, values, epochs, best):
    history, evaluation, restored = _evaluated(trained, model_of(), values, patience=2)
    np.testing.assert_array_equal(history["val_score"], [score for score, _ in values[:epochs]])
    assert (evaluation.best_epoch, restored) == (best, best)


def test_evaluation_without_patience_only_looks(model_of, trained):
    values = [(0.9 - 0.1 * i, 1) for i in range(6)]
    history, _, last = _evaluated(trained, model_of(), values, patience=None)
    assert len(history["val_loss"]) == 6 and last == 5


def test_a_learning_rate_scheduler_is_honoured(model_of, trained, arrays_of):
    model, rates = model_of(), []

    def schedule(epoch, rate):
        rates.append(rate)
        return 0.0

    trained(model, n_texts=32, epochs=2, callbacks=[keras.callbacks.LearningRateScheduler(schedule)])
    assert _same(arrays_of(model), arrays_of(model_of()))
    # The first one is that of the schedule, the second one what was set.
    assert rates[0] > 0 and rates[1] == 0


def test_the_learning_rate_is_reduced_on_a_plateau(model_of, trained):
    seen = []
    note = keras.callbacks.LambdaCallback(on_epoch_begin=lambda epoch, logs: seen.append(model.optimizer.learning_rate))
    plateau = keras.callbacks.ReduceLROnPlateau(monitor="val_score", mode="max", factor=0.1, patience=1)
    model = model_of()
    trained(model, n_texts=32, epochs=4, callbacks=[plateau, note], on_epoch_end=lambda *_: {"val_score": 0.0})
    assert seen[2] == pytest.approx(seen[1] * 0.1, rel=0.5) or seen[2] < seen[1]
    assert seen[3] == pytest.approx(seen[2] * 0.1)
