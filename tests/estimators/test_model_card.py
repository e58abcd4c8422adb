"""The model card that `save` writes: what it says, and what becomes of one that somebody has edited."""

import json
import re
import shutil
import warnings

import numpy as np
import pytest
from huggingface_hub import ModelCard

import kbert
from kbert import BertClassifier, BertConfig, BertMultipleChoice, BertRegressor, BertVectorizer
from kbert.errors import KbertWarning, WeightsMismatchError
from kbert.hub import model_cards
from kbert.sizes import SIZES

pytestmark = pytest.mark.slow

FACTS = {
    "description": "Tells good reviews from bad ones.",
    "data": "200 reviews that were made up",
    "scores": {"accuracy": 0.9125, "f1": np.float32(0.5)},
    "scored_on": "50 others",
    "language": ["en", "de"],
    "license": "mit",
}


def card_of(folder):
    return ModelCard.load(folder / "README.md")


@pytest.fixture(scope="module")
def saved(fitted, tmp_path_factory):
    folder = tmp_path_factory.mktemp("cards") / "reviews"
    fitted.save(folder, card=FACTS)
    return folder


# --- What it says


def test_the_metadata_are_those_of_the_hub(saved):
    card = card_of(saved)
    assert card.data.language == ["en", "de"] and card.data.license == "mit"
    assert card.data.library_name == "kbert" and card.data.pipeline_tag == "text-classification"
    assert card.data.base_model is None  # a folder on this machine
    assert {(result.metric_type, result.metric_value) for result in card.data.eval_results} == {
        ("accuracy", 0.9125),
        ("f1", 0.5),
    }
    assert {result.dataset_name for result in card.data.eval_results} == {"50 others"}


def test_the_text_says_what_the_model_is(saved, fitted, reviews):
    text = card_of(saved).text
    parts = [
        "# reviews",
        FACTS["description"],
        "| Labels | `bad`, `good` |",
        f"| Trained on | {len(reviews)} rows: {FACTS['data']} |",
        f"1 layers of 32, 2 heads, {fitted.model_.count_params():,} parameters",
        "16 tokens; longer texts are cut",
        "| accuracy | 0.9125 | 50 others |",
        "Started from | the weights of a folder |",
    ]
    assert [part for part in parts if part not in text] == []
    assert str(fitted.weights) not in text


def test_a_score_that_fit_measured_is_told_with_the_rows_it_is_of(toy, reviews, tmp_path):
    texts, labels = reviews.text[:40], reviews.label[:40]
    last = toy(epochs=2).fit(texts, labels, eval_set=(texts[:10], labels[:10]))
    best = toy(epochs=2, early_stopping=True).fit(texts, labels)
    last.history_["val_score"], best.history_["val_score"] = [0.75, 0.25], [0.75, 0.25]
    for classifier, line in [
        (last, "| `BertClassifier.score` | 0.25 | the validation rows of `fit` |"),
        (best, "| `BertClassifier.score` | 0.75 | the validation rows of `fit`, which chose the epoch |"),
    ]:
        classifier.save(tmp_path / "a")
        assert line in card_of(tmp_path / "a").text
    for scores, line in (([0.75, np.nan], "| `BertClassifier.score` | 0.75 |"), ([np.nan], "")):
        last.history_["val_score"] = scores
        last.save(tmp_path / "a")
        assert line in card_of(tmp_path / "a").text and "nan" not in card_of(tmp_path / "a").text


def test_without_a_score_none_is_told(fitted, tmp_path):
    fitted.save(tmp_path / "a")
    assert "Scores" not in card_of(tmp_path / "a").text and card_of(tmp_path / "a").data.eval_results is None


def python_of(folder):
    return re.findall(r"```python\n(.*?)```", (folder / "README.md").read_text(encoding="utf-8"), re.DOTALL)


def test_its_code_opens_the_folder(saved, fitted, monkeypatch):
    monkeypatch.chdir(saved.parent)
    names = {}
    exec(python_of(saved)[0], names)
    assert names["model"].predict_proba(["great"]) == pytest.approx(fitted.predict_proba(["great"]))


