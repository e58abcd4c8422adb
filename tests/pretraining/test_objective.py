"""The losses of pre-training: as transformers has them on the same batch, free slots, parts of a batch, scores."""

import numpy as np
import pytest
from keras import ops

from kbert import BertConfig, BertForPreTraining
from kbert.pretraining.objective import REPORTED, mean_scores, pretraining_losses, score_sums
from kbert.training.backends import backend_step
from kbert.training.hyperparameters import Hyperparameters
from kbert.training.step import StepBatch
from kbert.weights import load_pretraining

pytestmark = pytest.mark.slow

TOY = BertConfig(
    vocab_size=100,
    hidden_size=32,
    num_hidden_layers=1,
    num_attention_heads=4,
    intermediate_size=64,
    max_position_embeddings=64,
    hidden_dropout_prob=0.0,
    attention_probs_dropout_prob=0.0,
)
B, T, K, M, V = 8, 16, 2, 4, 100


@pytest.fixture(scope="module")
def batch():
    """Rows of two texts of 8 tokens, of which the second text is free in two rows; 1 to 4 tokens to predict in each.

    The hidden token is the one before the mask, plus one; a text whose second half is "random" holds the token 7.
    """
    rng = np.random.default_rng(0)
    token_ids = rng.integers(10, 98, (B, T)).astype("int32")
    text_ids = np.repeat([[1, 2]], 8, axis=1).repeat(B, axis=0).astype("int32")
    text_ids[:2, 8:] = 0
    nsp = rng.integers(0, 2, (B, K)).astype("int32")
    token_ids[:, 5] = np.where(nsp[:, 0], 7, 8)
    token_ids[:, 13] = np.where(nsp[:, 1], 7, 8)
    positions = np.tile(np.array([2, 4, 10, 12], "int32"), (B, 1))
    filled = np.arange(M) < np.array([1, 2, 4, 4, 3, 4, 2, 4])[:, None]
    positions[~filled] = 0
    targets = np.where(filled, np.take_along_axis(token_ids, positions - 1, axis=1) + 1, 0).astype("int32")
    token_ids[np.arange(B)[:, None], positions] = 3
    inputs = {
        "token_ids": token_ids,
        "segment_ids": np.tile([0, 0, 0, 0, 1, 1, 1, 1], (B, 2)).astype("int32"),
        "position_ids": np.tile(np.arange(8), (B, 2)).astype("int32"),
        "text_ids": text_ids,
        "first_positions": np.tile(np.array([0, 8], "int32"), (B, 1)),
        "masked_positions": positions,
    }
    there = text_ids[:, [0, 8]] > 0
    inputs["first_positions"][~there] = 0
    nsp[~there] = 0
    weights = {"mlm": filled / filled.sum(), "nsp": there / there.sum()}
    return inputs, {"mlm": targets, "nsp": nsp}, {task: w.astype("float32") for task, w in weights.items()}


def _inputs(model, inputs):
    return {tensor.name: inputs[tensor.name] for tensor in model.inputs}


def _loss(outputs, targets, weights):
    return ops.convert_to_numpy(pretraining_losses(*map(_tensors, (outputs, targets, weights))))[0].item()


def _tensors(values):
    return {name: ops.convert_to_tensor(value) for name, value in values.items()}


def _predict(model, inputs):
    return {
        name: ops.convert_to_numpy(x) for name, x in backend_step().predictor(model)(_inputs(model, inputs)).items()
    }


def _negative_log_likelihood(logits, targets):
    logits = logits.astype("float64")
    totals = np.log(np.exp(logits).sum(axis=-1))
    return totals - np.take_along_axis(logits, targets[..., None], axis=-1)[..., 0]


def _hyper(model, step):
    """Of a step, counted from 1."""
    n = len(model.trainable_variables)
    corrections = map(np.float32, (1 - 0.9**step, 1 - 0.999**step))
    return Hyperparameters(
        np.full(n, 1e-2, "float32"), np.zeros(n, "float32"), *corrections, np.float32(1), np.zeros(2, "uint32")
    )


