"""Exporting: what other programs compute from the folder is what the estimator predicts, or there is no folder."""

import json
import os
import re
import subprocess
import sys
import warnings
from contextlib import nullcontext
from pathlib import Path

import keras
import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import NotFittedError
from tokenizers import Tokenizer

import kbert
from kbert import (
    BertClassifier,
    BertConfig,
    BertMultipleChoice,
    BertPretrainer,
    BertQA,
    BertRegressor,
    BertTagger,
    BertVectorizer,
    WordPieceTokenizer,
)
from kbert.errors import ParameterWarning, WeightsMismatchError, WeightsNotFoundError
from kbert.model import (
    BertForPreTraining,
    BertForQuestionAnswering,
    BertForSequenceClassification,
    BertForTokenClassification,
)
from kbert.pretraining import Corpus
from kbert.weights import (
    load_encoder_weights,
    onnx_files,
    save_multiple_choice,
    save_pretraining,
    save_question_answerer,
    save_sequence_classifier,
    save_token_classifier,
)
from kbert.weights.int8 import quantized
from kbert.weights.onnx_graph import onnx_model
from kbert.weights.runtimes import ExportedModel

pytest.importorskip("onnx", reason="to export, run: pip install 'kbert-learn[onnx]'")
onnxruntime = pytest.importorskip("onnxruntime", reason="to export, run: pip install 'kbert-learn[onnx]'")

_WORDS = "the a table chair room with was and it this awful broken sad great lovely happy plain usual fine".split()
_RNG = np.random.default_rng(0)
TEXTS = [*(" ".join(_RNG.choice(_WORDS, n)) for n in _RNG.integers(1, 9, 18)), "", "Ünïcode 日本", "the table " * 4]
NAMES = {0: "no", 1: "yes", 2: "perhaps"}
PAIRS = pd.DataFrame({"left": TEXTS, "right": TEXTS[::-1]})
WORDS = [text.split() for text in TEXTS]
CHOICES = [(text, ["the room", "a sad chair", "this"][: 2 + i % 2]) for i, text in enumerate(TEXTS)]
FILES = {"config.json", "export.json", "model.onnx", "tokenizer.json", "tokenizer_config.json", "vocab.txt"}

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::kbert.errors.MissingTextWarning")]


@pytest.fixture(scope="module")
def folder_of(quick_folder, tmp_path_factory):
    """A function that makes a folder of a task as transformers saves it, of which an estimator can be loaded."""

    def make(model_class, save, *arguments):
        folder = tmp_path_factory.mktemp("task")
        model = model_class(BertConfig.from_folder(quick_folder), *arguments, dtype="float32", seed=3)
        rng = np.random.default_rng(0)
        for weight in model.weights:
            if len(weight.shape) == 2:  # large enough for texts to be told apart
                weight.assign(rng.normal(0, 0.3, weight.shape).astype("float32"))
        save(model, folder)
        WordPieceTokenizer.from_pretrained(quick_folder).save(folder)
        return folder

    return make


@pytest.fixture(scope="module")
def classifier(folder_of):
    """Of three labels. Tests must not change it."""
    folder = folder_of(
        BertForSequenceClassification,
        lambda model, path: save_sequence_classifier(model, path, NAMES, "single_label_classification"),
        3,
    )
    return BertClassifier.load(folder).set_params(max_length=24)


def plain_inputs(folder, texts, max_length=24):
    """What a program without kbert does: the library tokenizers, with the folder's own file."""
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.enable_truncation(max_length)
    tokenizer.enable_padding(pad_id=tokenizer.token_to_id("[PAD]"))
    rows = tokenizer.encode_batch(texts)
    arrays = {"input_ids": "ids", "attention_mask": "attention_mask", "token_type_ids": "type_ids"}
    return {name: np.array([getattr(row, key) for row in rows], "int64") for name, key in arrays.items()}


def run(folder, inputs, *outputs):
    session = onnxruntime.InferenceSession(str(folder / "model.onnx"), providers=["CPUExecutionProvider"])
    return session.run(list(outputs) or None, inputs)


