"""Folders that transformers saved, opened by the estimator of their task: they predict at once, or say why not."""

import json
import shutil
import warnings

import numpy as np
import pandas as pd
import pytest

from kbert import (
    BertClassifier,
    BertMultipleChoice,
    BertPretrainer,
    BertQA,
    BertRegressor,
    BertTagger,
    BertVectorizer,
    WordPieceTokenizer,
)
from kbert.errors import LabelNamesWarning, WeightsMismatchError

torch = pytest.importorskip("torch", reason="needs PyTorch; run: pip install 'kbert-learn[parity]'")
transformers = pytest.importorskip("transformers", reason="needs transformers; run: pip install 'kbert-learn[parity]'")

pytestmark = [pytest.mark.parity, pytest.mark.slow]

TEXTS = ["the great chair", "this was a sad and broken table", "lovely"]
QUESTION, CONTEXT = "was the chair great", "the table was broken and the chair was great"


@pytest.fixture(scope="module")
def save(toy_folder, tmp_path_factory):
    """A function that has transformers save a model and its tokenizer, and gives both and the folder."""

    def save(head, **config):
        torch.manual_seed(0)
        values = json.loads((toy_folder / "config.json").read_text(encoding="utf-8"))
        values = {key: value for key, value in values.items() if key not in ("architectures", "dtype", "model_type")}
        config = transformers.BertConfig(**{**values, "initializer_range": 0.3, **config})
        model = getattr(transformers, f"BertFor{head}")(config).eval()
        folder = tmp_path_factory.mktemp("theirs")
        model.save_pretrained(folder)
        tokenizer = transformers.AutoTokenizer.from_pretrained(toy_folder)
        tokenizer.save_pretrained(folder)
        return folder, model, tokenizer

    return save


@pytest.fixture(scope="module")
def classifier_folder(save):
    return save("SequenceClassification", num_labels=3, id2label={0: "z", 1: "x", 2: "y"})[0]


def changed(folder, target, **values):
    """A copy with other values in config.json; None takes a key out."""
    shutil.copytree(folder, target)
    values = {**json.loads((folder / "config.json").read_text()), **values}
    kept = {key: value for key, value in values.items() if value is not None}
    (target / "config.json").write_text(json.dumps(kept))
    return target


def logits_of(model, tokenizer, *texts):
    with torch.no_grad():
        return model(**tokenizer(*texts, padding=True, return_tensors="pt"))


def softmax(logits):
    return torch.softmax(logits.double(), dim=-1).numpy()


# === Every task ===


def test_a_classifier_of_texts_and_of_pairs(save):
    folder, model, tokenizer = save("SequenceClassification", num_labels=3, id2label={0: "z", 1: "x", 2: "y"})
    ours = BertClassifier.load(folder)
    expected = softmax(logits_of(model, tokenizer, TEXTS).logits)
    assert np.ptp(expected, axis=0).max() > 0.3
    np.testing.assert_allclose(ours.predict_proba(TEXTS), expected, atol=2e-5)
    assert ours.predict(TEXTS).tolist() == [["z", "x", "y"][i] for i in expected.argmax(axis=1)]
    pairs = pd.DataFrame({"a": TEXTS, "b": TEXTS[::-1]})
    expected = softmax(logits_of(model, tokenizer, TEXTS, TEXTS[::-1]).logits)
    np.testing.assert_allclose(BertClassifier.load(folder).predict_proba(pairs), expected, atol=2e-5)


def test_a_classifier_of_several_labels_a_row(save):
    kind = "multi_label_classification"
    folder, model, tokenizer = save("SequenceClassification", num_labels=3, problem_type=kind)
    expected = torch.sigmoid(logits_of(model, tokenizer, TEXTS).logits.double()).numpy()
    ours = BertClassifier.load(folder)
    np.testing.assert_allclose(ours.predict_proba(TEXTS), expected, atol=2e-5)
    np.testing.assert_array_equal(ours.predict(TEXTS), expected >= 0.5)


@pytest.mark.parametrize("n_outputs, problem_type", [(1, None), (1, "regression"), (2, "regression")])
def test_a_regression(save, n_outputs, problem_type):
    folder, model, tokenizer = save("SequenceClassification", num_labels=n_outputs, problem_type=problem_type)
    expected = logits_of(model, tokenizer, TEXTS).logits.numpy()
    with pytest.raises(ValueError, match="kbert did not save it. Leave verify out"):
        BertRegressor.load(folder, verify=True)
    ours = BertRegressor.load(folder).predict(TEXTS)
    np.testing.assert_allclose(ours, expected[:, 0] if n_outputs == 1 else expected, atol=2e-5)


