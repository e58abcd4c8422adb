"""The arithmetic of a step against XLA's own count, the machine's peak, and what the progress bar says."""

import math

import keras
import numpy as np
import pytest

from kbert import BertConfig
from kbert.model import BertForPreTraining
from kbert.pretraining import PretrainingOptions, progress
from kbert.pretraining.progress import PretrainingProgress
from kbert.pretraining.rates import flops_per_token, matrix_peak

# Wide enough that little of its arithmetic is outside of matrix products.
WIDE = BertConfig(1000, 768, 1, 12, 3072, max_position_embeddings=128)
TOY = BertConfig(50, 32, 1, 2, 64, max_position_embeddings=128)


@pytest.mark.backend
@pytest.mark.skipif(keras.backend.backend() != "jax", reason="XLA counts operations of programs that JAX makes")
@pytest.mark.parametrize("nsp", [True, False])
def test_the_arithmetic_is_what_xla_counts(nsp):
    import jax

    B, T, M = 4, 128, 32
    model = BertForPreTraining(WIDE, nsp=nsp, dtype="float32")
    inputs = {tensor.name: np.ones((B, T), "int32") for tensor in model.inputs}
    inputs["masked_positions"] = np.zeros((B, M), "int32")
    if nsp:
        inputs["first_positions"] = np.zeros((B, 1), "int32")

    def forward(values, others, inputs):
        return model.stateless_call(values, others, inputs, training=False)[0]

    values = [variable.value for variable in model.trainable_variables]
    others = [variable.value for variable in model.non_trainable_variables]
    # Before it is compiled: afterwards products are calls of a library, whose arithmetic XLA does not see.
    counted = jax.jit(forward).lower(values, others, inputs).cost_analysis()["flops"]
    expected = flops_per_token(WIDE, T, M / T, nsp) / 3 * B * T
    assert expected == pytest.approx(counted, rel=0.02) and expected < counted


def test_the_arithmetic_of_bert_base():
    """Six operations a weight and token of the layers, which have 85 million, and a little for attention and head."""
    base = BertConfig.from_size("base")
    by_weights = 6 * 12 * (4 * 768**2 + 2 * 768 * 3072)
    attention = 12 * 12 * 768 * 128
    assert flops_per_token(base, 128, 0.0, False) == by_weights + attention
    head = 6 * 0.15 * (768**2 + 768 * 30522)
    assert flops_per_token(base, 128, 0.15, False) == pytest.approx(by_weights + attention + head)
    with_nsp = flops_per_token(base, 128, 0.15, True)
    assert with_nsp == pytest.approx(by_weights + attention + head + 6 * (768**2 + 2 * 768) / 128)


@pytest.mark.backend
def test_the_peak_is_measured_once(monkeypatch):
    matrix_peak.cache_clear()
    monkeypatch.setattr("kbert.pretraining.rates._SIDES", (256, 512))
    first = matrix_peak("float32")
    # Between an old telephone and the largest chip.
    assert 1e8 < first < 1e16 and math.isfinite(first)
    assert matrix_peak("float32") == first and matrix_peak.cache_info().hits == 1
    matrix_peak.cache_clear()


# --- The progress bar


@pytest.fixture
def shown(monkeypatch):
    """A function that makes the bar of a run, and the peak that it takes: 10 TFLOP/s."""
    monkeypatch.setattr(progress, "matrix_peak", lambda dtype: 1e13)
    model = BertForPreTraining(TOY, dtype="float32")

    def make(n_devices=1, step=0, seconds=0.0, **options):
        return PretrainingProgress(PretrainingOptions(**{"verbose": 1, **options}), model, n_devices, step, seconds)

    return make


RECORD = {"mlm_loss": 4.5678, "nsp_accuracy": 0.61}


def test_tokens_share_of_the_peak_and_time_left(shown, capsys):
    options = dict(max_steps=100, phases=((64, 0.9), (128, 0.1)))
    with shown(**options) as bar:
        assert bar.advance(0, 1, 9.0, 1000, None) == {}  # the first update compiles
        for step in range(2, 51):
            rates = bar.advance(0, step, 9.0 + 0.5 * (step - 1), 1000 * step, RECORD)
        flops = flops_per_token(TOY, 64, 0.15, True)
        assert rates["peak_share"] == pytest.approx(2000 * flops / 1e13)
        # 40 steps of half a second, and 10 of twice the length and some more for their attention.
        longer = 2 * flops_per_token(TOY, 128, 0.15, True) / flops
        assert bar.seconds_left(50, 33.5) == pytest.approx(40 * 0.5 + 10 * 0.5 * longer)
        # What comes between two updates does not count; in another phase all is new.
        bar.pause()
        bar.advance(0, 51, 1000.0, 51_000, RECORD)
        assert bar.advance(0, 52, 1000.25, 52_000, RECORD)["peak_share"] == pytest.approx(4000 * flops / 1e13)
        assert bar.advance(1, 91, 1100.0, 91_000, RECORD) == {} and bar.seconds_left(91, 1100.0) is None
    text = capsys.readouterr().err
    assert "91/100 steps" in text and "mlm 4.568, nsp 0.61" in text
    with shown(n_devices=4, **options) as bar:
        bar.advance(0, 1, 1.0, 1000, None)
        assert bar.advance(0, 2, 1.5, 2000, None)["peak_share"] == pytest.approx(2000 * flops / 4e13)


def test_time_left_of_a_budget_in_seconds(shown, capsys):
    with shown(max_seconds=60.0, seconds=12.0) as bar:
        bar.advance(0, 1, 20.0, 1000, None)
        bar.advance(0, 2, 25.5, 2000, RECORD)
        assert bar.seconds_left(2, 25.5) == 34.5
    text = capsys.readouterr().err
    assert "12/60 s" in text and "25/60 s" in text and "00:34 left, 182 tokens/s, peak 0%" in text


def test_silent_runs_measure_and_show_nothing(shown, monkeypatch, capsys):
    monkeypatch.setattr(progress, "matrix_peak", None)
    with shown(max_steps=10, verbose=0) as bar:
        assert bar.advance(0, 1, 1.0, 10, RECORD) == {} and bar.advance(0, 2, 2.0, 20, RECORD) == {}
        bar.pause()
    assert capsys.readouterr() == ("", "")


def test_each_tenth_of_the_budget_leaves_a_line(shown, capsys):
    with shown(max_steps=40) as bar:
        for step in range(1, 21):
            bar.advance(0, step, 0.5 * step, 10 * step, RECORD)
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition(":")[0] for line in lines] == [f"pretrain {n}0%" for n in range(1, 6)]
    assert lines[0] == "pretrain 10%: step 4, 2 s, mlm 4.568, nsp 0.61"
