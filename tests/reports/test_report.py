"""report: what it says is what the estimator does, for every kind of task."""

import copy
import json
import warnings

import numpy as np
import pandas as pd
import pytest
from report_rows import INDEX, rows_of
from scipy import sparse
from sklearn.base import clone
from sklearn.dummy import DummyClassifier
from sklearn.exceptions import NotFittedError
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import confusion_matrix, f1_score, r2_score
from sklearn.model_selection import GroupKFold, ShuffleSplit, StratifiedKFold, cross_val_predict
from sklearn.pipeline import make_pipeline

from kbert import BertClassifier, BertRegressor, BertVectorizer
from kbert.errors import TruncationWarning
from kbert.plots import AttributionDisplay, LengthDisplay
from kbert.reports import Report
from kbert.reports.baselines import TrainingRows, baselines
from kbert.reports.given import Found, Given
from kbert.reports.main_score import main_score
from kbert.reports.scores import scores

KINDS = ["classifier", "multilabel", "regressor", "tagger", "qa", "choice"]
pytestmark = [
    pytest.mark.slow,  # no backend has a part in it
    pytest.mark.filterwarnings("ignore::kbert.errors.TruncationWarning", "ignore::kbert.errors.MissingTextWarning"),
]


@pytest.mark.parametrize("kind", KINDS)
def test_the_score_is_that_of_the_estimator_and_lies_in_its_interval(kind, reports, estimator):
    X, y = rows_of(kind)
    report = reports(kind)
    found = report.as_dict()
    score = found["score"]
    if kind == "multilabel":
        classes = ["hot", "red", "green"]
        truth, answers = (
            [[name in row for name in classes] for row in rows] for rows in (y, estimator(kind).predict(X))
        )
        assert score["value"] == pytest.approx(f1_score(truth, answers, average="micro"))
    else:
        assert score["value"] == pytest.approx(estimator(kind).score(X, y))
    assert score["low"] < score["value"] < score["high"] and score["name"] not in found["scores"]
    assert found["rows"]["rows"] == 40 and sum(group["rows"] for group in found["by_length"]) == 40
    if score["name"] == "accuracy":
        right = sum(group["value"] * group["rows"] for group in found["by_length"])
        assert right / 40 == pytest.approx(score["value"])


def test_groups_by_length_are_quarters_of_the_rows_with_scores_of_their_own(reports, estimator):
    X, y = rows_of("classifier")
    tokens = LengthDisplay.from_estimator(estimator("classifier"), X).lengths
    right = estimator("classifier").predict(X) == y
    groups = reports("classifier").as_dict()["by_length"]
    assert [group["to"] for group in groups] == np.quantile(tokens, [0.25, 0.5, 0.75, 1], method="higher").tolist()
    for group, above in zip(groups, [0, *(group["to"] for group in groups)], strict=False):
        rows = (tokens > above) & (tokens <= group["to"])
        assert (group["from"], group["rows"]) == (tokens[rows].min(), rows.sum())
        assert group["value"] == pytest.approx(right[rows].mean()) and not group["cut"]


