"""Folders of pre-trained models with their heads: those of transformers, those that lack a head, and damaged ones."""

import json
import warnings

import keras
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from kbert import BertEncoder, BertForPreTraining
from kbert.errors import NewWeightsWarning, WeightsMismatchError
from kbert.weights import save_encoder

pytestmark = pytest.mark.slow

MLM, NSP, POOLER = "cls.predictions.", "cls.seq_relationship.", "bert.pooler."
WORDS, DECODER = "bert.embeddings.word_embeddings.weight", "cls.predictions.decoder.weight"


def _model(config, nsp=True):
    """One in which no weight has its start value."""
    model = BertForPreTraining(config, nsp=nsp, seed=1)
    rng = np.random.default_rng(0)
    for weight in model.weights:
        weight.assign(rng.normal(1.0 if weight.name == "gamma" else 0.0, 0.2, weight.shape).astype("float32"))
    return model


@pytest.fixture(scope="module")
def model(toy_config):
    return _model(toy_config)


@pytest.fixture
def folder(model, tmp_path):
    """A folder of the model, to be damaged."""
    model.save_pretrained(tmp_path)
    return tmp_path


@pytest.fixture(scope="module")
def positions():
    return np.array([[2, 4, 0], [1, 8, 3], [11, 5, 7]], "int32")


def _logits(model, inputs, positions):
    inputs = {**inputs, "masked_positions": positions}
    if model.nsp_head is not None:
        inputs["first_positions"] = np.zeros((3, 1), "int32")
    return {name: keras.ops.convert_to_numpy(tensor) for name, tensor in model(inputs).items()}


def _same(first, second):
    return all(np.array_equal(a, b) for a, b in zip(first, second, strict=True))


def _rewrite(folder, change):
    path = folder / "model.safetensors"
    arrays = {name: array.copy() for name, array in load_file(path).items()}
    arrays = change(arrays) or arrays
    save_file({name: np.ascontiguousarray(array) for name, array in arrays.items()}, path)


def _without(*prefixes):
    return lambda arrays: {name: array for name, array in arrays.items() if not name.startswith(prefixes)}


# === The same in transformers ===


@pytest.fixture(scope="module")
def transformers():
    pytest.importorskip("torch", reason="to compare, run: pip install 'kbert-learn[parity]'")
    return pytest.importorskip("transformers", reason="to compare with it, run: pip install 'kbert-learn[parity]'")


def _theirs(model, inputs, positions, nsp):
    import torch

    arrays = (torch.tensor(inputs[name], dtype=torch.long) for name in ("token_ids", "text_ids", "segment_ids"))
    with torch.no_grad():
        outputs = model.eval()(*arrays)
    rows = np.arange(3)[:, None]
    if nsp:
        mlm = outputs.prediction_logits.numpy()[rows, positions]
        return {"mlm_logits": mlm, "nsp_logits": outputs.seq_relationship_logits.numpy()[:, None]}
    return {"mlm_logits": outputs.logits.numpy()[rows, positions]}


def _assert_equal(ours, theirs):
    assert set(ours) == set(theirs)
    for name in ours:
        assert np.abs(theirs[name]).max() > 0.3
        np.testing.assert_allclose(ours[name], theirs[name], rtol=0, atol=2e-5)