def test_a_tagger(save):
    names = {0: "O", 1: "B-X", 2: "I-X"}
    folder, model, tokenizer = save("TokenClassification", num_labels=3, id2label=names)
    rows = [text.split() for text in TEXTS]
    encoded = tokenizer(rows, is_split_into_words=True, padding=True, return_tensors="pt")
    with torch.no_grad():
        logits = model(**encoded).logits
    ours = BertTagger.load(folder)
    for i, (probabilities, tags) in enumerate(zip(ours.predict_proba(rows), ours.predict(rows), strict=True)):
        first = [encoded.word_ids(i).index(word) for word in range(len(rows[i]))]
        np.testing.assert_allclose(probabilities, softmax(logits[i, first]), atol=2e-5)
        assert tags == [names[k] for k in logits[i, first].argmax(dim=-1).tolist()]


def test_question_answering(save):
    folder, model, tokenizer = save("QuestionAnswering")
    encoded = tokenizer(QUESTION, CONTEXT, return_tensors="pt")
    with torch.no_grad():
        outputs = model(**encoded)
    inside = [place for place, part in enumerate(encoded.sequence_ids()) if part == 1]
    scores = {
        (first, last): float(outputs.start_logits[0, first] + outputs.end_logits[0, last])
        for first in inside
        for last in inside
        if first <= last
    }
    first, last = max(scores, key=scores.get)
    begin, end = encoded.token_to_chars(first).start, encoded.token_to_chars(last).end
    X = pd.DataFrame({"question": [QUESTION], "context": [CONTEXT]})
    best = BertQA.load(folder).answers(X, n_best=1).iloc[0]
    assert (best.answer, best.start) == (CONTEXT[begin:end], begin)
    assert abs(best.score - scores[first, last]) < 2e-5


def test_multiple_choice(save):
    folder, model, tokenizer = save("MultipleChoice")
    encoded = tokenizer([CONTEXT] * 3, TEXTS, padding=True, return_tensors="pt")
    with torch.no_grad():
        logits = model(**{name: array[None] for name, array in encoded.items()}).logits
    X = pd.DataFrame({"context": [CONTEXT], "options": [TEXTS]})
    np.testing.assert_allclose(BertMultipleChoice.load(folder).predict_proba(X), softmax(logits), atol=2e-5)


@pytest.mark.parametrize("head", ["MaskedLM", "PreTraining"])
def test_words_in_a_gap(save, head):
    folder, model, tokenizer = save(head)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # on the next-sentence head, which one of them lacks
        ours = BertPretrainer.load(folder).fill_mask("the [MASK] was great", top_k=5)
    encoded = tokenizer("the [MASK] was great", return_tensors="pt")
    with torch.no_grad():
        outputs = model(**encoded)
    place = int((encoded["input_ids"][0] == tokenizer.mask_token_id).nonzero())
    probabilities = softmax((outputs.logits if head == "MaskedLM" else outputs.prediction_logits)[0, place])
    best = probabilities.argsort()[::-1][:5]
    assert ours.token.tolist() == tokenizer.convert_ids_to_tokens(best.tolist())


# === Names of labels ===


@pytest.mark.parametrize(
    "id2label",
    [
        {"0": "x", "1": "y"},
        {str(i): "wxyz"[i] for i in range(4)},
        {"a": "x", "b": "y", "c": "z"},
        {"0": "x", "1": "x", "2": "z"},
        {"0": "x", "1": 1, "2": None},
        ["x", "y", "z"],
        "xyz",
    ],
    ids=str,
)
def test_names_that_do_not_fit_the_head_give_numbers_and_a_warning(classifier_folder, tmp_path, id2label):
    folder = changed(classifier_folder, tmp_path / "a", id2label=id2label)
    with pytest.warns(LabelNamesWarning, match="does not name the head's 3 outputs") as caught:
        ours = BertClassifier.load(folder)
    assert len(caught) == 1 and caught[0].filename == __file__
    assert ours.classes_.tolist() == [0, 1, 2]
    np.testing.assert_array_equal(
        ours.predict_proba(TEXTS), BertClassifier.load(classifier_folder).predict_proba(TEXTS)
    )


@pytest.mark.parametrize("values", [{"id2label": None, "label2id": None}, {"id2label": None, "num_labels": 7}], ids=str)
def test_without_names_labels_are_numbers(classifier_folder, tmp_path, values):
    with warnings.catch_warnings():
        warnings.simplefilter("error", LabelNamesWarning)
        ours = BertClassifier.load(changed(classifier_folder, tmp_path / "a", **values))
    assert ours.classes_.tolist() == [0, 1, 2]