def assert_same_results(loaded, estimator, X):
    """What an exported folder gives as an estimator is what the estimator gives, and it knows what that learned."""
    assert isinstance(loaded.model_, ExportedModel) and loaded.get_params().keys() == estimator.get_params().keys()
    if isinstance(estimator, BertVectorizer):
        found, expected = loaded.transform(X), estimator.transform(X)
    elif isinstance(estimator, (BertRegressor, BertQA)):
        found, expected = loaded.predict(X), estimator.predict(X)
    else:
        found, expected = loaded.predict_proba(X), estimator.predict_proba(X)
        answers = ([np.asarray(row).tolist() for row in each.predict(X)] for each in (loaded, estimator))
        assert next(answers) == next(answers)
    if isinstance(expected, list):
        assert list(map(np.shape, found)) == list(map(np.shape, expected))
    if isinstance(estimator, BertQA):
        assert list(found) == list(expected)
    else:
        rows = zip(found, expected, strict=True) if isinstance(expected, list) else [(found, expected)]
        for one, other in rows:
            np.testing.assert_allclose(np.asarray(one), np.asarray(other), atol=2e-5, rtol=1e-5)


# === What is exported predicts the same ===


@pytest.mark.backend
def test_a_program_without_kbert_gets_the_same_probabilities(classifier, tmp_path):
    report = classifier.export(tmp_path / "out", X=TEXTS)
    assert set(os.listdir(tmp_path / "out")) == FILES and os.listdir(tmp_path) == ["out"]
    assert (report.n_rows, report.agreement, report.quantize) == (len(TEXTS), 1.0, None)
    assert report.runtime == "onnxruntime"  # whatever is installed besides
    assert report.max_difference < 1e-5
    expected = classifier.predict_proba(TEXTS)
    assert np.ptp(expected, axis=0).max() > 0.1
    # From one file, whatever the number of rows and their length.
    for rows in (slice(0, 1), slice(2, 7), slice(None)):
        (found,) = run(tmp_path / "out", plain_inputs(tmp_path / "out", TEXTS[rows]), "probabilities")
        np.testing.assert_allclose(found, expected[rows], atol=1e-5)
    config = json.loads((tmp_path / "out" / "config.json").read_text(encoding="utf-8"))
    assert config["id2label"] == {"0": "no", "1": "yes", "2": "perhaps"}
    told = json.loads((tmp_path / "out" / "export.json").read_text(encoding="utf-8"))
    assert told["reading"]["max_length"] == 24 and told["check"]["n_rows"] == len(TEXTS)


def test_the_program_that_the_docs_show(classifier, tmp_path, monkeypatch, capsys):
    page = (Path(__file__).parents[2] / "docs" / "howto" / "export.md").read_text(encoding="utf-8")
    program = re.search(r"```python\n(import json\n.*?)```", page, re.DOTALL)[1]
    classifier.export(tmp_path / "support-onnx")
    monkeypatch.chdir(tmp_path)
    exec(program, {})
    assert capsys.readouterr().out.strip() == str(
        classifier.predict(["I was charged twice", "where is my parcel?"]).tolist()
    )


def test_pairs(classifier, tmp_path):
    report = classifier.export(tmp_path / "out", X=PAIRS)
    assert report.max_difference < 1e-5 and report.agreement == 1.0
    inputs = plain_inputs(tmp_path / "out", list(PAIRS.itertuples(index=False, name=None)))
    assert inputs["token_type_ids"].any()
    task, columns = classifier._read(PAIRS)
    (sequences,) = task.chunks(columns, classifier.tokenizer_)
    short = sequences.lengths < 24
    assert short.sum() > 5  # longer ones are cut token by token in kbert
    (found,) = run(tmp_path / "out", inputs, "probabilities")
    np.testing.assert_allclose(found[short], classifier.predict_proba(PAIRS)[short], atol=1e-5)


def test_a_fitted_classifier_of_pairs_is_checked_on_pairs(toy, pairs, tmp_path):
    fitted = toy(calibrate="temperature").fit(pairs[["left", "right"]], pairs.both)
    assert fitted.export(tmp_path / "out").max_difference < 1e-5
    report = fitted.export(tmp_path / "out", X=pairs[["left", "right"]])  # replaces the other
    assert report.n_rows == len(pairs) and report.max_difference < 1e-5
    inputs = plain_inputs(tmp_path / "out", pairs[["left", "right"]].values.tolist(), max_length=16)
    (found,) = run(tmp_path / "out", inputs, "probabilities")  # the temperature is in the file
    np.testing.assert_allclose(found, fitted.predict_proba(pairs[["left", "right"]]), atol=1e-5)