@pytest.mark.backend
@pytest.mark.parity
@pytest.mark.parametrize("nsp", [True, False])
def test_a_folder_of_transformers_gives_their_logits(transformers, toy_config, inputs, positions, nsp, tmp_path):
    import torch

    torch.manual_seed(0)
    config = transformers.BertConfig(**{**toy_config.to_dict(), "initializer_range": 0.2})
    theirs = (transformers.BertForPreTraining if nsp else transformers.BertForMaskedLM)(config)
    torch.nn.init.normal_(theirs.cls.predictions.bias)
    theirs.save_pretrained(tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("error", NewWeightsWarning)
        ours = BertForPreTraining.from_pretrained(tmp_path, nsp=nsp)
    _assert_equal(_logits(ours, inputs, positions), _theirs(theirs, inputs, positions, nsp))


@pytest.mark.parity
@pytest.mark.parametrize("nsp", [True, False])
def test_a_saved_folder_opens_in_transformers_with_its_logits(
    transformers, toy_config, inputs, positions, nsp, tmp_path
):
    # With the start's LayerNorm and small numbers: what is compared is float32 rounding.
    model = BertForPreTraining(toy_config, nsp=nsp, seed=1)
    model.encoder.embeddings.word.assign(np.random.default_rng(0).normal(0, 0.2, (100, 32)).astype("float32"))
    model.mlm_head.bias.assign(np.linspace(-1, 1, 100).astype("float32"))
    if nsp:
        model.nsp_head.bias.assign([1.0, -1.0])
    model.save_pretrained(tmp_path)
    name = json.loads((tmp_path / "config.json").read_text())["architectures"]
    assert name == ["BertForPreTraining" if nsp else "BertForMaskedLM"]
    theirs, report = getattr(transformers, name[0]).from_pretrained(tmp_path, output_loading_info=True)
    assert not report["missing_keys"] and not report["mismatched_keys"]
    assert {key for key in report["unexpected_keys"] if "pooler" not in key} == set()
    _assert_equal(_logits(model, inputs, positions), _theirs(theirs, inputs, positions, nsp))


@pytest.mark.parity
def test_the_released_masked_language_model_gives_their_logits(transformers, bert_tiny_folder, inputs, positions):
    ours = BertForPreTraining.from_pretrained(bert_tiny_folder, nsp=False)
    theirs = transformers.BertForMaskedLM.from_pretrained(bert_tiny_folder)
    # Some of this checkpoint's logits are 30, of which float32 has no more than seven digits.
    expected = _theirs(theirs, inputs, positions, nsp=False)["mlm_logits"]
    difference = np.abs(_logits(ours, inputs, positions)["mlm_logits"] - expected).max()
    assert difference <= max(2e-5, 2e-6 * np.abs(expected).max())


# === Round trips ===


@pytest.mark.backend
@pytest.mark.parametrize("nsp", [True, False])
def test_what_is_saved_is_read_again_bit_for_bit_and_without_a_warning(toy_config, arrays_of, nsp, tmp_path):
    model = _model(toy_config, nsp)
    model.save_pretrained(tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("error", NewWeightsWarning)
        again = BertForPreTraining.from_pretrained(tmp_path, nsp=nsp)
        encoder = BertEncoder.from_pretrained(tmp_path)
    assert again.config == model.config and again.choices == {"nsp": nsp}
    assert _same(arrays_of(again), arrays_of(model))
    # So does every estimator read it, pooler included.
    assert _same(arrays_of(encoder), arrays_of(model.encoder))


def test_the_file_holds_the_tied_array_once(folder):
    arrays = load_file(folder / "model.safetensors")
    assert DECODER not in arrays and "cls.predictions.decoder.bias" not in arrays
    assert [name for name, array in arrays.items() if array.shape == (100, 32)] == [WORDS]
    assert {name.partition(".")[0] for name in arrays} == {"bert", "cls"}


def test_a_classifier_starts_from_the_folder(folder, arrays_of):
    from kbert import BertClassifier, WordPieceTokenizer

    texts = ["a good film", "a bad film", "good", "bad"] * 4
    WordPieceTokenizer.train(texts, vocab_size=100).save(folder)
    with warnings.catch_warnings():
        warnings.simplefilter("error", NewWeightsWarning)
        classifier = BertClassifier(
            weights=folder, freeze=2, max_length=8, epochs=1, batch_size=16, dtype="float32", random_state=0
        ).fit(texts, [1, 0] * 8)
    layers = BertForPreTraining.from_pretrained(folder).encoder.transformer_layers
    assert _same(arrays_of(classifier.model_.encoder.transformer_layers[0]), arrays_of(layers[0]))


# === Heads that are missing ===


@pytest.mark.parametrize(
    "gone, nsp, named, not_named",
    [
        ((MLM,), True, ["masked-LM head"], ["next-sentence", "pooler"]),
        ((NSP,), True, ["next-sentence head"], ["masked-LM", "pooler"]),
        ((NSP, POOLER), True, ["pooler", "next-sentence head"], ["masked-LM"]),
        ((MLM, NSP), True, ["masked-LM head", "next-sentence head"], ["pooler"]),
        ((MLM, NSP, POOLER), False, ["masked-LM head"], ["next-sentence", "pooler"]),
    ],
)
def test_a_missing_head_starts_at_random_and_is_named_in_one_warning(
    folder, model, arrays_of, gone, nsp, named, not_named
):
    _rewrite(folder, _without(*gone))
    with pytest.warns(NewWeightsWarning) as caught:
        again = BertForPreTraining.from_pretrained(folder, nsp=nsp, seed=4)
    assert len(caught) == 1 and caught[0].filename == __file__
    message = str(caught[0].message)
    assert all(part in message for part in named) and not any(part in message for part in not_named)
    assert again.has_new_mlm_head == (MLM in gone)  # else its words are good
    fresh = BertForPreTraining(model.config, nsp=nsp, seed=4)
    assert _same(arrays_of(again.mlm_head), arrays_of((fresh if MLM in gone else model).mlm_head))
    assert _same(arrays_of(again.encoder.pooler), arrays_of((fresh if POOLER in gone else model).encoder.pooler))
    if nsp:
        assert _same(arrays_of(again.nsp_head), arrays_of((fresh if NSP in gone else model).nsp_head))
    assert _same(arrays_of(again.encoder.embeddings), arrays_of(model.encoder.embeddings))


def test_an_encoders_folder_is_where_pre_training_goes_on(encoder, arrays_of, tmp_path):
    save_encoder(encoder, tmp_path)
    with pytest.warns(NewWeightsWarning, match="no masked-LM head .*, no next-sentence head"):
        model = BertForPreTraining.from_pretrained(tmp_path)
    assert _same(arrays_of(model.encoder), arrays_of(encoder))


def test_a_missing_pooler_that_nothing_stands_on_is_not_spoken_of(folder):
    _rewrite(folder, _without(NSP, POOLER))
    with warnings.catch_warnings():
        warnings.simplefilter("error", NewWeightsWarning)
        BertForPreTraining.from_pretrained(folder, nsp=False)


# === Tied arrays, and damage ===


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda a: {**a, DECODER: a[WORDS]}, id="decoder.weight beside the embeddings"),
        pytest.param(lambda a: {**a, "cls.predictions.decoder.bias": a["cls.predictions.bias"]}, id="both biases"),
        pytest.param(
            lambda a: {name.replace("cls.predictions.bias", "cls.predictions.decoder.bias"): a[name] for name in a},
            id="decoder.bias alone",
        ),
        pytest.param(
            lambda a: {
                name.replace("Norm.weight", "Norm.gamma").replace("Norm.bias", "Norm.beta"): a[name] for name in a
            },
            id="gamma and beta",
        ),
    ],
)
def test_other_forms_of_the_same_weights_are_read_alike(folder, model, arrays_of, change):
    _rewrite(folder, change)
    assert _same(arrays_of(BertForPreTraining.from_pretrained(folder)), arrays_of(model))