@pytest.mark.parametrize("kind", KINDS)
def test_it_is_json_and_a_page_that_asks_for_nothing(kind, reports, tmp_path):
    report = reports(kind)
    assert isinstance(report, Report)
    read = json.loads(json.dumps(report.as_dict(), allow_nan=False))
    assert read == report.as_dict() and read["n_doubtful"] == len(report.doubtful) > 0
    assert len(read["doubtful"]) == min(20, len(report.doubtful))
    report.save(tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert page == report.html() and report._repr_html_() in page
    for word in ("<script", "<link", "<img", "@import", "url(", "src=", "href=", "http", "<b>hot"):
        assert word not in page, word


@pytest.mark.parametrize("kind", KINDS)
def test_doubtful_rows_are_those_that_differ_with_the_most_doubtful_first(kind, reports, estimator):
    X, _ = rows_of(kind)
    lines = reports(kind).doubtful
    assert lines.doubt.is_monotonic_decreasing and (lines.doubt > 0).all()
    assert list(lines.index) == [INDEX[row] for row in lines.row]  # the index is that of X
    if kind not in ("regressor", "qa"):
        assert (lines.given != lines.predicted).all()
    if "probability" in lines:
        assert lines.probability.between(0, 1).all()
    if kind == "tagger":
        predicted = estimator(kind).predict(X)
        assert [predicted[line.row][line.position] for line in lines.itertuples()] == lines.predicted.tolist()
        assert [X.iloc[line.row][line.position] for line in lines.itertuples()] == lines.word.tolist()


def test_label_errors_are_ranked_by_the_probability_of_the_given_label(reports, estimator):
    X, y = rows_of("classifier")
    lines, probabilities = reports("classifier").doubtful, estimator("classifier").predict_proba(X)
    wrong = np.flatnonzero(probabilities.argmax(axis=1) != y)
    expected = wrong[np.argsort(probabilities[wrong, y[wrong]], kind="stable")]
    assert lines.row.tolist() == expected.tolist()
    assert np.allclose(lines.probability_given, probabilities[expected, y[expected]])
    assert np.allclose(lines.probability, probabilities[expected].max(axis=1))


def test_a_matrix_is_read_as_by_score(estimator):
    model = copy.copy(estimator("multilabel"))
    model.y_type_ = "indicator"
    X = rows_of("multilabel")[0]
    given = np.asarray(model.predict(X))
    for y in (given, sparse.csr_matrix(given), pd.DataFrame(given, columns=model.classes_, index=X.index)):
        made = model.report(X, y, train=(X, y), explain=False)
        assert made.doubtful.empty and made.as_dict()["score"]["value"] == 1
    # A matrix names the labels of fit, or none; lists may hold others.
    with pytest.raises(ValueError, match="columns"):
        model.report(X, np.hstack([given, given]), explain=False)


def test_the_tables_are_those_of_scikit_learn(reports, estimator):
    X, y = rows_of("classifier")
    found = reports("classifier").as_dict()
    matrix = confusion_matrix(y, estimator("classifier").predict(X))
    assert [list(line.values()) for line in found["confusion"].values()] == matrix.tolist()
    assert found["by_label"]["1"]["f1"] == pytest.approx(f1_score(y, estimator("classifier").predict(X)))


def test_the_words_that_are_shaded_speak_for_what_is_predicted(reports, estimator):
    X, _ = rows_of("classifier")
    report = reports("classifier")
    rows = report.doubtful.row[:20].tolist()
    why = estimator("classifier").explain(X.iloc[rows], labels=report.doubtful.predicted[:20].tolist())
    assert np.allclose(report.why.explanation.score, why.score, atol=1e-5)
    assert report.html().count("<mark") == len(why)
    plain = estimator("classifier").report(*rows_of("classifier"), explain=False, max_rows=2)
    assert "<mark" not in plain.html() and plain.html().count('class="text"') == 2


def test_the_words_of_a_question_speak_for_the_begin_and_the_end_of_the_answer_together(reports, estimator):
    X, _ = rows_of("qa")
    report = reports("qa")
    rows = report.doubtful.row[:20].tolist()
    why = estimator("qa").explain(X.iloc[rows])
    halves = [why[why.label == label].score.to_numpy() for label in ("start", "end")]
    assert np.allclose(report.why.explanation.score, sum(halves), atol=1e-5)


# --- Baselines


def test_the_baselines_learn_from_the_training_rows(estimator):
    X, y = rows_of("classifier")
    train = list(X[:30]), y[:30]
    found = estimator("classifier").report(X[30:], y[30:], train=train, explain=False).as_dict()["baselines"]
    expected = {
        "most_frequent": DummyClassifier(),
        "tfidf_linear": make_pipeline(TfidfVectorizer(), LogisticRegression(max_iter=1000)),
    }
    assert {name: line["value"] for name, line in found.items()} == pytest.approx(
        {name: model.fit(*train).score(X[30:], y[30:]) for name, model in expected.items()}
    )


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        ("multilabel", {"most_frequent", "tfidf_linear"}),
        ("regressor", {"mean", "tfidf_linear"}),
        ("tagger", {"most_frequent_tag"}),
        ("qa", {"no_answer"}),
        ("choice", {"most_frequent"}),
    ],
)
def test_every_kind_has_baselines_of_its_own(kind, names, estimator):
    X, y = rows_of(kind)
    found = estimator(kind).report(X, y, train=(X, y), explain=False).as_dict()["baselines"]
    assert set(found) == names
    expected = {"tagger": 1.0, "qa": 0.25, "regressor": 0.0}
    if kind in expected:
        simple = next(iter(found.values()))["value"]
        assert simple == pytest.approx(expected[kind], abs=1e-9)