@pytest.mark.parity
def test_its_code_opens_the_folder_in_transformers(saved, fitted, monkeypatch):
    pytest.importorskip("transformers", reason="to compare, run: pip install 'kbert-learn[parity]'")
    monkeypatch.chdir(saved.parent)
    names = {}
    exec(python_of(saved)[1], names)
    # The toy's head reads the mean, which transformers does not have.
    reads_mean = fitted.config_.classifier_pooling == "mean"
    assert type(names["model"]).__name__ == ("BertModel" if reads_mean else "BertForSequenceClassification")


def test_a_head_that_transformers_lacks_is_not_promised(toy, reviews, tmp_path):
    for pooling, name in [("mean", "AutoModel,"), ("cls", "AutoModelForSequenceClassification,")]:
        toy(classifier_pooling=pooling).fit(reviews.text[:16], reviews.label[:16]).save(tmp_path / pooling)
        assert f"import {name}" in python_of(tmp_path / pooling)[1]


def test_pairs_are_called_as_pairs(toy, pairs, tmp_path, monkeypatch):
    toy().fit(pairs[["left", "right"]].to_numpy()[:32], pairs.both[:32]).save(tmp_path / "pairs")
    monkeypatch.chdir(tmp_path)
    exec(python_of(tmp_path / "pairs")[0], {})


def test_labels_of_any_kind_leave_the_card_readable(toy, reviews, tmp_path):
    strange = ["a | b", "`code`", "<b>", "---\nlicense: mit\n---", "\x1b[2J", "é: 🙂"]
    y = [strange[i % len(strange)] for i in range(24)]
    toy().fit(reviews.text[:24], y).save(tmp_path / "a", card={"data": "x\n---\n\ud800"})
    card = card_of(tmp_path / "a")
    assert card.data.license is None and "é: 🙂" in card.text and "\x1b" not in card.text
    (line,) = [line for line in card.text.splitlines() if line.startswith("| Labels")]
    assert len(re.findall(r"(?<!\\)\|", line)) == 3 and line.count("`") == 2 * len(strange)
    assert model_cards.is_unedited((tmp_path / "a" / "README.md").read_bytes())


@pytest.mark.parametrize(
    "parameters, base, licence",
    [
        ({"weights": "auto", "size": "minilm-l6"}, "sentence-transformers/all-MiniLM-L6-v2", "apache-2.0"),
        ({"weights": "bert-base-uncased"}, "google-bert/bert-base-uncased", "apache-2.0"),
        ({"weights": "somebody/some-bert"}, "somebody/some-bert", None),
        ({"weights": "hf://somebody/some-bert"}, "somebody/some-bert", None),
        ({"weights": "kerashub://bert_tiny_en_uncased"}, None, None),
        ({"weights": None}, None, None),
        ({"weights": "/home/somebody/weights"}, None, None),
        ({"weights": "here/weights"}, None, None),  # a folder
        ({"weights": "../weights"}, None, None),
        ({"weights": "hf://here/weights"}, "here/weights", None),
        ({"weights": "auto", "size": "large"}, None, None),  # set after fit: not the model's
    ],
)
def test_the_base_is_named_where_it_is_known(fitted, tmp_path, monkeypatch, parameters, base, licence):
    (tmp_path / "here" / "weights").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    changed = kbert.BertClassifier(**{**fitted.get_params(), "revision": "v2", **parameters})
    changed.__dict__.update({name: value for name, value in vars(fitted).items() if name.endswith("_")})
    changed.started_from_ = {name: getattr(changed, name) for name in ("size", "weights", "revision")}
    if base in {known.hub_name for known in SIZES.values()}:
        known = BertConfig.from_size(parameters.get("size", "base"))
        monkeypatch.setattr(type(known), "from_size", lambda size: fitted.config_)
    changed.save(tmp_path / "a")
    data = card_of(tmp_path / "a").data
    assert (data.base_model, data.license) == (base, licence)
    text = (tmp_path / "a" / "README.md").read_text()
    assert "/home" not in text and ("revision `v2`" in text) == (base is not None)