@pytest.mark.parametrize(
    "change, message",
    [
        (lambda a: {**a, DECODER: a[WORDS] + 1e-3}, "decoder.weight and embeddings.word_embeddings.weight .*differ"),
        (lambda a: {**a, DECODER: a[WORDS][:90]}, "decoder.weight and .*differ"),
        (lambda a: {**a, "cls.predictions.decoder.bias": a["cls.predictions.bias"] + 1}, "decoder.bias and .*differ"),
        (_without("cls.predictions.bias"), "lacks cls.predictions.bias"),
        (_without("cls.predictions.transform.dense"), "lacks cls.predictions.transform.dense.bias"),
        (_without("cls.seq_relationship.bias"), "lacks cls.seq_relationship.bias"),
        (_without("bert.pooler.dense.bias"), "lacks pooler.dense.bias"),
        (lambda a: {**a, "cls.seq_relationship.bias": np.zeros(3, "float32")}, "seq_relationship.bias .*shape"),
        (lambda a: {**a, "cls.predictions.bias": a["cls.predictions.bias"] * np.nan}, "predictions.bias .*NaN"),
    ],
)
def test_heads_that_do_not_fit_are_refused_by_name(folder, change, message):
    _rewrite(folder, change)
    with pytest.raises(WeightsMismatchError, match=message):
        BertForPreTraining.from_pretrained(folder)


def test_an_output_matrix_of_its_own_is_no_matter_to_the_encoder_alone(folder, model, arrays_of):
    _rewrite(folder, lambda a: {**a, DECODER: a[WORDS] + 1})
    assert _same(arrays_of(BertEncoder.from_pretrained(folder)), arrays_of(model.encoder))


def test_a_file_may_have_the_output_matrix_in_the_place_of_the_word_embeddings(folder, model, arrays_of):
    _rewrite(folder, lambda arrays: {DECODER: arrays.pop(WORDS), **arrays})
    assert _same(arrays_of(BertForPreTraining.from_pretrained(folder)), arrays_of(model))
    assert _same(arrays_of(BertEncoder.from_pretrained(folder)), arrays_of(model.encoder))