def test_a_tagger_whose_names_do_not_fit_numbers_its_tags(save, tmp_path):
    folder = changed(save("TokenClassification", num_labels=3)[0], tmp_path / "a", id2label={"0": "O"})
    with pytest.warns(LabelNamesWarning):
        assert set(BertTagger.load(folder).predict([["the", "chair"]])[0]) <= {"0", "1", "2"}


def test_a_warm_start_keeps_labels_that_are_not_sorted_apart(classifier_folder):
    loaded = BertClassifier.load(classifier_folder).set_params(
        warm_start=True, epochs=20, batch_size=3, learning_rate=1e-2, max_length=16, random_state=0, dropout=0.0
    )
    labels = ["y", "z", "x"]
    loaded.fit(TEXTS, labels)
    assert loaded.classes_.tolist() == ["z", "x", "y"] and loaded.predict(TEXTS).tolist() == labels


# === The wrong estimator ===

HEADS = ("SequenceClassification", "TokenClassification", "QuestionAnswering", "MultipleChoice", "MaskedLM")
ESTIMATORS = {
    BertClassifier: "SequenceClassification",
    BertRegressor: "SequenceClassification",
    BertTagger: "TokenClassification",
    BertQA: "QuestionAnswering",
    BertMultipleChoice: "MultipleChoice",
}


@pytest.mark.parametrize("head", HEADS)
def test_a_model_of_another_task_is_refused_by_name(save, head):
    folder = save(head)[0]
    for estimator, own in ESTIMATORS.items():
        if own != head:
            with pytest.raises(WeightsMismatchError, match=f"holds a BertFor{head}, and {estimator.__name__} opens"):
                estimator.load(folder)
    assert BertVectorizer.load(folder).transform(TEXTS).shape == (3, 32)


def test_arrays_of_another_task_are_refused_where_the_config_does_not_say(save, tmp_path):
    folder = changed(save("SequenceClassification", num_labels=3)[0], tmp_path / "a", architectures=None)
    for estimator, message in ((BertQA, "lacks qa_outputs.bias"), (BertMultipleChoice, "has 3 outputs")):
        with pytest.raises(WeightsMismatchError, match=message):
            estimator.load(folder)


@pytest.mark.parametrize("n_labels, problem_type", [(1, None), (1, "regression"), (3, "regression")])
def test_numbers_are_no_labels(save, n_labels, problem_type):
    folder = save("SequenceClassification", num_labels=n_labels, problem_type=problem_type)[0]
    with pytest.raises(WeightsMismatchError, match="gives numbers, not one of several labels.*BertRegressor.load"):
        BertClassifier.load(folder)


def test_labels_are_no_numbers(classifier_folder):
    with pytest.raises(WeightsMismatchError, match="is no regression; load it with kbert.BertClassifier.load"):
        BertRegressor.load(classifier_folder)


def test_another_family_is_named(classifier_folder, tmp_path):
    folder = changed(
        classifier_folder, tmp_path / "a", model_type="roberta", architectures=["RobertaForSequenceClassification"]
    )
    for estimator in ESTIMATORS:
        with pytest.raises(WeightsMismatchError, match="a model of type 'roberta'; kbert reads BERT models only"):
            estimator.load(folder)


# === Tokenizers with other vocabularies ===


def test_a_vocabulary_of_k_mers_whose_special_tokens_lie_elsewhere(save, tmp_path):
    from tokenizers import Tokenizer, models, pre_tokenizers, processors

    folder, model, _ = save("SequenceClassification", num_labels=3)
    k_mers = [a + b + c for a in "ACGT" for b in "ACGT" for c in "ACGT"]
    pieces = [*k_mers[:9], "<mask>", "<eos>", *k_mers[9:20], "<unk>", *k_mers[20:], "<cls>", "<pad>"]
    vocab = {piece: i for i, piece in enumerate(pieces)}
    assert len(vocab) <= model.config.vocab_size
    backend = Tokenizer(models.WordPiece(vocab, unk_token="<unk>", max_input_chars_per_word=100))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    backend.post_processor = processors.TemplateProcessing(
        single="<cls> $A <eos>", special_tokens=[(name, vocab[name]) for name in ("<cls>", "<eos>")]
    )
    names = {"pad": "<pad>", "unk": "<unk>", "cls": "<cls>", "sep": "<eos>", "mask": "<mask>"}
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=backend, **{f"{role}_token": name for role, name in names.items()}
    )
    tokenizer.save_pretrained(folder)
    texts = ["ACG CGT GTT", "AAA NNN", "ttt CCC GGG ACG"]
    expected = softmax(logits_of(model, tokenizer, texts).logits)
    np.testing.assert_allclose(BertClassifier.load(folder).predict_proba(texts), expected, atol=2e-5)
    assert WordPieceTokenizer.from_pretrained(folder).mask_id == 9