def test_several_labels_a_row(folder_of, tmp_path):
    folder = folder_of(
        BertForSequenceClassification,
        lambda model, path: save_sequence_classifier(model, path, NAMES, "multi_label_classification"),
        3,
    )
    classifier = BertClassifier.load(folder).set_params(max_length=24)
    assert classifier.export(tmp_path / "out", X=TEXTS).agreement == 1.0
    (found,) = run(tmp_path / "out", plain_inputs(tmp_path / "out", TEXTS), "probabilities")
    np.testing.assert_allclose(found, classifier.predict_proba(TEXTS), atol=1e-5)
    assert_same_results(BertClassifier.load(tmp_path / "out"), classifier, TEXTS)
    # No label reaches its threshold, so each row gets the likeliest, and that is what is compared.
    classifier.thresholds_, classifier.at_least_one_ = np.full(3, 0.999), True
    assert (classifier.predict_proba(TEXTS) < 0.999).all()
    _, answers, _ = classifier._results(TEXTS)
    np.testing.assert_array_equal(answers, classifier.predict(TEXTS))
    assert answers.any(axis=1).all()


def test_long_texts_in_windows(classifier, tmp_path):
    """The windows are the estimator's; the model sees each."""
    windowed = BertClassifier.load(classifier.weights).set_params(max_length=8, long_text="window", stride=3)
    assert windowed.export(tmp_path / "out", X=TEXTS).max_difference < 1e-5
    assert_same_results(BertClassifier.load(tmp_path / "out"), windowed, TEXTS)


def test_numbers_are_in_their_own_unit(quick_folder, reviews, tmp_path):
    prices = np.where(reviews.label == "good", 3000.0, 1000.0)
    regressor = BertRegressor(weights=quick_folder, max_length=16, learning_rate=3e-3, dtype="float32", random_state=0)
    regressor.fit(reviews.text, prices)
    report = regressor.export(tmp_path / "out", X=reviews.text)
    assert report.agreement is None
    (found,) = run(tmp_path / "out", plain_inputs(tmp_path / "out", reviews.text.tolist(), 16))
    expected = regressor.predict(reviews.text)
    assert expected.mean() > 500
    np.testing.assert_allclose(found[:, 0], expected, rtol=1e-5)
    assert_same_results(BertRegressor.load(tmp_path / "out"), regressor, reviews.text)


def _tagger(folder_of):
    folder = folder_of(BertForTokenClassification, lambda model, path: save_token_classifier(model, path, NAMES), 3)
    return BertTagger.load(folder).set_params(max_length=8)


def _answerer(folder_of):
    return BertQA.load(folder_of(BertForQuestionAnswering, save_question_answerer)).set_params(max_length=16)


def _chooser(folder_of):
    return BertMultipleChoice.load(folder_of(BertForSequenceClassification, save_multiple_choice, 1))


@pytest.mark.parametrize(
    "make, X, outputs",
    [
        pytest.param(_tagger, WORDS, ["logits", "probabilities"], id="tagger, rows of words, in windows"),
        pytest.param(_tagger, TEXTS, ["logits", "probabilities"], id="tagger, texts"),
        pytest.param(_answerer, PAIRS.values.tolist(), ["start_logits", "end_logits"], id="answers"),
        pytest.param(_chooser, CHOICES, ["logits"], id="options"),
    ],
)
def test_tasks(folder_of, tmp_path, make, X, outputs):
    estimator = make(folder_of)
    assert estimator.export(tmp_path / "out").n_rows == 4
    report = estimator.export(tmp_path / "out", X=X)
    assert report.n_rows == len(X) and report.max_difference < 1e-5
    assert report.agreement > 0.9  # two answers may be as good
    session = onnxruntime.InferenceSession(str(tmp_path / "out" / "model.onnx"))
    assert [output.name for output in session.get_outputs()] == outputs
    loaded = type(estimator).load(tmp_path / "out", verify=True)
    assert_same_results(loaded, estimator, X)
    assert_same_results(kbert.load(tmp_path / "out"), estimator, X)


@pytest.mark.parametrize(
    "parameters, X",
    [
        (dict(layers="sum_last_4"), TEXTS),
        (dict(layers="second_to_last", pooling="cls"), PAIRS),
        (dict(normalize=True, long_text="window"), TEXTS),
        (dict(layers="concat_last_4", level="word"), WORDS),
    ],
)
def test_vectors(quick_folder, tmp_path, parameters, X):
    vectorizer = BertVectorizer(weights=quick_folder, max_length=16, dtype="float32", **parameters).fit(X)
    if "level" not in parameters:
        vectorizer.set_output(transform="pandas")
    assert vectorizer.export(tmp_path / "out").max_difference < 1e-5
    report = vectorizer.export(tmp_path / "out", X=X)
    assert report.n_rows == len(X) and report.max_difference < 2e-5
    loaded = BertVectorizer.load(tmp_path / "out", verify=True)
    assert type(loaded.transform(X)) is type(vectorizer.transform(X))
    assert_same_results(loaded, vectorizer, X)


