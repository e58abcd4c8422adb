"""The parts of a model that compiled code takes are the model's own, also after something was frozen."""

import gc
import weakref

import keras
import numpy as np
import pytest

from kbert.training import compiled
from kbert.training.compiled import model_variables
from kbert.training.losses import softmax_cross_entropy

pytestmark = pytest.mark.backend


@pytest.fixture
def model(model_of):
    return model_of()


def same(found, expected):
    return [id(variable) for variable in found] == [id(variable) for variable in expected]


def test_parts_follow_what_is_frozen_and_thawed(model):
    keys = []
    for frozen in (False, True, False):
        model.layers[-1].trainable = not frozen
        parts = model_variables(model)
        assert same(parts.trainable, model.trainable_variables) and same(parts.others, model.non_trainable_variables)
        keys.append(parts.key)
    assert keys[0] == keys[2] != keys[1]


def test_losses_of_one_name_are_told_apart(model_of, trained):
    def times(factor):
        return lambda *arrays: factor * softmax_cross_entropy(*arrays)

    first, second = (trained(model_of(dropout=0.0), n_texts=16, loss=times(factor))["loss"][0] for factor in (1.0, 2.0))
    assert second == pytest.approx(2 * first, rel=1e-5)


def test_a_change_of_weights_is_seen(model):
    before = [keras.ops.convert_to_numpy(variable) for variable in model_variables(model).trainable]
    model.trainable_variables[0].assign(before[0] + 1)
    np.testing.assert_array_equal(keras.ops.convert_to_numpy(model_variables(model).trainable[0]), before[0] + 1)


def test_variables_that_are_added_to_a_frozen_layer_are_seen(model):
    layer = next(layer for layer in model._flatten_layers() if isinstance(layer, keras.layers.Dense))
    layer.trainable = False
    before = model_variables(model)
    layer.enable_lora(2)
    after = model_variables(model)
    assert len(after.trainable + after.others) == len(before.trainable + before.others) + 2
    assert after.key != before.key


def test_the_factor_of_lora_is_in_the_key(model_of):
    keys = []
    for alpha in (2, 4, 2):
        model = model_of()
        for layer in model._flatten_layers():
            if isinstance(layer, keras.layers.Dense):
                layer.enable_lora(2, lora_alpha=alpha)
        keys.append(model_variables(model).key)
    assert keys[0] == keys[2] != keys[1]


def test_the_key_that_is_kept_does_not_keep_the_model(model_of):
    model = model_of()
    key = model_variables(model).key
    assert model_variables(model).key == key
    gone = weakref.ref(model)
    del model
    gc.collect()
    assert gone() is None


def test_the_oldest_code_is_dropped_but_on_tensorflow_which_keeps_it_anyway(monkeypatch):
    monkeypatch.setattr(compiled, "_cache", type(compiled._cache)())
    monkeypatch.setattr(compiled, "_MOST", 3)
    made = []
    for key in (1, 2, 3, 1, 4, 1, 2):
        compiled.compiled(key, lambda key=key: made.append(key))
    assert made == ([1, 2, 3, 4] if keras.backend.backend() == "tensorflow" else [1, 2, 3, 4, 2])