# --- Rows that were not read as a whole


@pytest.mark.parametrize("long_text", ["truncate", "window"])
def test_rows_that_are_cut_or_empty_are_counted_and_scored(long_text, estimator):
    cutting = copy.copy(estimator("classifier"))
    cutting.long_text_ = long_text
    exact = "red " * (cutting.max_length_ - 2)
    texts = ["red hot table", "", exact, *("blue cold " * n for n in (40, 50, 60))]
    y = [1, 0, 1, 1, 0, 1]
    found = cutting.report(texts, y, explain=False).as_dict()
    longest = found["rows"]["max_length"]
    assert found["rows"]["empty"] == 1
    in_windows = long_text == "window"
    assert (found["rows"]["cut"], found["rows"]["in_windows"]) == ((0, 3) if in_windows else (3, 0))
    groups = [(group["rows"], group["cut"]) for group in found["by_length"] if group["to"] >= longest]
    assert groups == ([(3, False), *[(1, False)] * 3] if in_windows else [(1, False), (3, True)])


@pytest.mark.parametrize("change", [{"long_text": "truncate"}, {"max_length": "auto"}])
def test_rows_are_as_long_as_predict_reads_them_whatever_is_set_after_the_fit(change, estimator):
    changed = copy.deepcopy(estimator("classifier")).set_params(**change)
    texts = ["red hot table", "blue cold " * 40]
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        changed.predict(texts)
    (cut,) = [str(warning.message) for warning in told if issubclass(warning.category, TruncationWarning)] or [""]
    rows = changed.report(texts, [1, 0], explain=False).as_dict()["rows"]
    assert rows["max_length"] == changed.max_length_
    assert (rows["cut"], rows["in_windows"]) == ((1, 0) if "cut" in cut else (0, 1))


# --- Cross-validation


@pytest.fixture(scope="module")
def unfitted(tmp_path_factory):
    from kbert import BertConfig, BertEncoder, WordPieceTokenizer

    folder = tmp_path_factory.mktemp("weights")
    tokenizer = WordPieceTokenizer.train(["red blue hot cold good bad"] * 9, vocab_size=60)
    sizes = dict(hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16)
    config = BertConfig(vocab_size=tokenizer.vocab_size, max_position_embeddings=16, initializer_range=0.3, **sizes)
    BertEncoder(config, dtype="float32", seed=1).save_pretrained(folder)
    tokenizer.save(folder)
    values = dict(max_length=8, epochs=4, batch_size=8, learning_rate=3e-3, random_state=0, dtype="float32")
    return BertClassifier(weights=folder, **values)


@pytest.mark.filterwarnings("ignore::kbert.errors.KbertWarning")
def test_planted_label_errors_come_first_under_cross_validation(unfitted):
    rng = np.random.default_rng(0)
    truth = np.array(["bad", "good"] * 40)
    texts = [" ".join(rng.permutation([label, *rng.choice(["red", "blue", "hot"], 2)])) for label in truth]
    wrong = rng.choice(80, 8, replace=False)
    y = truth.copy()
    y[wrong] = np.where(truth[wrong] == "bad", "good", "bad")
    report = unfitted.report(texts, y, cv=3)
    assert set(report.doubtful.row[:8]) == set(wrong.tolist())
    found = report.as_dict()
    assert found["evaluated_by"] == "cross-validation"
    assert "fitted without it" in report.html() and "<mark" not in report.html()  # nothing is fitted that could say why

    folds = StratifiedKFold(3, shuffle=True, random_state=0)
    probabilities = cross_val_predict(unfitted, texts, y, cv=folds, method="predict_proba")
    given = probabilities[np.arange(80), (y == "good").astype(int)]
    assert found["score"]["value"] == np.mean((probabilities.argmax(axis=1) == 1) == (y == "good"))
    lines = report.doubtful
    assert np.allclose(lines.probability_given, given[lines.row], atol=1e-6)
    assert not hasattr(unfitted, "model_")


