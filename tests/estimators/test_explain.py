"""explain: scores of words, which add up to what they explain, for every task."""

import itertools
import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from keras import ops

from kbert import BertClassifier, BertMultipleChoice, BertQA, BertRegressor, BertTagger, WordPieceTokenizer
from kbert.config import BertConfig
from kbert.errors import IncompleteWarning, TruncationWarning
from kbert.model import BertForQuestionAnswering, BertForSequenceClassification, BertForTokenClassification
from kbert.plots import AnswerDisplay, AttributionDisplay, EntityDisplay
from kbert.text import Ragged, build_choices, build_question_windows, build_sequences
from kbert.text.words import build_word_windows
from kbert.training.predict import predict_logits, predict_words
from kbert.weights import save_multiple_choice, save_question_answerer, save_sequence_classifier, save_token_classifier

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::kbert.errors.MissingTextWarning")]

TEXTS = pd.Series(
    ["A lovely chair, it was\nnot sad. the RED table", "", "Broken: the great ca\u0301fe 😀 was hot"], index=list("xyz")
)
# What `load` takes for a classifier whose rows may have several labels.
SEVERAL = "several labels"
# For tests of other things than the scores.
QUICK = {"method": "gradient_x_input"}
WORDS = [["the", "great", "table"], ["sad", "and", "brokenchair", "it"]]


@pytest.fixture(scope="module")
def load(toy_folder, tmp_path_factory):
    """A function that gives an estimator with random weights, large enough that outputs are far from linear."""
    config = replace(BertConfig.from_folder(toy_folder), initializer_range=0.3)
    labels, tags = {0: "a", 1: "b", 2: "c"}, {0: "O", 1: "B-X", 2: "I-X"}
    one_label, several = "single_label_classification", "multi_label_classification"
    saves = {
        BertClassifier: (BertForSequenceClassification, [3], save_sequence_classifier, (labels, one_label)),
        SEVERAL: (BertForSequenceClassification, [3], save_sequence_classifier, (labels, several)),
        BertRegressor: (BertForSequenceClassification, [1], save_sequence_classifier, ({0: "y"}, "regression")),
        BertTagger: (BertForTokenClassification, [3], save_token_classifier, (tags,)),
        BertQA: (BertForQuestionAnswering, [], save_question_answerer, ()),
        BertMultipleChoice: (BertForSequenceClassification, [1], save_multiple_choice, ()),
    }

    def load(estimator, **parameters):
        model, n_outputs, save, names = saves[estimator]
        estimator = BertClassifier if estimator is SEVERAL else estimator
        folder = tmp_path_factory.mktemp(estimator.__name__)
        save(model(config, *n_outputs, dtype="float32", seed=3), folder, *names)
        WordPieceTokenizer.from_pretrained(toy_folder).save(folder)
        return estimator.load(folder).set_params(**{"max_length": 16, **parameters})

    return load


@pytest.fixture(autouse=True)
def one_shape(monkeypatch):
    """Few tokens in a batch, so that all batches of a model have one shape."""
    monkeypatch.setattr("kbert.training.attributions._BATCH_TOKENS", 32)


@pytest.fixture(scope="module")
def classifier(load):
    return load(BertClassifier, long_text="window", stride=5)


def masked(sequences, tokenizer):
    """The same with [PAD] for every word."""
    ids = sequences.tokens.values
    keeps = np.isin(ids, [tokenizer.cls_id, tokenizer.sep_id])
    return replace(sequences, tokens=Ragged(np.where(keeps, ids, tokenizer.pad_id), sequences.tokens.splits))


def logits_without_words(estimator, X):
    task, columns = estimator._read(X)
    sequences = masked(next(task.chunks(columns, estimator.tokenizer_)), estimator.tokenizer_)
    return predict_logits(estimator.model_, [sequences], columns.n_rows)


BOTH = pytest.mark.parametrize(
    "how", [dict(n_steps=64), dict(method="shapley", n_steps=2)], ids=["gradients", "shapley"]
)


def assert_sums(found, difference, of=("row", "label")):
    sums = found.groupby(list(of), sort=False).score.sum().to_numpy()
    np.testing.assert_allclose(sums, np.asarray(difference).ravel(), rtol=0, atol=0.02)