def test_what_parameters_were_set_to_after_fit_is_not_what_it_started_from(toy, reviews, tmp_path):
    """Such a card would name weights that were never read, and their licence."""
    classifier = toy(size="tiny", weights=None).fit(reviews.text[:16], reviews.label[:16])
    for folder in ("fitted", "loaded"):
        classifier.set_params(size="minilm-l6", weights="auto").save(tmp_path / folder)
        card = card_of(tmp_path / folder)
        assert "random weights" in card.text and card.data.base_model is None and card.data.license is None
        classifier = kbert.load(tmp_path / folder)
        assert classifier.weights is None


def test_a_warm_start_says_what_the_first_fit_started_from(toy, reviews, tmp_path):
    X, y = reviews.text[:16], reviews.label[:16]
    toy(size="tiny", weights=None, warm_start=True).fit(X, y).fit(X, y).save(tmp_path / "a")
    assert "random weights" in card_of(tmp_path / "a").text


def test_a_vectorizer_says_what_it_gives(toy_folder, reviews, tmp_path):
    BertVectorizer(weights=toy_folder, max_length=16).fit(reviews.text[:8]).save(tmp_path / "vectors")
    card = card_of(tmp_path / "vectors")
    assert card.data.pipeline_tag == "feature-extraction" and "Trained on | 8 rows |" in card.text


class MyRegressor(BertRegressor):
    """A class of the user's own, which `kbert.load` does not know."""


def test_numbers_have_no_labels_and_a_class_of_ones_own_loads_itself(toy_folder, reviews, tmp_path):
    regressor = MyRegressor(weights=toy_folder, max_length=16, epochs=1, head_start="random")
    regressor.fit(reviews.text[:16], np.arange(16) / 8).save(tmp_path / "numbers")
    text = card_of(tmp_path / "numbers").text
    assert "A BERT that gives numbers for texts: a `MyRegressor` of" in text and "| Labels |" not in text
    assert "model = MyRegressor.load('numbers')" in text and "kbert.load(" not in text


@pytest.mark.parametrize("n", [50, 53])
def test_of_many_labels_the_first_fifty_are_named(toy, reviews, tmp_path, n):
    y = [f"label {i:03}" for i in range(n)] * 2
    toy(head_start="random").fit(reviews.text[: 2 * n], y).save(tmp_path / "many")
    (line,) = re.findall(r"^\| Labels \| (.*) \|$", card_of(tmp_path / "many").text, re.MULTILINE)
    assert line.endswith("`label 049`" + (" and 3 more, in config.json" if n == 53 else "")) and line.count("`") == 100


# --- What the user says


@pytest.mark.parametrize(
    "card, error, match",
    [
        ("a card", TypeError, "must be a dict with some of the keys description"),
        ({"licence": "mit"}, ValueError, "no key 'licence'. Its keys are .*license"),
        ({"scores": {"accuracy": float("nan")}, "scored_on": "x"}, ValueError, "must be finite numbers"),
        ({"scores": {"accuracy": 0.5}}, ValueError, "'scored_on' what they were measured on"),
        ({"language": 1}, ValueError, "a code such as 'en'"),
    ],
)
def test_a_card_that_cannot_be_meant_is_refused_before_anything_is_written(fitted, tmp_path, card, error, match):
    with pytest.raises(error, match=match):
        fitted.save(tmp_path / "a", card=card)
    assert not (tmp_path / "a").exists()


def test_what_was_said_is_said_again_after_loading_and_forgotten_by_a_fit(saved, reviews, tmp_path):
    loaded = BertClassifier.load(saved)
    loaded.save(tmp_path / "a", card={"license": "apache-2.0"})
    card = card_of(tmp_path / "a")
    assert card.data.license == "apache-2.0" and "| accuracy | 0.9125 | 50 others |" in card.text
    assert f"{len(reviews)} rows" in card.text
    loaded.set_params(epochs=1).fit(reviews.text[:16], reviews.label[:16]).save(tmp_path / "b")
    assert "0.9125" not in card_of(tmp_path / "b").text and "16 rows" in card_of(tmp_path / "b").text