@pytest.mark.filterwarnings("ignore::kbert.errors.KbertWarning")
def test_under_cross_validation_labels_keep_their_names(unfitted):
    """scikit-learn's ``cross_val_predict`` numbers them anew, and class_weight would be that of other classes."""
    stars, texts = np.tile([1, 2, 3, 2, 3, 1], 4), pd.Series(["red good", "blue bad", "hot cold"] * 8)
    weighted = clone(unfitted).set_params(epochs=1, class_weight={3: 5.0})
    report = weighted.report(texts, stars, cv=3)
    (training, rest), *_ = StratifiedKFold(3, shuffle=True, random_state=0).split(texts, stars)
    fold = clone(weighted).fit(texts.iloc[training], stars[training])
    lines = report.doubtful[report.doubtful.row.isin(rest)].set_index("row")
    given = dict(zip(rest, fold.predict_proba(texts.iloc[rest])[np.arange(len(rest)), stars[rest] - 1], strict=True))
    assert len(lines) and np.allclose(lines.probability_given, [given[row] for row in lines.index], atol=1e-5)


@pytest.mark.filterwarnings("ignore::kbert.errors.KbertWarning")
def test_under_cross_validation_columns_may_have_another_order_than_in_an_earlier_fit(unfitted):
    rng, texts = np.random.default_rng(0), ["red good", "blue bad", "hot cold", "good red", "bad hot", "cold"] * 4
    Y = pd.DataFrame({"a": rng.normal(100, 1, 24), "b": rng.normal(0, 1, 24)})
    keep = ("weights", "max_length", "batch_size", "random_state", "dtype")
    regressor = BertRegressor(epochs=1, **{name: getattr(unfitted, name) for name in keep})
    expected = {order: regressor.report(texts, Y[list(order)], cv=3).as_dict()["score"] for order in ("ba", "a")}
    regressor.fit(texts, Y[["a", "b"]])
    for order, score in expected.items():
        assert regressor.report(texts, Y[list(order)], cv=3, explain=False).as_dict()["score"] == score


def test_folds_of_a_regressor_may_go_by_y_which_is_required(unfitted):
    X, y = rows_of("regressor")
    keep = ("weights", "max_length", "batch_size", "random_state", "dtype")
    regressor = BertRegressor(epochs=1, **{name: getattr(unfitted, name) for name in keep})

    class Binned(StratifiedKFold):
        def split(self, X, y, groups=None):
            return super().split(X, y > np.median(y), groups)

    report = regressor.report(X, y[:, 0], cv=Binned(2), explain=False)
    assert report.as_dict()["evaluated_by"] == "cross-validation"
    with pytest.raises(ValueError, match="requires y"):
        regressor.report(X, None, cv=2)
    with pytest.raises(ValueError, match="cv has no splits"):
        regressor.report(X, y[:, 0], cv=[])


# --- Unusual rows


@pytest.mark.parametrize("classes, name, value", [(["ADJ", "O"], "accuracy", 1.0), (["B-X", "O"], "f1", 0.0)])
def test_rows_of_O_alone_are_scored_by_what_the_tagger_may_say(classes, name, value):
    given = Given("tags", [["O", "O"]], Found([["O", "O"]], classes=np.array(classes)))
    assert main_score(given).name == name and main_score(given).of()["value"] == scores(given).values[name] == value