# --- Classification and regression


@pytest.mark.backend
@BOTH
def test_scores_of_every_label_add_up_in_windows_too(classifier, how):
    found = classifier.explain(TEXTS, **how)
    assert list(found.columns) == ["row", "word", "start", "end", "label", "score"]
    assert found.index.equals(TEXTS.index.take(found.row)) and set(found.row) == {0, 2}  # no word, no line
    for line in found.itertuples():
        assert TEXTS.iloc[line.row][line.start : line.end] == line.word
    first = found[(found.row == 0) & (found.label == "a")]
    assert first.word.tolist() == "A lovely chair , it was not sad . the RED table".split()
    assert "ca\u0301fe" in set(found.word) and "😀" in set(found.word)
    difference = classifier.decision_function(TEXTS) - logits_without_words(classifier, TEXTS)
    assert np.abs(difference[[0, 2]]).max() > 0.5
    assert_sums(found, difference[[0, 2]])


@BOTH
def test_scores_of_several_labels_a_row_add_up(load, how):
    classifier = load(SEVERAL, long_text="window", stride=5)
    found = classifier.explain(TEXTS, **how)
    assert found[found.row == 0].label.unique().tolist() == classifier.classes_.tolist() == ["a", "b", "c"]
    difference = (classifier.decision_function(TEXTS) - logits_without_words(classifier, TEXTS))[[0, 2]]
    assert np.abs(difference).max(axis=0).min() > 0.2  # of each label
    assert_sums(found, difference)
    one = classifier.explain(TEXTS, "c", **how)
    np.testing.assert_allclose(one.score, found.score[found.label == "c"], rtol=0, atol=1e-5)


@pytest.mark.thorough
@BOTH
def test_a_model_in_bfloat16_is_explained_in_float32(load, how):
    classifier, low = load(BertClassifier), load(BertClassifier)
    low.model_ = low._load_model(low.weights, "mixed_bfloat16")
    off = np.abs(low.decision_function(TEXTS) - classifier.decision_function(TEXTS))
    assert off.max() > 1e-3
    expected = classifier.explain(TEXTS, **how)
    pd.testing.assert_frame_equal(low.explain(TEXTS, **how), expected, rtol=0, atol=1e-5)


@pytest.mark.backend
def test_words_taken_away_in_all_orders_give_shapley_values(classifier):
    """Of three words: the mean over all six orders, from the outputs for all eight subsets of the words."""
    text, tokenizer = "the red chair", classifier.tokenizer_
    ids = np.array(tokenizer.encode(text).ids)
    subsets = list(itertools.product([False, True], repeat=3))
    copies = np.array([np.where([False, *gone, False], tokenizer.pad_id, ids) for gone in subsets])
    sequences = build_sequences(tokenizer, [text] * 8, max_length=16)
    sequences = replace(sequences, tokens=Ragged(copies.ravel(), sequences.splits))
    logits = predict_logits(classifier.model_, [sequences], 8).astype("float64")
    of = dict(zip(subsets, logits, strict=True))
    expected = np.zeros((3, 3))
    for order in itertools.permutations(range(3)):
        gone = [False] * 3
        for word in order:
            before = of[tuple(gone)]
            gone[word] = True
            expected[:, word] += (before - of[tuple(gone)]) / 6
    found = classifier.explain([text], method="shapley", n_steps=400)  # of 400 orders, each is about a sixth
    scores = found.score.to_numpy().reshape(3, 3)
    np.testing.assert_allclose(scores.sum(axis=1), expected.sum(axis=1), rtol=0, atol=1e-4)
    np.testing.assert_allclose(scores, expected, rtol=0, atol=0.1 * np.abs(expected).max())


def test_shapley_values_of_chosen_labels_and_in_company_are_the_same(classifier):
    every = classifier.explain(TEXTS, method="shapley", n_steps=3)
    alone = classifier.explain(TEXTS.tolist()[2:], "b", method="shapley", n_steps=3)
    expected = every[(every.row == 2) & (every.label == "b")]
    assert alone.word.tolist() == expected.word.tolist()
    np.testing.assert_allclose(alone.score, expected.score, rtol=0, atol=1e-5)