def test_masked_words(folder_of, tmp_path):
    pretrainer = BertPretrainer.load(folder_of(BertForPreTraining, save_pretraining)).set_params(max_length=16)
    report = pretrainer.export(tmp_path / "out", X=TEXTS)
    assert 1 < report.n_rows <= len(TEXTS) and report.max_difference < 1e-4
    with pytest.raises(WeightsNotFoundError, match="holds an exported BertPretrainer, which other programs run"):
        BertPretrainer.load(tmp_path / "out")
    with pytest.raises(ValueError, match="single str"):
        pretrainer.export(tmp_path / "out", X="a quick fox")


def test_of_a_corpus_no_more_is_read_than_is_compared(folder_of, tmp_path):
    read = []

    class Watched(Corpus):
        def __iter__(self):
            for document in super().__iter__():
                read.append(document)
                yield document

    pretrainer = BertPretrainer.load(folder_of(BertForPreTraining, save_pretraining)).set_params(max_length=16)
    assert pretrainer.export(tmp_path / "out", X=Watched(TEXTS * 50)).n_rows == 8
    assert len(read) < 20


@pytest.mark.parametrize("X", [None, TEXTS])
def test_masked_words_are_compared_at_every_position_and_over_the_whole_vocabulary(folder_of, tmp_path, monkeypatch, X):
    def with_another_word(values, arrays, **choices):
        bias = arrays["cls.predictions.bias"].copy()
        bias[-1] += 1
        return onnx_model(values, arrays | {"cls.predictions.bias": bias}, **choices)

    monkeypatch.setattr("kbert.weights.onnx_files.onnx_model", with_another_word)
    pretrainer = BertPretrainer.load(folder_of(BertForPreTraining, save_pretraining)).set_params(max_length=16)
    with pytest.raises(WeightsMismatchError, match="does not predict what the estimator does"):
        pretrainer.export(tmp_path / "out", X=X)
    assert not (tmp_path / "out").exists()


def test_parameters_of_a_grid_search_are_written(classifier, tmp_path):
    low = BertClassifier.load(classifier.weights).set_params(max_length=np.int64(24))
    low.export(tmp_path / "out")
    assert json.loads((tmp_path / "out" / "export.json").read_text())["reading"]["max_length"] == 24


def test_a_model_in_bfloat16_is_exported_in_float32(classifier, tmp_path):
    low = BertClassifier.load(classifier.weights).set_params(dtype="bfloat16", max_length=24)
    low.model_ = low._load_model(classifier.weights, "mixed_bfloat16")
    assert np.abs(low.predict_proba(TEXTS) - classifier.predict_proba(TEXTS)).max() > 1e-4
    assert low.export(tmp_path / "out", X=TEXTS).max_difference < 1e-5
    (found,) = run(tmp_path / "out", plain_inputs(tmp_path / "out", TEXTS), "probabilities")
    np.testing.assert_allclose(found, classifier.predict_proba(TEXTS), atol=1e-5)


def test_real_weights(minilm_folder, tmp_path):
    words = ["the", "price", "of", "Paris", "hotels", "unbelievably", "good", "2024", "?!", "was", "naïve", "日本"]
    rng = np.random.default_rng(0)
    texts = [" ".join(rng.choice(words, n)) for n in rng.integers(0, 25, 50)]
    model = BertForSequenceClassification(BertConfig.from_folder(minilm_folder), 3, dtype="float32", seed=1)
    load_encoder_weights(model.encoder, minilm_folder)
    # A head whose probabilities are far from even.
    model.classifier.kernel.assign(np.random.default_rng(1).normal(0, 1, (384, 3)).astype("float32"))
    save_sequence_classifier(model, tmp_path / "saved", NAMES, "single_label_classification")
    WordPieceTokenizer.from_pretrained(minilm_folder).save(tmp_path / "saved")
    classifier = BertClassifier.load(tmp_path / "saved")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = classifier.predict_proba(texts)
    assert np.ptp(expected, axis=0).min() > 0.2
    report = classifier.export(tmp_path / "out", X=texts)
    assert report.max_difference < 2e-5 and report.agreement == 1.0
    (found,) = run(tmp_path / "out", plain_inputs(tmp_path / "out", texts, 128), "probabilities")
    np.testing.assert_allclose(found, expected, atol=2e-5)