@pytest.mark.parametrize("classes", [["ADJ"], ["B-X", "O"]])
def test_rows_without_words_score_0(classes):
    given = Given("tags", [[]], Found([[]], classes=np.array(classes)))
    found, main = scores(given).values, main_score(given)
    assert found[main.name] == main.of()["value"] == 0
    assert dict(baselines(given, [[]], TrainingRows([[]], [[]]))) == {}


def test_one_label_alone_is_judged_as_a_label(estimator):
    model = copy.copy(estimator("multilabel"))
    X, y = rows_of("multilabel")
    outputs = model._outputs(X)
    model._outputs = lambda X: outputs[:, :1]
    model.classes_, model.thresholds_ = model.classes_[:1], model.thresholds_[:1]
    lists = [[label for label in row if label in model.classes_] for row in y]
    found = model.report(X, lists, explain=False).as_dict()
    given, predicted = (
        [label in row for row in rows for label in model.classes_] for rows in (lists, model.predict(X))
    )
    assert found["by_label"][str(model.classes_[0])]["f1"] == pytest.approx(f1_score(given, predicted))
    assert 0 < found["score"]["value"] == pytest.approx(f1_score(given, predicted))


def test_labels_of_another_type_are_refused(estimator):
    X, y = rows_of("classifier")
    other = [f"{label}" for label in y] if not isinstance(estimator("classifier").classes_[0], str) else [0] * len(y)
    with pytest.raises(TypeError, match="give one type"):
        estimator("classifier").report(X, other, explain=False)


def test_equal_numbers_have_no_r2():
    numbers = np.array([[0.1], [0.3], [0.3], [0.3]]) + 0.7
    given = Given("numbers", numbers, Found(numbers + 0.1))
    score = main_score(given)
    assert np.isfinite(score.of()["value"]) and np.isnan(score.of(np.array([1, 2, 3]))["value"])
    # Of several columns, as in scikit-learn.
    two, wrong = np.hstack([numbers, np.ones((4, 1))]), np.array([0.1, 0.0])
    for error in (wrong, wrong[::-1]):
        found = main_score(Given("numbers", two, Found(two + error))).of()["value"]
        assert found == pytest.approx(r2_score(two, two + error))


def test_columns_may_have_any_names(estimator, tmp_path):
    X, y = rows_of("choice")
    chooser, named = estimator("choice"), X.rename(columns={"context": "premise", "options": "endings"})
    assert chooser.report(named, y).html().count("<mark") == chooser.report(X, y).html().count("<mark") > 0
    # "context" and "options" may also be the names of two texts.
    why = pd.DataFrame(
        {"row": [0, 0], "column": ["claim", "context"], "start": 0, "end": 3, "label": "a", "score": 1.0}
    )
    for other in ("context", "options"):
        pair = pd.DataFrame({"claim": ["red"], other: ["hot"]})
        display = AttributionDisplay.from_predictions(why.replace({"column": {"context": other}}), pair)
        assert display.texts == [{"claim": "red", other: "hot"}] and display.html().count("<mark") == 2
    # Words of a "question" alone do not make a pair that of a question answerer.
    pair = pd.DataFrame({"question": ["red"], "sentence": [None]})
    display = AttributionDisplay.from_predictions(why[:1].replace({"column": {"claim": "question"}}), pair)
    assert display.texts == [{"question": "red", "sentence": ""}]


@pytest.mark.filterwarnings("ignore::kbert.errors.KbertWarning")
def test_two_columns_of_one_name_are_two_texts(unfitted):
    """As everywhere, they are taken by position."""
    X, y = rows_of("classifier")
    texts = np.asarray(X)
    pairs = pd.DataFrame(zip(texts, texts[::-1], strict=True), columns=["text", "text"])
    fitted = clone(unfitted).fit(pairs, y)
    made = fitted.report(pairs, y)
    assert made.doubtful[["text_1", "text_2"]].notna().all(axis=None)
    assert AttributionDisplay.from_estimator(fitted, pairs[:2]).texts[0] == {0: texts[0], 1: texts[-1]}
    by_folds = [unfitted.report(rows, y, cv=2, explain=False).as_dict()["score"] for rows in (pairs, pairs.to_numpy())]
    assert by_folds[0] == by_folds[1]