@pytest.fixture(scope="module")
def logits():
    rng = np.random.default_rng(1)
    shapes = {"mlm_logits": (B, M, V), "nsp_logits": (B, K, 2)}
    return {name: rng.normal(0, 3, shape).astype("float32") for name, shape in shapes.items()}


# === The loss ===


@pytest.mark.backend
def test_the_loss_is_the_mean_over_masked_tokens_and_the_mean_over_texts(logits, batch):
    _, targets, weights = batch
    expected = 0.0
    for task in ("mlm", "nsp"):
        filled = weights[task] > 0
        expected += _negative_log_likelihood(logits[f"{task}_logits"], targets[task])[filled].mean()
    assert _loss(logits, targets, weights) == pytest.approx(expected, abs=1e-5)


def test_without_the_next_sentence_the_loss_is_that_of_the_masks(logits, batch):
    _, targets, weights = batch
    alone = {"mlm_logits": logits["mlm_logits"]}
    filled = weights["mlm"] > 0
    expected = _negative_log_likelihood(logits["mlm_logits"], targets["mlm"])[filled].mean()
    assert _loss(alone, targets, weights) == pytest.approx(expected, abs=1e-5)


def test_what_free_slots_hold_changes_nothing(logits, batch):
    _, targets, weights = batch
    other = {name: array.copy() for name, array in logits.items()}
    other_targets = {task: array.copy() for task, array in targets.items()}
    for task, high in (("mlm", V), ("nsp", 2)):
        other[f"{task}_logits"][weights[task] == 0] = 50.0
        other_targets[task][weights[task] == 0] = high - 1
    assert _loss(other, other_targets, weights) == pytest.approx(_loss(logits, targets, weights), rel=1e-6)


def test_the_parts_of_a_batch_add_up_to_it(logits, batch):
    _, targets, weights = batch
    parts = [
        tuple({k: v[rows] for k, v in d.items()} for d in (logits, targets, weights)) for rows in (np.s_[:3], np.s_[3:])
    ]
    assert sum(_loss(*part) for part in parts) == pytest.approx(_loss(logits, targets, weights), rel=1e-6)


@pytest.mark.backend
@pytest.mark.parity
@pytest.mark.parametrize("nsp", [True, False])
def test_the_loss_is_that_of_transformers_on_the_same_batch(batch, nsp, tmp_path):
    torch = pytest.importorskip("torch", reason="to compare, run: pip install 'kbert-learn[parity]'")
    transformers = pytest.importorskip(
        "transformers", reason="to compare with it, run: pip install 'kbert-learn[parity]'"
    )
    torch.manual_seed(0)
    config = transformers.BertConfig(**{**TOY.to_dict(), "initializer_range": 0.2})
    theirs = (transformers.BertForPreTraining if nsp else transformers.BertForMaskedLM)(config).eval()
    theirs.save_pretrained(tmp_path)
    ours = load_pretraining(tmp_path, nsp=nsp)

    # They know no rows of several texts: the first text of each row alone.
    inputs, targets, weights = batch
    first = {name: array[:, :8] for name, array in inputs.items()}
    first |= {
        "first_positions": inputs["first_positions"][:, :1],
        "masked_positions": inputs["masked_positions"][:, :2],
    }
    filled = weights["mlm"][:, :2] > 0
    targets = {"mlm": targets["mlm"][:, :2], "nsp": targets["nsp"][:, :1]}
    weights = {"mlm": (filled / filled.sum()).astype("float32"), "nsp": np.full((B, 1), 1 / B, "float32")}
    labels = np.full((B, 8), -100)
    row, slot = np.nonzero(filled)
    labels[row, first["masked_positions"][row, slot]] = targets["mlm"][row, slot]

    tensors = [torch.tensor(first[name], dtype=torch.long) for name in ("token_ids", "text_ids", "segment_ids")]
    answers = {"next_sentence_label": torch.tensor(targets["nsp"][:, 0], dtype=torch.long)} if nsp else {}
    with torch.no_grad():
        expected = theirs(*tensors, labels=torch.tensor(labels), **answers).loss.item()
    assert _loss(_predict(ours, first), targets, weights) == pytest.approx(expected, abs=1e-5)