def test_chosen_labels_sentences_and_company_change_no_score(classifier, monkeypatch):
    every = classifier.explain(TEXTS, n_steps=4)
    alone = classifier.explain(TEXTS.tolist()[:1], "b", n_steps=4)
    expected = every[(every.row == 0) & (every.label == "b")]
    np.testing.assert_allclose(alone.score, expected.score, rtol=0, atol=1e-5)
    own = classifier.explain(TEXTS, pd.Series(["b", "a", "c"]), n_steps=4)
    assert own.groupby("row").label.unique().map(list).to_dict() == {0: ["b"], 2: ["c"]}
    monkeypatch.setattr("kbert.tasks.explaining._CHUNK_ROWS", 1)
    pd.testing.assert_frame_equal(classifier.explain(TEXTS, n_steps=4), every, rtol=0, atol=1e-5)
    sentences = classifier.explain(TEXTS, "b", unit="sentence", n_steps=4)
    # The end of a line ends a sentence.
    assert sentences.sentence.tolist()[:3] == ["A lovely chair, it was", "not sad.", "the RED table"]
    sums = [expected.score.iloc[a:b].sum() for a, b in ((0, 6), (6, 9), (9, 12))]
    np.testing.assert_allclose(sentences.score[:3], sums, rtol=0, atol=1e-5)


def test_pairs_name_their_columns_and_what_was_cut_has_no_score(load):
    regressor = load(BertRegressor, long_text="truncate")
    pairs = pd.DataFrame({"left": ["the red chair was hot and cold"], "right": ["a lovely table with a chair it was"]})
    with pytest.warns(TruncationWarning):
        found = regressor.explain(pairs)
    assert found.column.unique().tolist() == ["left", "right"] and set(found.label) == {0}
    assert " ".join(found.word[found.column == "right"]) == pairs.right[0]
    assert found.score.tolist()[-2:] == [0, 0] and (found.score.iloc[:13] != 0).all()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert_sums(found, regressor.predict(pairs) - logits_without_words(regressor, pairs)[:, 0])


def test_a_display_of_the_predicted_labels(classifier):
    display = AttributionDisplay.from_estimator(classifier, iter(TEXTS), n_steps=4)
    assert display.explanation.label.tolist() == np.repeat(classifier.predict(TEXTS)[[0, 2]], [12, 8]).tolist()
    np.testing.assert_allclose(display.probabilities, classifier.predict_proba(TEXTS).max(axis=1), rtol=1e-5)
    assert display._repr_html_().count("<mark") == 20


def test_a_display_of_chosen_labels_and_of_several_shows_no_probabilities(classifier, load):
    """The probabilities are those of the predicted label, which is not the one that is explained."""
    chosen = AttributionDisplay.from_estimator(classifier, TEXTS, labels="b", **QUICK)
    assert set(chosen.explanation.label) == {"b"} and chosen.probabilities is None
    several = AttributionDisplay.from_estimator(load(SEVERAL), TEXTS, **QUICK)
    assert set(several.explanation.label) == {"a", "b", "c"} and several.probabilities is None


def test_a_display_of_rows_of_two_and_of_three_options(load):
    chooser = load(BertMultipleChoice)
    X = [("the chair was", np.array(["red", "hot and cold"])), ("the table was", np.array(["sad", "hot", "red"]))] * 2
    display = AttributionDisplay.from_estimator(chooser, X, **QUICK)
    assert display.explanation.groupby("row").label.first().tolist() == chooser.predict(X).tolist()
    np.testing.assert_allclose(display.probabilities, np.nanmax(chooser.predict_proba(X), axis=1), rtol=1e-5)
    assert [list(row) for row in display.texts] == [["context", "options"]] * 4
    other = AttributionDisplay.from_estimator(chooser, X, option=1, **QUICK)
    assert set(other.explanation.label) == {1} and other.probabilities is None
    assert [shown[0][2].count("hot") for shown in other.shaded()] == [1] * 4


def test_a_display_of_pairs_of_which_one_column_has_no_words(load):
    regressor = load(BertRegressor)
    pairs = pd.DataFrame({"question": ["was it red", "the chair"], "other": ["", ""]})
    display = AttributionDisplay.from_estimator(regressor, pairs, **QUICK)
    assert display.texts == pairs.to_dict("records") and display.html().count("<mark") == 5