def test_what_is_off_in_int8_is_told_and_no_error(classifier, tmp_path, capsys):
    estimator = BertClassifier.load(classifier.weights).set_params(max_length=24, verbose=1)
    report = estimator.export(tmp_path / "out", X=TEXTS, quantize="int8_dynamic")
    assert report.max_difference > 1e-4
    told = capsys.readouterr().out
    assert f"on {len(TEXTS)} rows at most {report.max_difference:.1e} off" in told and f"{report.agreement:.2%}" in told
    (found,) = run(tmp_path / "out", plain_inputs(tmp_path / "out", TEXTS), "probabilities")
    differences = np.abs(found - estimator.predict_proba(TEXTS))
    # Scales are found for each batch, so that other batches give slightly other numbers.
    assert 1e-4 < differences.max() < 3 * report.max_difference
    agreement = (found.argmax(axis=1) == estimator.predict_proba(TEXTS).argmax(axis=1)).mean()
    assert abs(agreement - report.agreement) <= 1 / len(TEXTS)


@pytest.mark.parametrize("runtime", ["onnxruntime", "openvino"])
def test_int8_calibrated_on_rows_is_closer_than_dynamic(classifier, tmp_path, runtime):
    dynamic = classifier.export(tmp_path / "dynamic", X=TEXTS, quantize="int8_dynamic")
    y = np.where(np.arange(len(TEXTS)) % 3, classifier.predict(TEXTS), "another")
    report = classifier.export(tmp_path / "out", X=TEXTS, quantize="int8", y=y)
    assert 0 < report.max_difference < dynamic.max_difference
    assert report.estimator_score == classifier.score(TEXTS, y)
    pytest.importorskip(runtime, reason=f"to run this, run: pip install {runtime}")
    loaded = BertClassifier.load(tmp_path / "out", runtime=runtime, verify=True).set_params(dtype="float32")
    assert report.score == pytest.approx(loaded.score(TEXTS, y), abs=1.1 / len(TEXTS))
    expected = classifier.predict_proba(TEXTS)
    # The report is of what `load` takes here.
    taken = BertClassifier.load(tmp_path / "out")
    assert report.runtime == taken.model_.runtime and f"int8, by {report.runtime}" in str(report)
    found = np.abs(taken.predict_proba(TEXTS) - expected).max()
    assert report.max_difference == pytest.approx(found, rel=1e-3)
    np.testing.assert_allclose(loaded.predict_proba(TEXTS), expected, atol=2 * report.max_difference)
    # Of any rows, however many, in one batch or in several.
    np.testing.assert_allclose(loaded.predict_proba(TEXTS[:3]), expected[:3], atol=2 * report.max_difference)
    told = json.loads((tmp_path / "out" / "export.json").read_text())["check"]
    assert (told["quantize"], told["runtime"]) == ("int8", report.runtime)
    assert (told["score"], told["agreement"]) == (report.score, report.agreement)


def test_rows_that_repeat_are_counted_once_where_int8_is_calibrated(classifier, tmp_path):
    rows = [f"{TEXTS[i % len(TEXTS)]} {i}" for i in range(60)]
    with warnings.catch_warnings():
        warnings.simplefilter("error", ParameterWarning)
        classifier.export(tmp_path / "different", X=rows, quantize="int8")
    with pytest.warns(ParameterWarning, match="from 60 rows, of which 2 are different"):
        classifier.export(tmp_path / "repeated", X=rows[:2] * 30, quantize="int8")


def test_in_int8_logits_are_verified_as_closely_as_runtimes_agree(classifier, tmp_path):
    for quantize, off, is_refused in [(None, 0.05, True), ("int8", 0.05, False), ("int8", 5.0, True)]:
        folder = tmp_path / f"{quantize} {off}"
        classifier.export(folder, X=TEXTS, quantize=quantize)
        values = json.loads((folder / "export.json").read_text())
        values["golden"]["logits"] = (np.array(values["golden"]["logits"]) + off).tolist()
        (folder / "export.json").write_text(json.dumps(values))
        with pytest.raises(WeightsMismatchError, match="outputs differ by") if is_refused else nullcontext():
            BertClassifier.load(folder, verify=True)


