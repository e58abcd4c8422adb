"""AdamW, clipping, the schedule, and which variables are decayed at which rate."""

import keras
import numpy as np
import pytest

from kbert import BertConfig
from kbert.model import BertForSequenceClassification
from kbert.training.backends import backend_step
from kbert.training.hyperparameters import BETA_1, BETA_2, Hyperparameters, decays_of, layer_rates
from kbert.training.losses import softmax_cross_entropy
from kbert.training.schedule import LinearSchedule

pytestmark = pytest.mark.backend

STEPS = 20


def _gradients(model, rng):
    """Random gradients of very different sizes; in every other step their norm is far over 1."""
    shapes = [variable.shape for variable in model.trainable_variables]
    for step in range(STEPS):
        sizes = 10.0 ** rng.uniform(-6, -4 if step % 2 else 1, len(shapes))
        yield [(rng.normal(size=shape) * size).astype("float32") for shape, size in zip(shapes, sizes, strict=True)]


def _hyper(model, step, corrected=True, loss_scale=1.0):
    n = len(model.trainable_variables)
    corrections = (1 - BETA_1 ** (step + 1), 1 - BETA_2 ** (step + 1)) if corrected else (1.0, 1.0)
    rates = np.full(n, 1e-3 * (step + 1) / STEPS, "float32") * np.where(np.arange(n) % 3, 1, 0.5).astype("float32")
    decays = np.asarray(decays_of(model, 0.1), "float32")
    return Hyperparameters(rates, decays, *map(np.float32, corrections), np.float32(loss_scale), np.zeros(2, "uint32"))


def _updated(model, corrected=True, loss_scale=1.0, optimizer="adamw"):
    """The trained weights after all steps, by the backend's own step."""
    trainer = backend_step().Trainer(model, softmax_cross_entropy, optimizer)
    for step, gradients in enumerate(_gradients(model, np.random.default_rng(0))):
        scaled = [keras.ops.convert_to_tensor(gradient * np.float32(loss_scale)) for gradient in gradients]
        trainer.update(scaled, _hyper(model, step, corrected, loss_scale))
    trainer.write_back()
    return [np.array(keras.ops.convert_to_numpy(variable)) for variable in model.trainable_variables]


def _assert_close(ours, reference):
    for a, b in zip(ours, reference, strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-6)


def test_updates_are_those_of_torch_adamw_with_gradients_clipped_to_norm_one(model_of):
    torch = pytest.importorskip("torch", reason="to compare with its AdamW, run: pip install torch")
    model = model_of(dropout=0.0)
    parameters = [
        torch.nn.Parameter(torch.tensor(np.array(keras.ops.convert_to_numpy(variable))))
        for variable in model.trainable_variables
    ]
    decays = _hyper(model, 0).decays
    groups = [{"params": [p], "weight_decay": float(d)} for p, d in zip(parameters, decays, strict=True)]
    optimizer = torch.optim.AdamW(groups, betas=(0.9, 0.999), eps=1e-6)
    for step, gradients in enumerate(_gradients(model, np.random.default_rng(0))):
        rates = _hyper(model, step).learning_rates
        for group, gradient, rate in zip(optimizer.param_groups, gradients, rates, strict=True):
            group["params"][0].grad = torch.tensor(gradient)
            group["lr"] = float(rate)
        norm = torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        assert (norm > 1) == (step % 2 == 0)
        optimizer.step()
    _assert_close(_updated(model), [parameter.detach().numpy() for parameter in parameters])


def test_without_bias_correction_updates_are_those_of_the_original_code(model_of):
    model = model_of(dropout=0.0)
    values = [np.array(keras.ops.convert_to_numpy(v), "float64") for v in model.trainable_variables]
    ms, vs = [0.0] * len(values), [0.0] * len(values)
    for step, gradients in enumerate(_gradients(model, np.random.default_rng(0))):
        hyper = _hyper(model, step)
        norm = np.sqrt(sum((gradient.astype("float64") ** 2).sum() for gradient in gradients))
        for i, gradient in enumerate(gradients):
            gradient = gradient / max(norm, 1.0)
            ms[i] = 0.9 * ms[i] + 0.1 * gradient
            vs[i] = 0.999 * vs[i] + 0.001 * gradient**2
            update = ms[i] / (np.sqrt(vs[i]) + 1e-6) + hyper.decays[i] * values[i]
            values[i] = values[i] - hyper.learning_rates[i] * update
    _assert_close(_updated(model, corrected=False), values)


def test_a_loss_scale_is_divided_out_before_clipping(model_of):
    _assert_close(_updated(model_of(dropout=0.0), loss_scale=1024.0), _updated(model_of(dropout=0.0)))


