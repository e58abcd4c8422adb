"""The parts of a model that compiled code takes are the model's own, also after something was frozen."""

import numpy as np
import pytest

from kbert.training.compiled import parts_of


@pytest.fixture
def model(model_of):
    return model_of()


def same(found, expected):
    return [id(variable) for variable in found] == [id(variable) for variable in expected]


def test_parts_follow_what_is_frozen_and_thawed(model):
    keys = []
    for frozen in (False, True, False):
        model.layers[-1].trainable = not frozen
        parts = parts_of(model)
        assert parts_of(model) is parts
        assert same(parts.trainable, model.trainable_variables) and same(parts.others, model.non_trainable_variables)
        keys.append(parts.key)
    assert keys[0] == keys[2] != keys[1]


def test_a_change_of_weights_is_seen(model):
    before = [np.array(variable.value) for variable in parts_of(model).trainable]
    model.trainable_variables[0].assign(before[0] + 1)
    np.testing.assert_array_equal(np.array(parts_of(model).trainable[0].value), before[0] + 1)