@pytest.mark.parametrize(
    "make, X, bound",
    [
        pytest.param(_tagger, WORDS, 0.2, id="tagger"),
        pytest.param(_answerer, PAIRS.values.tolist(), 0.3, id="answers"),  # logits, not probabilities
        pytest.param(_chooser, CHOICES, 0.2, id="options"),
    ],
)
def test_tasks_in_int8(folder_of, tmp_path, make, X, bound):
    estimator = make(folder_of)
    report = estimator.export(tmp_path / "out", X=X, quantize="int8")
    exact = estimator.export(tmp_path / "exact", X=X)
    assert exact.max_difference < report.max_difference < bound
    assert type(estimator).load(tmp_path / "out").predict(X) is not None
    sizes = [(tmp_path / name / "model.onnx").stat().st_size for name in ("out", "exact")]
    assert sizes[0] < 0.7 * sizes[1]  # of so small a model


@pytest.mark.parametrize("layers", ["embeddings", "concat_last_4"])
def test_vectors_in_int8(quick_folder, tmp_path, layers):
    vectorizer = BertVectorizer(weights=quick_folder, max_length=16, dtype="float32", layers=layers).fit(TEXTS)
    report = vectorizer.export(tmp_path / "out", X=TEXTS, quantize="int8")
    expected, found = (each.transform(TEXTS) for each in (vectorizer, BertVectorizer.load(tmp_path / "out")))
    assert 0 < report.max_difference < 0.1 * np.abs(expected).max() and found.shape == expected.shape
    similar = (found * expected).sum(axis=1) / np.linalg.norm(found, axis=1) / np.linalg.norm(expected, axis=1)
    assert similar.min() > 0.99


def test_masked_words_in_int8(folder_of, tmp_path):
    """Their head multiplies by the table of word embeddings, which is int8."""
    pretrainer = BertPretrainer.load(folder_of(BertForPreTraining, save_pretraining)).set_params(max_length=16)
    report = pretrainer.export(tmp_path / "out", X=TEXTS, quantize="int8")
    assert 1e-4 < report.max_difference < 0.5  # of logits of up to 7
    assert report.runtime == "onnxruntime"  # whatever is installed besides: `load` takes no export of it


def test_int8_needs_rows_with_words(folder_of, tmp_path):
    with pytest.raises(ValueError, match="is calibrated on rows, and the rows of X have no words"):
        _tagger(folder_of).export(tmp_path / "out", X=[[]], quantize="int8")
    assert not os.listdir(tmp_path)


def test_products_of_int8_hold_on_every_processor(classifier, tmp_path):
    """Two neighbours of a row of weights are multiplied and added in 16 bits where there is no VNNI."""
    matrix = np.random.default_rng(0).normal(size=(40, 64)).astype("float32")
    matrix[:, 10:12] = 4.0  # as large as can be, side by side
    matrix[0] = 0
    integers, scales = quantized(matrix)
    assert integers.dtype == np.int8 and (np.abs(integers[:, :-1].astype(int)) + np.abs(integers[:, 1:]) <= 128).all()
    assert (np.abs(integers * scales[:, None] - matrix) <= scales[:, None] * 0.501).all()
    # The optimised graph multiplies integers, and the other one multiplies what they stand for.
    classifier.export(tmp_path / "out", X=TEXTS, quantize="int8")
    inputs, found = plain_inputs(tmp_path / "out", TEXTS), []
    for level in ("ORT_DISABLE_ALL", "ORT_ENABLE_ALL"):
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, level)
        session = onnxruntime.InferenceSession(str(tmp_path / "out" / "model.onnx"), options)
        found.append(session.run(["logits"], inputs)[0])
    np.testing.assert_allclose(*found, atol=1e-3)


# === Nothing is left behind ===


def _spoil(monkeypatch, offset, name="classifier.bias"):
    """Let what is exported have another bias than the estimator."""
    read = onnx_files.read_arrays
    spoiled = {name: np.float32(offset)}
    monkeypatch.setattr(
        onnx_files, "read_arrays", lambda folder: {k: v + spoiled.get(k, 0) for k, v in read(folder).items()}
    )


def test_an_export_that_is_off_leaves_nothing(classifier, tmp_path, monkeypatch):
    classifier.export(tmp_path / "out")
    before = (tmp_path / "out" / "model.onnx").read_bytes()
    _spoil(monkeypatch, [0, 0, 1e-2])
    with pytest.raises(WeightsMismatchError, match=r"off by up to 0.0\d+ \(allowed 0.0001\), so nothing was written"):
        classifier.export(tmp_path / "new", X=TEXTS)
    with pytest.raises(WeightsMismatchError):
        classifier.export(tmp_path / "out")
    assert os.listdir(tmp_path) == ["out"] and (tmp_path / "out" / "model.onnx").read_bytes() == before