def test_a_gradient_that_is_not_finite_changes_nothing(model_of):
    model = model_of(dropout=0.0)
    before = [np.array(keras.ops.convert_to_numpy(variable)) for variable in model.trainable_variables]
    trainer = backend_step().Trainer(model, softmax_cross_entropy)
    gradients = next(_gradients(model, np.random.default_rng(0)))
    gradients[3].ravel()[0] = np.nan
    trainer.update([keras.ops.convert_to_tensor(gradient) for gradient in gradients], _hyper(model, 0))
    trainer.write_back()
    for variable, array in zip(model.trainable_variables, before, strict=True):
        np.testing.assert_array_equal(keras.ops.convert_to_numpy(variable), array)
    assert not any(np.any(keras.ops.convert_to_numpy(moment)) for moment in (*trainer.moments_1, *trainer.moments_2))


def test_matrices_and_tables_are_decayed_and_vectors_are_not(model_of):
    model = model_of(dropout=0.0)
    decays = {v.path: decay for v, decay in zip(model.trainable_variables, decays_of(model, 0.01), strict=True)}
    kept = {path for path, decay in decays.items() if decay == 0}
    assert kept == {path for path in decays if path.rpartition("/")[2] in ("bias", "gamma", "beta")}
    assert set(decays.values()) == {0.0, 0.01}
    assert {path.rpartition("/")[2] for path in set(decays) - kept} == {"word", "position", "segment", "kernel"}


@pytest.mark.parametrize(
    "warmup, rates",
    [
        (0.2, [0.5, 1, 1, 7 / 8, 6 / 8, 5 / 8, 4 / 8, 3 / 8, 2 / 8, 1 / 8]),
        (4, [0.25, 0.5, 0.75, 1, 1, 5 / 6, 4 / 6, 3 / 6, 2 / 6, 1 / 6]),
        (0.0, [1, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1]),
        (0, [1, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1]),
        (20, [0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5]),
        (1.0, [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1]),
    ],
)
def test_the_schedule_rises_and_falls_in_straight_lines(warmup, rates):
    schedule = LinearSchedule(2e-5, 10, warmup)
    assert [schedule(step) for step in range(10)] == pytest.approx([2e-5 * rate for rate in rates])


def test_after_the_last_step_the_rate_is_zero():
    assert LinearSchedule(1.0, 10, 0.1)(10) == 0 and LinearSchedule(1.0, 10, 0.1)(15) == 0


def test_layer_rates_fall_from_the_head_to_the_embeddings():
    config = BertConfig(vocab_size=50, hidden_size=8, num_hidden_layers=2, num_attention_heads=2, intermediate_size=16)
    model = BertForSequenceClassification(config, num_labels=2)
    rates = {v.path: rate for v, rate in zip(model.trainable_variables, layer_rates(model, 0.5), strict=True)}

    def of(part):
        return {rate for path, rate in rates.items() if path.startswith(part)}

    assert of("classifier") == of("pooler") == {1.0}
    assert (of("layer_1"), of("layer_0"), of("embeddings")) == ({0.5}, {0.25}, {0.125})
    assert len(rates) == 5 + 2 * 16 + 2 + 2
    assert set(layer_rates(model, 1.0)) == {1.0}


def test_lamb_is_that_of_its_authors(model_of):
    model = model_of(dropout=0.0)
    values = [np.array(keras.ops.convert_to_numpy(v), "float64") for v in model.trainable_variables]
    ms, vs = [0.0] * len(values), [0.0] * len(values)
    for step, gradients in enumerate(_gradients(model, np.random.default_rng(0))):
        hyper = _hyper(model, step)
        norm = np.sqrt(sum((gradient.astype("float64") ** 2).sum() for gradient in gradients))
        for i, gradient in enumerate(gradients):
            gradient = gradient / max(norm, 1.0)
            ms[i] = 0.9 * ms[i] + 0.1 * gradient
            vs[i] = 0.999 * vs[i] + 0.001 * gradient**2
            update = ms[i] / (1 - 0.9 ** (step + 1)) / (np.sqrt(vs[i] / (1 - 0.999 ** (step + 1))) + 1e-6)
            ratio = 1.0
            if values[i].ndim > 1:
                update += hyper.decays[i] * values[i]
                ratio = np.linalg.norm(values[i]) / np.linalg.norm(update)
            values[i] = values[i] - hyper.learning_rates[i] * ratio * update
    _assert_close(_updated(model, optimizer="lamb"), values)


def test_a_restored_state_goes_on_as_if_never_left(model_of):
    model = model_of(dropout=0.0)
    gradients = list(_gradients(model, np.random.default_rng(0)))

    def run(trainer, steps):
        for step in steps:
            arrays = [keras.ops.convert_to_tensor(gradient) for gradient in gradients[step]]
            trainer.update(arrays, _hyper(model, step))

    trainer = backend_step().Trainer(model, softmax_cross_entropy)
    run(trainer, range(5))
    state = trainer.state()
    run(trainer, range(5, 10))
    expected = trainer.state()
    other = backend_step().Trainer(model, softmax_cross_entropy)
    other.restore(state)
    run(other, range(5, 10))
    assert all(np.array_equal(a, b) for a, b in zip(other.state(), expected, strict=True))
    assert not np.array_equal(state[0], expected[0])
