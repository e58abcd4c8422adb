"""Keras's callbacks, and stopping when held-out rows no longer gain."""

import copy
import pickle
from importlib.util import find_spec

import keras
import numpy as np
import pytest
from keras import ops

from kbert.estimators.parameters import _REFUSED_CALLBACKS, checked_callbacks
from kbert.training.callbacks import LearningRate, WeightsBefore
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
    trained(model, n_texts=32, epochs=2, callbacks=[callback], on_epoch_end=lambda epoch: {"val_score": epoch})
    one = ["batch 0, loss True", "batch 1, loss True"]
    assert callback.calls == [
        *("train begins", "epoch 0 begins", *one, "epoch 0 ends with ['loss', 'val_score']"),
        *("epoch 1 begins", *one, "epoch 1 ends with ['loss', 'val_score']", "train ends"),
    ]
    assert largest_difference(callback.weights[0], arrays_of(model_of())) > 1e-4
    assert largest_difference(callback.weights[0], callback.weights[1]) > 1e-4
    assert _same(callback.weights[1], arrays_of(model))


@pytest.mark.compiles
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


# --- The learning rate


class _Rates(keras.callbacks.Callback):
    """The rate and the number of updates before each step, and the rate that the step takes."""

    def on_train_begin(self, logs=None):
        self.rates, self.iterations = [], []

    def on_train_batch_begin(self, batch, logs=None):
        self.rates.append(float(self.model.optimizer.learning_rate))
        self.iterations.append(int(self.model.optimizer.iterations))


def test_the_learning_rate_answers_as_a_variable_of_keras_does(model_of, trained):
    found = []

    def ask(batch, logs=None):  # as W&B's WandbMetricsLogger does
        rate = model.optimizer.learning_rate
        found.append((rate.shape, rate.numpy().item(), float(keras.ops.convert_to_numpy(rate))))

    model = model_of()
    callback = keras.callbacks.LambdaCallback(on_train_batch_begin=ask)
    trained(model, n_texts=16, epochs=1, learning_rate=1e-3, warmup=0, callbacks=[callback])
    assert found == [((), 1e-3, pytest.approx(1e-3))]


def test_a_learning_rate_is_stored_as_a_plain_number():
    rate = LearningRate(1e-3)
    for copied in (pickle.loads(pickle.dumps(rate)), copy.deepcopy(rate)):
        assert type(copied) is float and copied == 1e-3


def test_the_learning_rate_follows_the_schedule_until_a_callback_sets_it(model_of, trained, arrays_of):
    rates = _Rates()
    model = model_of()
    trained(model, n_texts=32, epochs=2, learning_rate=1e-3, warmup=0, callbacks=[rates])
    np.testing.assert_allclose(rates.rates, [1e-3, 0.75e-3, 0.5e-3, 0.25e-3])
    assert rates.iterations == [0, 1, 2, 3] and getattr(model, "optimizer", None) is None

    seen = []

    def scheduled(epoch, rate):
        seen.append(rate)
        return 1e-4 * (epoch + 1)

    trained(
        model_of(), n_texts=32, epochs=2, learning_rate=1e-3, warmup=0,
        callbacks=[keras.callbacks.LearningRateScheduler(scheduled), rates],
    )  # fmt: skip
    np.testing.assert_allclose(seen, [1e-3, 1e-4])
    np.testing.assert_allclose(rates.rates, [1e-4, 1e-4, 2e-4, 2e-4])


def test_a_rate_that_is_set_before_a_batch_is_that_of_its_update(model_of, trained, arrays_of):
    model = model_of()
    still = keras.callbacks.LambdaCallback(
        on_train_batch_begin=lambda batch, logs: setattr(model.optimizer, "learning_rate", 0.0)
    )
    trained(model, n_texts=16, epochs=2, learning_rate=1e-3, callbacks=[still])
    assert _same(arrays_of(model), arrays_of(model_of()))