# --- What is refused


def test_what_cannot_be_judged_is_refused(unfitted, estimator, monkeypatch):
    X, y = rows_of("classifier")
    with pytest.raises(NotFittedError, match="not fitted yet"):
        unfitted.report(X, y)
    with pytest.raises(ValueError, match=r"train=\(X, y\) or cv, not both"):
        unfitted.report(X, y, train=(X, y), cv=3)
    with pytest.raises(ValueError, match="the X of train has 2 features, but BertClassifier is expecting 1"):
        estimator("classifier").report(X, y, train=(pd.DataFrame({"title": X, "text": X}), y))
    with pytest.raises(ValueError, match="train must be a pair"):
        estimator("classifier").report(X, y, train=X)
    with pytest.raises(ValueError, match="cv is for one label or number a row, and this estimator predicts tags"):
        estimator("tagger").report(*rows_of("tagger"), cv=3)
    with pytest.raises(ValueError, match="max_rows must be"):
        estimator("classifier").report(X, y, max_rows=0)
    with pytest.raises(ValueError, match="All fits of a cross-validation would share checkpoint='run'"):
        clone(unfitted).set_params(checkpoint="run").report(X, y, cv=3)
    monkeypatch.setattr(type(estimator("classifier")), "_outputs", None)  # y is looked at before anything is computed
    with pytest.raises(ValueError, match="X has 40 rows and y has 39 labels"):
        estimator("classifier").report(X, y[:-1])
    assert not hasattr(BertVectorizer("tiny"), "report")


def test_many_labels_have_short_tables():
    from kbert.reports.page import Report as Page

    labels = [f"l{i}" for i in range(40)]
    line = {"precision": 0.5, "recall": 0.5, "f1": 0.5, "rows": 3}
    confusion = {a: {b: int(a != b and i == 0) for b in labels} for i, a in enumerate(labels)}
    score = {"name": "accuracy", "value": 0.5, "low": 0.4, "high": 0.6}
    values = {
        "estimator": "e", "evaluated_by": "predict", "score": score, "baselines": {}, "scores": {}, "calibration": {},
        "rows": {"rows": 9, "empty": 0, "cut": 0, "in_windows": 0, "max_length": 8}, "by_length": [],
        "by_label": dict.fromkeys(labels, line), "confusion": confusion,
    }  # fmt: skip
    page = Page("labels", values, pd.DataFrame({"row": []}), None, 5).html()
    assert "The 30 labels of 40 with the lowest F1" in page and "The most frequent of 39 kinds of mistakes" in page
    assert page.count("<tr>") < 70


def test_a_label_that_fit_did_not_know_is_not_explained_by_another(estimator):
    classifier, (X, _) = estimator("multilabel"), rows_of("multilabel")
    report = classifier.report(X[:6], [["zzz"]] * 3 + [["hot"]] * 3)
    unknown = (report.doubtful.label == "zzz").to_numpy()
    assert unknown.any() and not report.why.explanation.row.isin(np.flatnonzero(unknown)).any()
    assert report.html().count("zzz") >= unknown.sum()


def test_labels_that_are_numbers_stand_in_their_order(estimator):
    classifier, (X, _) = copy.copy(estimator("classifier")), rows_of("classifier")
    numbers = [10, 9, 100, 2] * 10
    for labels, order in ((numbers, [2, 9, 10, 100]), (list(map(str, numbers)), ["2", "9", "10", "100"])):
        classifier.classes_ = np.array(sorted(set(labels)))[: len(classifier.classes_)]
        found = classifier.report(X, labels, explain=False).as_dict()["by_label"]
        assert list(found) == list(map(str, order))