def test_answers_are_compared_by_their_scores(folder_of, tmp_path, monkeypatch):
    answerer = _answerer(folder_of)
    _spoil(monkeypatch, [0.1, 0], "qa_outputs.bias")  # all spans get as much more
    for X in (None, PAIRS.values.tolist()):
        with pytest.raises(WeightsMismatchError, match=r"off by up to 0.\d+ \(allowed 0.0001\)"):
            answerer.export(tmp_path / "out", X=X)


def test_small_numbers_are_compared_in_their_own_unit(quick_folder, reviews, tmp_path, monkeypatch):
    shares = np.where(reviews.label == "good", 3e-6, 1e-6)
    regressor = BertRegressor(
        weights=quick_folder, max_length=16, dtype="float32", random_state=0, classifier_pooling="cls"
    )
    regressor.fit(reviews.text, shares)
    assert regressor.export(tmp_path / "out", X=reviews.text).max_difference < 1e-9
    (found,) = run(tmp_path / "out", plain_inputs(tmp_path / "out", reviews.text.tolist(), 16))
    np.testing.assert_allclose(found[:, 0], regressor.predict(reviews.text), rtol=1e-4, atol=1e-10)
    _spoil(monkeypatch, 1e-8)
    with pytest.raises(WeightsMismatchError, match=r"off by up to 0.01 \(allowed 0.0001\)"):
        regressor.export(tmp_path / "out", X=reviews.text)


def test_a_saved_estimator_is_not_replaced_by_an_export_nor_the_other_way(classifier, tmp_path):
    classifier.save(tmp_path / "saved")
    with pytest.raises(FileExistsError, match="holds no exported model"):
        classifier.export(tmp_path / "saved")
    BertClassifier.load(tmp_path / "saved", verify=True)
    classifier.export(tmp_path / "out")
    with pytest.raises(FileExistsError, match="holds no saved estimator"):
        classifier.save(tmp_path / "out")
    with pytest.raises(WeightsNotFoundError, match="holds an exported model, which predicts, and is no start"):
        BertClassifier(weights=tmp_path / "out").fit(TEXTS, [0, 1, 2] * 7)
    assert set(os.listdir(tmp_path / "out")) == FILES


def test_a_later_export_keeps_other_files_and_none_of_the_older_model(classifier, tmp_path):
    classifier.export(tmp_path / "out")
    for name in ("README.md", "model.onnx.data", "saved_model.pb"):
        (tmp_path / "out" / name).write_text("old")
    classifier.export(tmp_path / "out")
    assert set(os.listdir(tmp_path / "out")) == FILES | {"README.md"}
    (tmp_path / "out" / "assets").mkdir()  # of a SavedModel's folders, where there is no SavedModel
    (tmp_path / "out" / "assets" / "logo.svg").write_text("kept")
    classifier.export(tmp_path / "out")
    assert (tmp_path / "out" / "assets" / "logo.svg").read_text() == "kept"


def test_the_estimator_stays_as_it_was(classifier, tmp_path):
    before, names = classifier.predict_proba(TEXTS), set(vars(classifier))
    classifier.export(tmp_path / "out", X=TEXTS)
    assert set(vars(classifier)) == names and np.array_equal(classifier.predict_proba(TEXTS), before)


# === What is refused ===


def test_wrong_arguments(classifier, tmp_path):
    with pytest.raises(NotFittedError, match="not fitted"):
        BertClassifier().export(tmp_path / "out")
    with pytest.raises(ValueError, match="format must be one of 'onnx', 'savedmodel', got 'tflite'"):
        classifier.export(tmp_path / "out", format="tflite")
    with pytest.raises(ValueError, match='quantize must be None, or "int8"'):
        classifier.export(tmp_path / "out", quantize="int4")
    with pytest.raises(ValueError, match='quantize must be None, or "int8" or "int8_dynamic" with format="onnx"'):
        classifier.export(tmp_path / "out", format="savedmodel", quantize="int8")
    with pytest.raises(ValueError, match='calibrated on rows: give some hundred as X.*quantize="int8_dynamic"'):
        classifier.export(tmp_path / "out", quantize="int8")
    with pytest.raises(ValueError, match="y is the truth of the rows of X"):
        classifier.export(tmp_path / "out", y=["no"])
    with pytest.raises(ValueError, match="export writes a folder"):
        classifier.export(tmp_path / "model.onnx")
    with pytest.raises(TypeError, match="row 1"):
        classifier.export(tmp_path / "out", X=["a text", 3])
    assert not os.listdir(tmp_path)