def test_the_step_has_the_learning_rate_that_was_set(model_of, trained, arrays_of, largest_difference):
    model = model_of()
    still = keras.callbacks.LearningRateScheduler(lambda epoch: 0.0)
    trained(model, n_texts=16, epochs=2, learning_rate=1e-3, callbacks=[still])
    assert _same(arrays_of(model), arrays_of(model_of()))
    with pytest.raises(ValueError, match="set the learning rate to nan"):
        nan = keras.callbacks.LearningRateScheduler(lambda epoch: float("nan"))
        trained(model, n_texts=16, epochs=2, learning_rate=1e-3, callbacks=[nan])
    assert getattr(model, "optimizer", None) is None


def test_a_plateau_reduces_the_learning_rate(model_of, trained):
    rates = _Rates()
    reduce = keras.callbacks.ReduceLROnPlateau("val_score", factor=0.1, patience=1, mode="max", min_delta=0)
    trained(
        model_of(), n_texts=16, epochs=4, learning_rate=1e-3, warmup=0, callbacks=[reduce, rates],
        on_epoch_end=lambda *_: {"val_score": 0.5},
    )  # fmt: skip
    assert rates.rates[1] == pytest.approx(0.75e-3) and rates.rates[2] == pytest.approx(0.05e-3)
    assert rates.rates[3] == pytest.approx(0.005e-3)


def test_every_callback_of_keras_works_or_is_refused_by_name(model_of, trained, tmp_path):
    made = {
        "Callback": {},
        "CSVLogger": {"filename": str(tmp_path / "log.csv")},
        "EarlyStopping": {"monitor": "loss"},
        "History": {},
        "LambdaCallback": {},
        "LearningRateScheduler": {"schedule": lambda epoch: 1e-3},
        "ModelCheckpoint": {"filepath": str(tmp_path / "model.keras"), "monitor": "loss"},
        "ProgbarLogger": {},
        "ReduceLROnPlateau": {"monitor": "loss"},
        "TerminateOnNaN": {},
        "RemoteMonitor": {"root": "http://127.0.0.1:9"},
        "TensorBoard": {"log_dir": str(tmp_path / "board"), "update_freq": 1},
        "BackupAndRestore": {"backup_dir": str(tmp_path / "backup")},
        "OrbaxCheckpoint": {},
        "SwapEMAWeights": {},
    }
    shipped = {name for name in dir(keras.callbacks) if name[0].isupper()} - {"CallbackList"}
    assert shipped <= set(made)
    needed = {"RemoteMonitor": "requests", "TensorBoard": "tensorboard"}
    missing = {name for name, package in needed.items() if find_spec(package) is None}
    if keras.backend.backend() != "tensorflow":
        missing.add("TensorBoard")  # it would import TensorFlow into this process
    for name in sorted(shipped - missing):
        kind = getattr(keras.callbacks, name)
        if name in _REFUSED_CALLBACKS:
            # Not called: one of them needs a package of its own.
            with pytest.raises(ValueError, match=f"callbacks: {name} does not work with kbert"):
                checked_callbacks([kind.__new__(kind)])
        elif name == "RemoteMonitor":
            with pytest.warns(UserWarning, match="Could not reach RemoteMonitor"):
                trained(model_of(), n_texts=16, epochs=2, callbacks=checked_callbacks(kind(**made[name])))
        else:
            callback = kind(**made[name])
            assert len(trained(model_of(), n_texts=16, epochs=2, callbacks=checked_callbacks(callback))["loss"]) == 2
    assert len((tmp_path / "log.csv").read_text().splitlines()) == 3 and (tmp_path / "model.keras").exists()
    assert "TensorBoard" in missing or any((tmp_path / "board").rglob("events.*"))


def test_a_callback_may_stop_after_a_batch(model_of, trained):
    class Stop(keras.callbacks.Callback):
        n = 0

        def on_train_batch_end(self, batch, logs=None):
            self.n += 1
            self.model.stop_training = self.n == 2

    stop = Stop()
    history = trained(model_of(), n_texts=80, epochs=3, callbacks=[stop])
    assert stop.n == 2 and [len(losses) for losses in history["update_loss"]] == [2]