def test_rows_of_equal_doubt_stay_in_their_order_and_their_columns_are_told_apart(estimator):
    X, y = rows_of("classifier")
    lines = estimator("classifier").report(pd.DataFrame({"row": X}), [7] * 40, explain=False).doubtful
    assert lines.row.tolist() == list(range(40)) and (lines.doubt == 1).all()
    assert lines.row_of_X.tolist() == X.tolist()
    pairs = list(rows_of("choice")[0].itertuples(index=False, name=None))
    lines = estimator("choice").report(pairs, [0] * 40, explain=False).doubtful
    assert len(lines) and [pairs[row] for row in lines.row] == list(zip(lines.context, lines.options, strict=True))


def test_a_tagger_that_reads_texts_is_explained_on_these_texts(estimator):
    texts = ["  red,  hot table", "a  blue <b>chair"] * 2
    report = estimator("tagger").report(texts, [[(2, 5, "COLOUR")], []] * 2)
    rows = report.doubtful.row.tolist()
    assert len(rows) and [row[""] for row in report.why.texts] == [texts[row] for row in rows]
    assert report.doubtful.text.tolist() == [texts[row] for row in rows]


@pytest.mark.filterwarnings("ignore::kbert.errors.KbertWarning")
def test_whether_probabilities_were_calibrated_is_told(estimator, unfitted):
    X, y = rows_of("classifier")
    model = copy.copy(estimator("classifier"))
    for temperature in (1.0, 2.0):  # a parameter that was set after the fit tells nothing
        model.temperature_ = temperature
        found = model.set_params(calibrate=None).report(X, y, explain=False).as_dict()["calibration"]
        assert found["learned"] == (temperature == 2.0) and set(found) == {"learned", "before", "after"}
    # Each fold has learned a temperature of its own, which cannot be undone.
    folds = clone(unfitted).set_params(epochs=1, calibrate="temperature").report(X, y, cv=2).as_dict()["calibration"]
    assert folds["learned"] is True and set(folds) == {"learned", "after"}


def test_folds_that_test_a_row_twice_are_refused_before_a_fit(estimator, monkeypatch):
    monkeypatch.setattr(BertClassifier, "fit", lambda *_: pytest.fail("it was fitted"))
    X, y = ["a", "b"] * 10, [0, 1] * 10
    with pytest.raises(ValueError, match="cv tests row . 0 times. A report needs each row once"):
        estimator("classifier").report(X, y, cv=ShuffleSplit(1, test_size=0.5, random_state=0))


@pytest.mark.filterwarnings("ignore::kbert.errors.KbertWarning")
def test_folds_of_groups_are_told_how_they_are_given(unfitted):
    X, y = rows_of("classifier")
    with pytest.raises(ValueError, match=r"splits by groups.*cv=list\(GroupKFold\(5\).split\(X, y, groups\)\)"):
        unfitted.report(X, y, cv=GroupKFold(2))


def test_folds_are_shuffled_whatever_kind_of_number_they_are(unfitted):
    X, y = [f"red {i}" for i in range(10)] + [f"blue {i}" for i in range(10)], [0] * 10 + [1] * 10
    found = [unfitted.report(X, y, cv=cv, explain=False).as_dict() for cv in (2, np.int64(2))]
    assert found[0] == found[1]


def test_rows_that_no_linear_model_learns_from_leave_out_that_baseline(estimator, recwarn):
    classifier, (X, y) = estimator("classifier"), rows_of("classifier")
    for train in ((X[:4], [y[0]] * 4), (["a", "b"] * 2, [y[0], classifier.classes_[0]] * 2)):
        found = classifier.report(X[:8], y[:8], train=train, explain=False).as_dict()
        assert "most_frequent" in found["baselines"] and "tfidf_linear" not in found["baselines"]
    one = classifier.report(X[:1], y[:1], explain=False)
    assert one.as_dict() and not [told for told in recwarn if "single label" in str(told.message)]


@pytest.mark.parametrize("kind", KINDS)
def test_as_text_it_is_its_scores(kind, reports):
    report = reports(kind)
    text, found = str(report), report.as_dict()
    assert f"{found['score']['value']:.3f}" in text and "on 40 rows" in text and "<" not in text
    assert f"{len(report.doubtful)} rows to look at" in text
    for label in found.get("by_label") or ():
        assert label in text