# === Scores ===


def test_scores_are_means_over_all_batches_each_task_apart(logits, batch):
    _, targets, weights = batch
    parts = [
        tuple({k: v[rows] for k, v in d.items()} for d in (logits, targets, weights)) for rows in (np.s_[:3], np.s_[3:])
    ]
    # The sums of weights differ between the parts, and do not matter.
    scores = mean_scores(score_sums(_tensors(part[0]), *part[1:]) for part in parts)
    assert list(scores) == ["loss", "mlm_loss", "mlm_accuracy", "mlm_count", "nsp_loss", "nsp_accuracy", "nsp_count"]
    for task in ("mlm", "nsp"):
        filled = weights[task] > 0
        output = logits[f"{task}_logits"]
        losses = _negative_log_likelihood(output, targets[task])[filled]
        assert scores[f"{task}_count"] == filled.sum()
        assert scores[f"{task}_loss"] == pytest.approx(losses.mean(), rel=1e-5)
        assert scores[f"{task}_accuracy"] == pytest.approx((output.argmax(-1) == targets[task])[filled].mean())
    assert scores["loss"] == pytest.approx(_loss(logits, targets, weights), rel=1e-5)


def test_where_nothing_is_counted_the_scores_are_nan(logits, batch):
    _, targets, weights = batch
    none = {task: np.zeros_like(w) for task, w in weights.items()}
    scores = mean_scores([score_sums(_tensors(logits), targets, none)])
    assert scores["mlm_count"] == scores["nsp_count"] == 0
    assert np.isnan(scores["mlm_loss"]) and np.isnan(scores["nsp_accuracy"])


@pytest.mark.parametrize("nsp", [True, False])
def test_what_a_step_reports_are_the_scores_of_its_batch(logits, batch, nsp):
    _, targets, weights = batch
    outputs = {name: array for name, array in logits.items() if nsp or name == "mlm_logits"}
    reported = ops.convert_to_numpy(pretraining_losses(*map(_tensors, (outputs, targets, weights))))
    scores = mean_scores([score_sums(_tensors(outputs), targets, weights)])
    assert dict(zip(REPORTED, reported.tolist(), strict=True)) == pytest.approx(
        {name: scores.get(name, 0.0) for name in REPORTED}, rel=1e-5
    )


# === Through the training step ===


@pytest.mark.backend
@pytest.mark.parametrize("nsp", [True, False])
def test_a_batch_is_learned_in_the_training_step_of_every_backend(batch, nsp):
    inputs, targets, weights = batch
    model = BertForPreTraining(TOY, nsp=nsp, seed=1)
    names = _inputs(model, inputs)
    trainer = backend_step().Trainer(model, pretraining_losses)
    losses = [float(trainer.train(StepBatch(names, targets, weights), _hyper(model, i + 1))[0]) for i in range(80)]
    trainer.write_back()
    assert losses[0] == pytest.approx(np.log(V) + nsp * np.log(2), abs=0.15)
    scores = mean_scores([score_sums(backend_step().predictor(model)(names), targets, weights)])
    assert scores["mlm_accuracy"] > 0.9 and scores["mlm_loss"] < 0.5 and scores["mlm_count"] == 24
    if nsp:
        assert scores["nsp_accuracy"] > 0.9 and scores["nsp_count"] == 14
    assert scores["loss"] == pytest.approx(losses[-1], abs=0.2)