@pytest.mark.parametrize("key, value", [("license", 1), ("scores", {"accuracy": "high"}), ("language", {})])
def test_a_folder_whose_facts_were_changed_is_refused(saved, tmp_path, key, value):
    folder = shutil.copytree(saved, tmp_path / "a")
    values = json.loads((folder / "kbert.json").read_text(encoding="utf-8"))
    values["card"][key] = value
    (folder / "kbert.json").write_text(json.dumps(values), encoding="utf-8")
    with pytest.raises(WeightsMismatchError, match=f"card.{key} must be"):
        BertClassifier.load(folder)


# --- Edited cards


def test_a_card_that_nobody_edited_is_written_anew(fitted, fitted_three, tmp_path):
    fitted.save(tmp_path / "a")
    path = tmp_path / "a" / "README.md"
    path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))  # as git may do
    with warnings.catch_warnings():
        warnings.simplefilter("error", KbertWarning)
        fitted_three.save(tmp_path / "a")
    assert "`bad`, `good`, `meh`" in path.read_text(encoding="utf-8")


def test_a_description_with_the_line_ends_of_windows_is_no_edit(fitted, fitted_three, tmp_path):
    """Its card was taken for an edited one, so that the next save kept it."""
    fitted.save(tmp_path / "a", card={"description": "One line.\r\nAnother."})
    path = tmp_path / "a" / "README.md"
    assert b"One line.\nAnother." in path.read_bytes()
    with warnings.catch_warnings():
        warnings.simplefilter("error", KbertWarning)
        fitted_three.save(tmp_path / "a")
    assert "`bad`, `good`, `meh`" in path.read_text(encoding="utf-8")


def test_an_edited_card_is_kept_with_a_warning(fitted, fitted_three, tmp_path):
    fitted.save(tmp_path / "a")
    path = tmp_path / "a" / "README.md"
    edited = path.read_text(encoding="utf-8").replace("## Use", "Do not trust it.\n\n## Use")
    path.write_text(edited, encoding="utf-8")
    with pytest.warns(KbertWarning, match=r"README.md was written or edited by somebody, and is kept"):
        fitted_three.save(tmp_path / "a")
    assert path.read_text(encoding="utf-8") == edited
    assert BertClassifier.load(tmp_path / "a").classes_.tolist() == ["bad", "good", "meh"]


def test_a_readme_of_the_users_own_is_kept_and_told_of_where_a_card_was_asked_for(fitted, tmp_path):
    fitted.save(tmp_path / "a")
    (tmp_path / "a" / "README.md").write_text("mine")
    with warnings.catch_warnings():
        warnings.simplefilter("error", KbertWarning)
        fitted.save(tmp_path / "a")
    with pytest.warns(KbertWarning, match="remove it and save again"):
        fitted.save(tmp_path / "a", card={"license": "mit"})
    assert (tmp_path / "a" / "README.md").read_text() == "mine"


def test_scores_on_validation_rows_are_called_what_they_are(toy, reviews, tmp_path):
    texts, is_good = reviews.text[:24].tolist(), (reviews.label[:24] == "good").astype(int)
    matrix = np.stack([is_good, 1 - is_good, np.arange(24) % 2], axis=1)
    classifier = toy(epochs=1).fit(texts[:16], matrix[:16], eval_set=(texts[16:], matrix[16:]))
    classifier.save(tmp_path / "several")
    value = classifier.history_["val_score"][-1]
    assert f"| average precision | {value:.4g} | the validation rows of `fit` |" in card_of(tmp_path / "several").text


def test_the_call_of_a_chooser_with_questions_works(toy_folder, tmp_path):
    rows = [("the red", "what", ["hot", "cold"]), ("a chair", "who", ["sad", "happy"])] * 4
    chooser = BertMultipleChoice(weights=toy_folder, max_length=32, epochs=1).fit(rows, [0, 1] * 4)
    chooser.save(tmp_path / "choice")
    (call,) = re.findall(r"^model\.(predict\(.*\))$", card_of(tmp_path / "choice").text, re.MULTILINE)
    assert len(eval(f"chooser.{call}", {"chooser": chooser})) == 1