@pytest.mark.backend
@pytest.mark.compiles
@pytest.mark.parity
def test_scores_are_those_of_a_plain_loop_over_transformers(load, tmp_path):
    torch = pytest.importorskip("torch", reason="to compare, run: pip install 'kbert-learn[parity]'")
    transformers = pytest.importorskip("transformers", reason="to compare, run: pip install 'kbert-learn[parity]'")
    classifier = load(BertClassifier, long_text="truncate")
    pair = ("the red chair", "was it hot")
    found = classifier.explain([pair], "c", n_steps=9)
    classifier.save(tmp_path / "saved")
    model = transformers.BertForSequenceClassification.from_pretrained(tmp_path / "saved").eval()
    tokenizer = classifier.tokenizer_
    encoding = tokenizer.encode(*pair)
    ids, segments = torch.tensor([encoding.ids]), torch.tensor([encoding.segment_ids])
    special = (ids == tokenizer.cls_id) | (ids == tokenizer.sep_id)
    own, baseline = (
        model.bert.embeddings.word_embeddings(x).detach() for x in (ids, torch.where(special, ids, tokenizer.pad_id))
    )
    scores = np.zeros(ids.shape[1])
    for i in range(9):
        words = (baseline + i / 8 * (own - baseline)).requires_grad_()
        logit = model(inputs_embeds=words, token_type_ids=segments, attention_mask=torch.ones_like(ids)).logits[0, 2]
        (gradient,) = torch.autograd.grad(logit, [words])
        scores += (gradient * (own - baseline)).sum(-1)[0].numpy() * (0.5 if i in (0, 8) else 1) / 8
    word_ids = np.array([-1 if word is None else word for word in encoding.word_ids])
    expected = [
        scores[(word_ids == word) & (np.array(encoding.segment_ids) == k)].sum() for k in (0, 1) for word in range(3)
    ]
    np.testing.assert_allclose(found.score, expected, rtol=0, atol=1e-4)


# --- The other tasks


@pytest.mark.backend
@BOTH
def test_a_tag_of_one_word(load, how):
    tagger = load(BertTagger, max_length=6, stride=2)  # windows of four pieces
    found = tagger.explain(WORDS, [0, 3], **how)
    assert found.word.tolist() == [word for row in WORDS for word in row]
    assert found.label.tolist() == [
        tags[i] for tags, i in zip(tagger.predict(WORDS), (0, 3), strict=True) for _ in tags
    ]
    assert found.iloc[3:].start.tolist() == [0, 4, 8, 20]
    windows = build_word_windows(tagger.tokenizer_, WORDS, 6, 2)[0]
    without = replace(windows, sequences=masked(windows.sequences, tagger.tokenizer_))
    logits, baseline = (predict_words(tagger.model_, some)[[0, 6]] for some in (windows, without))
    tags = [tagger.classes_.tolist().index(label) for label in found.groupby("row").label.first()]
    assert_sums(found, (logits - baseline)[[0, 1], tags], of=["row"])
    texts = tagger.explain([" ".join(row) for row in WORDS], [0, 3], **how)
    pd.testing.assert_frame_equal(texts, found, rtol=0, atol=1e-5)
    page = EntityDisplay.from_estimator(tagger, WORDS).html()
    assert page.count("<mark") == len(tagger.entities(WORDS)) and "sad" in page