def test_files_of_batches_hold_the_weights_of_that_batch(model_of, trained, arrays_of, largest_difference, tmp_path):
    saves = keras.callbacks.ModelCheckpoint(tmp_path / "{batch:02d}.weights.h5", save_weights_only=True, save_freq=1)
    model, start = model_of(), arrays_of(model_of())
    trained(model, n_texts=48, epochs=1, callbacks=[saves])
    files = sorted(tmp_path.glob("*.h5"))
    saved = []
    for file in files:
        other = model_of()
        other.load_weights(file)
        saved.append(arrays_of(other))
    assert len(files) == 3 and largest_difference(saved[0], start) > 1e-4
    assert largest_difference(saved[0], saved[1]) > 1e-4 and largest_difference(saved[2], arrays_of(model)) < 1e-6


def test_a_callback_that_freezes_layers_is_told_of_freeze(model_of, trained):
    class Freeze(keras.callbacks.Callback):
        def on_train_begin(self, logs=None):
            self.model.layers[-1].trainable = False

    with pytest.raises(ValueError, match="A callback changed which layers are trainable.*freeze=n"):
        trained(model_of(), n_texts=16, epochs=1, callbacks=[Freeze()])


@pytest.mark.parametrize("when", ["on_train_begin", "on_epoch_begin", "on_epoch_end"])
def test_weights_that_a_callback_changes_between_epochs_are_not_lost_silently(model_of, trained, when):
    def change(*_):
        model.classifier.bias.assign([7.0] * model.classifier.bias.shape[0])

    model = model_of()
    with pytest.raises(ValueError, match="A callback changed the weights of the model between two epochs"):
        trained(model, n_texts=16, epochs=2, callbacks=[keras.callbacks.LambdaCallback(**{when: change})])


def test_nan_in_a_weight_is_no_change(model_of):
    """As in a row of a table that no text reads."""
    model = model_of()
    table = np.array(ops.convert_to_numpy(model.encoder.embeddings.position))
    table[-1] = np.nan
    model.encoder.embeddings.position.assign(table.copy())  # of which JAX may use the memory
    before = WeightsBefore(model)
    assert not before.differ_from(model)
    model.encoder.embeddings.position.assign(table + 0.0)
    assert not before.differ_from(model)
    table[-1, 0] = 0
    model.encoder.embeddings.position.assign(table)
    assert before.differ_from(model)


def test_a_callback_that_trains_the_model_is_told(model_of, trained):
    """On JAX, Keras's own training gives the arrays of the weights away."""

    def train(epoch, logs):
        for variable in model.trainable_variables:
            value = variable.value
            variable.assign(value + 1)
            if hasattr(value, "delete"):
                value.delete()

    model = model_of()
    with pytest.raises(ValueError, match="A callback changed the weights of the model between two epochs"):
        trained(model, n_texts=16, epochs=2, callbacks=[keras.callbacks.LambdaCallback(on_epoch_end=train)])


def test_a_callback_may_look_at_other_weights_and_put_the_own_ones_back(model_of, trained):
    """As one that evaluates an average of weights."""
    seen = []

    def look(epoch, logs):
        own = model.get_weights()
        model.set_weights([0 * array for array in own])
        seen.append(epoch)
        model.set_weights(own)

    model = model_of()
    trained(model, n_texts=16, epochs=3, callbacks=[keras.callbacks.LambdaCallback(on_epoch_end=look)])
    assert seen == [0, 1, 2]


def test_a_callback_may_change_the_weights_at_the_end(model_of, trained):
    def change(epoch, logs):
        if epoch == 1:
            model.classifier.bias.assign([7.0] * model.classifier.bias.shape[0])

    model = model_of()
    trained(model, n_texts=16, epochs=2, callbacks=[keras.callbacks.LambdaCallback(on_epoch_end=change)])
    assert (ops.convert_to_numpy(model.classifier.bias) == 7).all()


def test_trackers_find_what_they_log_of_an_optimizer(model_of, trained):
    found = {}

    class Look(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            optimizer = self.model.optimizer
            found.update(config=optimizer.get_config(), updates=int(optimizer.iterations.numpy()))
            optimizer.learning_rate.assign(1e-5)

    trained(model_of(), n_texts=48, epochs=1, callbacks=[Look()])
    assert found == {"config": {"name": "adamw", "learning_rate": pytest.approx(1e-5)}, "updates": 2}
