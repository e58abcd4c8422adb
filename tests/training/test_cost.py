"""What a training takes: the parts that are counted, not measured."""

import numpy as np
import pytest

from kbert import BertConfig, BertEncoder
from kbert.data.packing import Layout
from kbert.model import BertForSequenceClassification
from kbert.training.cost import BackendCost, Forward, measure_forward, memory_of_training, step_seconds, trained_numbers

CONFIG = BertConfig(
    vocab_size=50, hidden_size=32, num_hidden_layers=3, num_attention_heads=2, intermediate_size=64,
    max_position_embeddings=40,
)  # fmt: skip


def test_trained_numbers_are_the_variables_of_an_encoder():
    encoder = BertEncoder(CONFIG, seed=0)
    encoder.pooler.trainable = False
    assert trained_numbers(CONFIG) == sum(int(np.prod(v.shape)) for v in encoder.trainable_variables)
    for layer in (encoder.embeddings, *encoder.transformer_layers[:2]):
        layer.trainable = False
    assert trained_numbers(CONFIG, freeze=2) == sum(int(np.prod(v.shape)) for v in encoder.trainable_variables)


def test_memory_grows_as_the_formula_says():
    layout, wide = Layout(4, 16, 2), Layout(8, 16, 2)
    weights = 16 * trained_numbers(CONFIG)
    kept = memory_of_training(CONFIG, layout, "float32") - weights
    assert kept == 3 * 4 * 16 * (66 * 32 + 9 * 2 * 16)
    assert memory_of_training(CONFIG, wide, "float32") - weights == 2 * kept
    assert memory_of_training(CONFIG, layout, "mixed_bfloat16") - weights == 3 * 4 * 16 * (34 * 32 + 5 * 2 * 16)
    assert memory_of_training(CONFIG, layout, "float32", freeze=2) < weights


def test_a_step_costs_more_with_length_and_less_with_frozen_layers():
    cost = BackendCost(2.0, 10.0, 0.0, 0.0, 0.0)
    short, long = (Forward(CONFIG, Layout(4, length, 2), 4, 2, 1.0, 0.0) for length in (32, 64))
    assert step_seconds(short, 0, cost) == 2 + 10 * 2 * 32 / 32**2
    assert step_seconds(long, 0, cost) == 2 + 2 * (step_seconds(short, 0, cost) - 2)
    assert step_seconds(short, 3, cost) == pytest.approx(0)
    assert short.n_tokens == 4 * 32


def test_some_rows_and_layers_stand_for_all(monkeypatch):
    """Each call of a clock that goes on by a second: a pass of one layer of three takes one, of all rows four."""
    ticks = iter(range(1000))
    monkeypatch.setattr("kbert.training.cost.time.perf_counter", lambda: float(next(ticks)))
    monkeypatch.setattr("kbert.training.cost._OPERATIONS", 1.0)
    shapes = []

    def make(config):
        shapes.append(config.num_hidden_layers)
        return BertForSequenceClassification(config, 2, seed=0)

    found = measure_forward(make, CONFIG, Layout(4, 16, 2))
    assert shapes == [found.measured_layers] == [2] and found.measured_rows == 1
    assert found.seconds == pytest.approx(3 / 2 * 4) and found.seconds_to_build == pytest.approx(3 / 2)