@BOTH
def test_begin_and_end_of_an_answer(load, how):
    qa = load(BertQA, stride=4)
    context = "the chair was hot and the table was a red table with a chair"
    X = pd.DataFrame({"question": ["was it red"], "context": [context]})
    found, answer = qa.explain(X, **how), qa.answers(X, 1).iloc[0]
    assert found.groupby("label", sort=False).column.unique().map(list).to_dict() == {
        "start": ["question", "context"], "end": ["question", "context"]
    }  # fmt: skip
    windows, offsets = build_question_windows(qa.tokenizer_, X.question, X.context, 16, 4)
    first = np.flatnonzero(offsets[:, 0] == answer.start)[0]
    last = np.flatnonzero(offsets[:, 1] == answer.end)[0]
    holding = np.flatnonzero((windows.starts <= first) & (last < windows.starts + windows.kept))
    before = windows.first_length - windows.starts
    scores = []
    for sequences in (windows.take(slice(None)), masked(windows.take(slice(None)), qa.tokenizer_)):
        logits = ops.convert_to_numpy(qa.model_(sequences.padded(length=16)))
        scores.append(
            np.stack([logits[holding, (i + before)[holding], k] for k, i in enumerate((first, last))], axis=1)
        )
    assert AttributionDisplay.from_predictions(found, X).html().count("<mark") == len(found)
    assert AnswerDisplay.from_estimator(qa, X, n_best=2).html().count("<li") == 2
    of_window = np.abs(scores[0].sum(axis=1) - answer.score).argmin()
    assert_sums(found, (scores[0] - scores[1])[of_window])


@BOTH
def test_every_option_with_its_own_words(load, how):
    chooser = load(BertMultipleChoice)
    X = pd.DataFrame({"context": ["the chair was"], "question": ["was it"], "options": [["red", "hot and cold"]]})
    found = chooser.explain(X, **how)
    words = found.groupby("label").apply(lambda lines: list(zip(lines.column, lines.word, lines.start, strict=True)))
    common = [("context", "the", 0), ("context", "chair", 4), ("context", "was", 10)]
    common += [("question", "was", 0), ("question", "it", 4)]
    assert words[0] == [*common, ("options", "red", 0)]
    assert words[1] == [*common, ("options", "hot", 0), ("options", "and", 4), ("options", "cold", 8)]
    sequences = build_choices(chooser.tokenizer_, X.context, X.question, X.options.tolist(), 16)
    one_each = replace(sequences, rows=np.arange(2))
    logits, baseline = (
        predict_logits(chooser.model_, [some], 2)[:, 0] for some in (one_each, masked(one_each, chooser.tokenizer_))
    )
    assert_sums(found, logits - baseline, of=["label"])
    assert set(chooser.explain(X, 1).label) == {1}
    display = AttributionDisplay.from_estimator(chooser, X)
    assert set(display.explanation.label) == set(chooser.predict(X)) and display.html().count("<mark") >= 6


# --- What cannot be meant


@pytest.mark.parametrize(
    "arguments, message",
    [
        (dict(labels="d"), "labels is 'd', and must be one of"),
        (dict(labels=["a", "b"]), "labels holds 2, and X has 3 rows"),
        (dict(labels=["a", "b", None]), "labels: row 2 is None"),
        (dict(labels=pd.DataFrame({"a": [1, 0, 1], "b": [0, 1, 0], "c": 0})), "labels is a table of 3 columns"),
        (dict(unit="token"), "unit must be one of 'word', 'sentence', got 'token'"),
        (dict(method="lime"), "method must be one of"),
        (dict(n_steps=1), "n_steps must be a whole number of at least 2, got 1"),
    ],
)
def test_parameters_that_are_refused(classifier, arguments, message):
    with pytest.raises(ValueError, match=message):
        classifier.explain(TEXTS, **arguments)


def test_a_word_or_an_option_that_is_not_there_is_refused(load):
    tagger, chooser = load(BertTagger), load(BertMultipleChoice)
    with pytest.raises(ValueError, match="word is 3 in row 0, which has 3 words"):
        tagger.explain(WORDS, 3)
    with pytest.raises(TypeError, match="word must be a whole number, got 'it' for row 0"):
        tagger.explain(WORDS, "it")
    for large in (2**63, -(2**64), np.uint64(2**63)):
        with pytest.raises(ValueError, match="word is .* in row 1, and no row has so many"):
            tagger.explain(WORDS, [0, large])
    with pytest.raises(ValueError, match="option is 2 in row 0, which has 2 options"):
        chooser.explain([("the chair", ["red", "hot"])], 2)


def test_scores_that_do_not_add_up_are_told(classifier):
    with pytest.warns(IncompleteWarning, match="n_steps=8"):
        classifier.explain(TEXTS, n_steps=2)
    with warnings.catch_warnings():
        warnings.simplefilter("error", IncompleteWarning)
        classifier.explain(TEXTS, method="gradient_x_input")