@pytest.mark.parametrize("package", ["onnx", "onnxruntime"])
def test_a_package_that_is_not_installed_is_named(classifier, tmp_path, monkeypatch, package):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ImportError, match=rf"needs the package {package} .*pip install onnx onnxruntime"):
        classifier.export(tmp_path / "out")
    assert not os.listdir(tmp_path)


# === TensorFlow's SavedModel ===


def test_a_saved_model_needs_tensorflow(classifier, tmp_path):
    if keras.backend.backend() == "tensorflow":
        pytest.skip("of the other backends; run with KERAS_BACKEND=torch or jax")
    with pytest.raises(ValueError, match="needs the TensorFlow backend, and Keras runs on"):
        classifier.export(tmp_path / "out", format="savedmodel")
    assert not os.listdir(tmp_path)


_WITH_TENSORFLOW = """
import sys
from pathlib import Path
import numpy as np
import tensorflow as tf
from kbert import BertClassifier, BertQA, BertTagger, BertVectorizer
from kbert.weights.runtimes import RUNNERS

folders, tmp, texts = sys.argv[1:4], Path(sys.argv[4]), sys.argv[5:]
pairs = list(zip(texts, texts[::-1]))
for kind, folder, X in zip((BertClassifier, BertTagger, BertQA), folders, (texts, texts, pairs)):
    estimator = kind.load(folder).set_params(max_length=24)
    report = estimator.export(tmp / kind.__name__, format="savedmodel", X=X)
    assert report.max_difference < 1e-5, report
    try:
        kind.load(tmp / kind.__name__)
    except ValueError as error:
        assert "which is a program for TensorFlow" in str(error)
    else:
        raise AssertionError("a program was run without being asked for")
    loaded = kind.load(tmp / kind.__name__, verify=True, runtime="tensorflow")
    assert loaded.model_.runtime == "tensorflow"
    assert list(map(list, loaded.predict(X))) == list(map(list, estimator.predict(X)))
vectorizer = BertVectorizer(weights=folders[0], max_length=24, dtype="float32").fit(texts)
assert vectorizer.export(tmp / "vectors", format="savedmodel", X=texts).max_difference < 1e-5

signature = (loaded := tf.saved_model.load(str(tmp / "BertClassifier"))).signatures["serving_default"]
assert sorted(signature.structured_input_signature[1]) == ["attention_mask", "input_ids", "token_type_ids"]
sequences = BertClassifier.load(folders[0]).tokenizer_(texts, max_length=24)
names = {"input_ids": "token_ids", "attention_mask": "text_ids", "token_type_ids": "segment_ids"}
inputs = {name: sequences[ours].astype("int64") for name, ours in names.items()}
np.save(tmp / "found.npy", signature(**{name: tf.constant(array) for name, array in inputs.items()})["probabilities"])
inputs["attention_mask"][0] = 0
assert np.isfinite(RUNNERS["tensorflow"](tmp / "BertClassifier", "float32")(inputs)["logits"]).all()
"""


@pytest.mark.thorough
@pytest.mark.slow
def test_saved_models(classifier, folder_of, tmp_path):
    """In a process of its own, under TensorFlow; compared with the backend at hand too."""
    pytest.importorskip("tensorflow", reason="to run this, run: pip install tensorflow")
    folders = [classifier.weights, _tagger(folder_of).weights, _answerer(folder_of).weights]
    process = subprocess.run(
        [sys.executable, "-c", _WITH_TENSORFLOW, *map(str, [*folders, tmp_path]), *TEXTS],
        env={**os.environ, "KERAS_BACKEND": "tensorflow", "TF_CPP_MIN_LOG_LEVEL": "3"},
        capture_output=True,
        text=True,
    )
    assert process.returncode == 0, process.stderr[-3000:]
    np.testing.assert_allclose(np.load(tmp_path / "found.npy"), classifier.predict_proba(TEXTS), atol=1e-5)
    names = set(os.listdir(tmp_path / "BertClassifier"))
    assert {"saved_model.pb", "variables", "config.json", "tokenizer.json", "export.json"} <= names
    assert "model.safetensors" not in names
