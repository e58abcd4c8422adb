import copy
import json
import os
import shutil
import stat

import numpy as np
import pandas as pd
import pytest
from safetensors.numpy import load_file, save_file

from kbert import (
    BertClassifier,
    BertConfig,
    BertForPreTraining,
    BertPretrainer,
    BertVectorizer,
    WordPieceTokenizer,
)
from kbert.errors import WeightsMismatchError, WeightsNotFoundError

pytestmark = pytest.mark.slow

SENTENCES = ["The happy chair was broken.", "it is sad", "Ünïcode 日本 and [SEP] typed", "a", "the table " * 9]


@pytest.fixture(scope="module")
def saved(fitted, tmp_path_factory):
    """A folder with a fitted classifier. Tests must not change it."""
    folder = tmp_path_factory.mktemp("saved") / "reviews"
    fitted.save(folder)
    return folder


@pytest.fixture
def damaged(saved, tmp_path):
    """A copy of that folder, to be changed."""
    return shutil.copytree(saved, tmp_path / "damaged")


def change_json(path, **changes):
    values = json.loads(path.read_text(encoding="utf-8"))
    for key, value in changes.items():
        if value is None:
            del values[key]
        else:
            values[key] = value
    path.write_text(json.dumps(values), encoding="utf-8")


# --- There and back


@pytest.mark.backend
def test_a_loaded_classifier_is_the_one_that_was_saved(saved, fitted, reviews):
    loaded = BertClassifier.load(saved, verify=True)
    assert np.array_equal(loaded.decision_function(reviews.text), fitted.decision_function(reviews.text))
    assert np.array_equal(loaded.predict(reviews.text), fitted.predict(reviews.text))
    assert loaded.get_params() == {**fitted.get_params(), "weights": str(fitted.weights)}
    assert (loaded.history_, loaded.n_iter_, loaded.n_features_in_) == (fitted.history_, 6, 1)
    assert loaded.config_ == fitted.config_
    assert not hasattr(loaded, "feature_names_in_")


@pytest.mark.parametrize(
    "labels", [["bad", "good"], [-1, 5], [False, True], [1.0, 2.0], ["1", "2"], [2**70, 2**70 + 1]], ids=str
)
def test_labels_keep_their_type_in_a_folder(toy, reviews, tmp_path, labels):
    classifier = toy(class_weight={labels[1]: 2}).fit(reviews.text[:32], labels * 16)
    classifier.save(tmp_path / "a")
    loaded = BertClassifier.load(tmp_path / "a")
    assert loaded.classes_.dtype == classifier.classes_.dtype
    assert [(type(label), label) for label in loaded.classes_.tolist()] == [(type(label), label) for label in labels]
    assert loaded.predict(reviews.text).tolist() == classifier.predict(reviews.text).tolist()
    assert loaded.class_weight == {labels[1]: 2} and type(next(iter(loaded.class_weight))) is type(labels[1])


def test_pairs_and_their_column_names_come_back(toy, pairs, tmp_path):
    X = pairs[["left", "right"]]
    classifier = toy().fit(X[:32], pairs.both[:32])
    classifier.save(tmp_path / "a")
    loaded = BertClassifier.load(tmp_path / "a", verify=True)
    assert loaded.feature_names_in_.tolist() == ["left", "right"]
    assert np.array_equal(loaded.predict_proba(X), classifier.predict_proba(X))
    with pytest.raises(ValueError, match="expecting 2 features"):
        loaded.predict(pairs.left)


def test_a_history_that_is_larger_than_the_weights_comes_back(fitted, tmp_path):
    again = copy.copy(fitted)
    again.__dict__.update(history_={"loss": [1 / 3] * 400_000})  # 10 MB beside 10 kB
    again.save(tmp_path / "saved")
    loaded = BertClassifier.load(tmp_path / "saved")
    assert loaded.history_ == again.history_ and loaded.n_iter_ == 400_000


def test_every_kind_of_parameter_comes_back(toy, reviews, tmp_path):
    size = BertConfig(hidden_size=24, num_hidden_layers=1, intermediate_size=32, classifier_dropout=0.3)
    changed = toy(size=size, weights=None, epochs=1).fit(reviews.text[:16], reviews.label[:16])
    parameters = {
        "size": size,
        "weights": None,
        "warmup": np.int64(5),
        "learning_rate": np.float32(0.5),
        "class_weight": {"bad": 1.5, "good": 1},
    }
    changed.set_params(**parameters).save(tmp_path / "a")
    assert {name: getattr(BertClassifier.load(tmp_path / "a"), name) for name in parameters} == parameters
    # A generator has moved on since, and is not kept.
    changed.set_params(random_state=np.random.RandomState(0)).save(tmp_path / "a")
    assert BertClassifier.load(tmp_path / "a").random_state is None


def test_a_loaded_classifier_can_be_fitted_and_saved_again(saved, reviews, tmp_path):
    loaded = BertClassifier.load(saved).set_params(epochs=1)
    loaded.save(tmp_path / "a")
    assert np.array_equal(
        BertClassifier.load(tmp_path / "a").predict_proba(reviews.text), loaded.predict_proba(reviews.text)
    )
    loaded.fit(reviews.text[:32], reviews.label[:32])
    assert loaded.n_iter_ == 1


def test_a_saved_folder_serves_as_weights(saved, toy, reviews):
    # The body has learned the words already; only a new head has to be found.
    head_only = dict(freeze=1, epochs=2)
    warm = toy(weights=saved, **head_only).fit(reviews.text[:64], reviews.label[:64])
    cold = toy(**head_only).fit(reviews.text[:64], reviews.label[:64])
    assert warm.score(reviews.text, reviews.label) > 0.95 > cold.score(reviews.text, reviews.label)


def test_the_folder_holds_what_the_layout_asks_for(saved):
    files = {path.name for path in saved.iterdir()}
    assert files >= {"config.json", "model.safetensors", "tokenizer.json", "vocab.txt", "tokenizer_config.json"}
    assert "kbert.json" in files
    config = json.loads((saved / "config.json").read_text(encoding="utf-8"))
    assert config["id2label"] == {"0": "bad", "1": "good"}
    assert config["label2id"] == {"bad": 0, "good": 1}


# --- Writing


def test_save_replaces_an_older_one_and_leaves_nothing_beside_it(fitted, fitted_three, tmp_path):
    fitted.save(tmp_path / "a")
    fitted_three.save(tmp_path / "a")
    assert BertClassifier.load(tmp_path / "a").classes_.tolist() == ["bad", "good", "meh"]
    assert os.listdir(tmp_path) == ["a"]


def test_save_fills_an_empty_folder_and_makes_missing_ones(fitted, tmp_path):
    (tmp_path / "empty").mkdir()
    for folder in (tmp_path / "empty", tmp_path / "not" / "yet" / "there"):
        fitted.save(str(folder))
        assert BertClassifier.load(str(folder)).classes_.tolist() == ["bad", "good"]


def test_save_leaves_the_files_of_other_programs(fitted, tmp_path):
    fitted.save(tmp_path / "a")
    names = ("pytorch_model.bin", "special_tokens_map.json", "README.md")
    for name in names:
        (tmp_path / "a" / name).write_text("{}")
    (tmp_path / "a" / "vocab.txt").write_text("of the older one")
    fitted.save(tmp_path / "a")
    assert [(tmp_path / "a" / name).read_text() for name in names] == ["{}"] * 3
    assert BertClassifier.load(tmp_path / "a").classes_.tolist() == ["bad", "good"]
    assert "of the older one" not in (tmp_path / "a" / "vocab.txt").read_text(encoding="utf-8")


@pytest.mark.skipif(os.name == "nt", reason="Windows has no permissions by mode")
def test_other_users_can_read_what_was_saved_and_a_private_folder_stays_private(fitted, tmp_path):
    before = os.umask(0o022)
    try:
        fitted.save(tmp_path / "a")
        assert {stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "a").iterdir()} == {0o644}
        (tmp_path / "a").chmod(0o700)
        (tmp_path / "a" / "model.safetensors").chmod(0o640)
        fitted.save(tmp_path / "a")
    finally:
        os.umask(before)
    found = {path.name: stat.S_IMODE(path.stat().st_mode) for path in [tmp_path / "a", *(tmp_path / "a").iterdir()]}
    assert (found["a"], found["model.safetensors"], found["kbert.json"]) == (0o700, 0o640, 0o644)


def test_save_refuses_a_folder_that_holds_something_else(fitted, tmp_path):
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter.txt").write_text("long")
    with pytest.raises(FileExistsError, match="holds no saved estimator: nothing was written"):
        fitted.save(tmp_path / "thesis")
    with pytest.raises(FileExistsError, match="chapter.txt is a file"):
        fitted.save(tmp_path / "thesis" / "chapter.txt")
    assert (tmp_path / "thesis" / "chapter.txt").read_text() == "long"
    assert os.listdir(tmp_path / "thesis") == ["chapter.txt"] and os.listdir(tmp_path) == ["thesis"]


def test_a_save_that_fails_leaves_the_older_one(fitted, tmp_path, monkeypatch):
    fitted.save(tmp_path / "a")
    before = (tmp_path / "a" / "model.safetensors").read_bytes()

    def fail(*args):
        raise OSError("No space left on device")

    monkeypatch.setattr("kbert.estimators.kbert_json.write", fail)
    with pytest.raises(OSError, match="No space left"):
        fitted.save(tmp_path / "a")
    assert (tmp_path / "a" / "model.safetensors").read_bytes() == before
    assert os.listdir(tmp_path) == ["a"]


# --- Damage


def test_a_swap_that_fails_puts_the_older_one_back(fitted, tmp_path, monkeypatch):
    folder = tmp_path / "model"
    fitted.save(folder)
    rename = type(folder).rename

    def fail_for_the_new_one(path, target):
        if path.name == "new":
            raise PermissionError("no")
        return rename(path, target)

    monkeypatch.setattr(type(folder), "rename", fail_for_the_new_one)
    with pytest.raises(PermissionError):
        fitted.save(folder)
    monkeypatch.undo()
    BertClassifier.load(folder, verify=True)
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_other_files_in_a_saved_folder_are_kept(fitted, tmp_path):
    fitted.save(tmp_path / "model")
    (tmp_path / "model" / "README.md").write_text("mine")
    fitted.save(tmp_path / "model")
    assert (tmp_path / "model" / "README.md").read_text() == "mine"


def test_save_into_the_working_folder(fitted, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    fitted.save(".")
    BertClassifier.load(tmp_path, verify=True)


def test_verify_notices_a_byte_of_the_weights(damaged):
    content = bytearray((damaged / "model.safetensors").read_bytes())
    content[-100] ^= 1
    (damaged / "model.safetensors").write_bytes(content)
    BertClassifier.load(damaged)
    with pytest.raises(
        WeightsMismatchError, match=r"model.safetensors is not the file that was saved with .*kbert.json"
    ):
        BertClassifier.load(damaged, verify=True)


def test_verify_notices_a_changed_weight(damaged):
    """In a folder of an earlier version, without a checksum."""
    golden = json.loads((damaged / "kbert.json").read_text(encoding="utf-8"))["golden"]
    change_json(damaged / "kbert.json", golden={name: golden[name] for name in golden if name != "weights"})
    arrays = load_file(damaged / "model.safetensors")
    arrays["classifier.weight"] = arrays["classifier.weight"] + 0.5 * np.sign(arrays["classifier.weight"])
    save_file(arrays, damaged / "model.safetensors", {"format": "pt"})
    BertClassifier.load(damaged)
    with pytest.raises(WeightsMismatchError, match="does not predict what it did.*outputs differ by"):
        BertClassifier.load(damaged, verify=True)


def test_verify_notices_a_changed_vocabulary(damaged):
    path = damaged / "tokenizer.json"
    values = json.loads(path.read_text(encoding="utf-8"))
    vocabulary = values["model"]["vocab"]
    plain = [token for token in vocabulary if not token.startswith("[")]
    ids = [vocabulary[token] for token in plain]
    vocabulary.update(zip(plain, reversed(ids), strict=True))
    path.write_text(json.dumps(values), encoding="utf-8")
    with pytest.raises(WeightsMismatchError, match="does not predict what it did"):
        BertClassifier.load(damaged, verify=True)


def test_a_folder_of_another_estimator_is_refused(damaged):
    change_json(damaged / "kbert.json", estimator="BertTagger")
    with pytest.raises(WeightsMismatchError, match="holds a BertTagger; load it with kbert.BertTagger.load"):
        BertClassifier.load(damaged)


def test_a_folder_of_a_newer_kbert_is_refused(damaged):
    change_json(damaged / "kbert.json", format=99)
    with pytest.raises(WeightsMismatchError, match=r"newer kbert \(format 99\). Update kbert"):
        BertClassifier.load(damaged)


@pytest.mark.parametrize("text", ["", '{"format": 1, "estim', "[]", "null", '{"format": 1}'], ids=repr)
def test_a_damaged_kbert_json_is_named(damaged, text):
    (damaged / "kbert.json").write_text(text)
    with pytest.raises(WeightsMismatchError, match="kbert.json is damaged"):
        BertClassifier.load(damaged)


@pytest.mark.parametrize("key", ["parameters", "learned", "n_features_in", "feature_names_in", "history", "golden"])
def test_a_kbert_json_without_one_of_its_keys_is_named(damaged, key):
    change_json(damaged / "kbert.json", **{key: None})
    with pytest.raises(WeightsMismatchError, match=f"kbert.json is damaged.*{key}"):
        BertClassifier.load(damaged, verify=True)


def test_a_parameter_that_is_not_known_is_named(damaged):
    values = json.loads((damaged / "kbert.json").read_text(encoding="utf-8"))
    change_json(damaged / "kbert.json", parameters={**values["parameters"], "colour": "red"})
    with pytest.raises(WeightsMismatchError, match="kbert.json.*colour"):
        BertClassifier.load(damaged)


def test_labels_that_do_not_fit_the_head_are_refused(damaged):
    learned = json.loads((damaged / "kbert.json").read_text(encoding="utf-8"))["learned"]
    classes = {"dtype": "object", "values": ["bad", "good", "meh"]}
    change_json(damaged / "kbert.json", learned={**learned, "classes": classes})
    with pytest.raises(WeightsMismatchError, match="holds 3 labels and a head of 2 outputs"):
        BertClassifier.load(damaged)


def test_a_folder_without_a_head_is_refused(toy_folder):
    with pytest.raises(WeightsMismatchError, match="holds a BertModel, and BertClassifier opens"):
        BertClassifier.load(toy_folder)


def test_a_folder_that_is_not_there_is_named(tmp_path):
    with pytest.raises(WeightsNotFoundError, match="There is no saved model .*/nothing'"):
        BertClassifier.load(tmp_path / "nothing")


# --- transformers


@pytest.fixture(scope="module")
def transformers():
    pytest.importorskip("torch", reason="needs PyTorch; run: pip install 'kbert-learn[parity]'")
    return pytest.importorskip("transformers", reason="needs transformers; run: pip install 'kbert-learn[parity]'")


def transformers_logits(transformers, folder, texts, pairs=None):
    import torch

    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModelForSequenceClassification.from_pretrained(folder).eval()
    inputs = tokenizer(texts, pairs, padding=True, truncation=True, max_length=16, return_tensors="pt")
    with torch.no_grad():
        return model(**inputs).logits.numpy(), model.config


@pytest.mark.parity
@pytest.mark.filterwarnings("ignore::kbert.errors.TruncationWarning")
def test_transformers_opens_what_was_saved_with_the_same_logits(transformers, fitted_three, tmp_path):
    fitted_three.save(tmp_path / "a")
    logits, config = transformers_logits(transformers, tmp_path / "a", SENTENCES)
    np.testing.assert_allclose(logits, fitted_three.decision_function(SENTENCES), atol=1e-4)
    assert config.id2label == {0: "bad", 1: "good", 2: "meh"}
    assert config.label2id == {"bad": 0, "good": 1, "meh": 2}


@pytest.mark.parity
def test_transformers_opens_a_classifier_of_pairs(transformers, toy, pairs, tmp_path):
    X = pairs[["left", "right"]][:20]
    classifier = toy(epochs=3).fit(pairs[["left", "right"]], pairs.both)
    classifier.save(tmp_path / "a")
    logits, config = transformers_logits(transformers, tmp_path / "a", X.left.tolist(), X.right.tolist())
    np.testing.assert_allclose(logits[:, 1] - logits[:, 0], classifier.decision_function(X), atol=1e-4)
    assert config.id2label == {0: "False", 1: "True"}


@pytest.mark.parity
def test_transformers_reads_the_same_token_ids(transformers, saved):
    theirs, ours = transformers.AutoTokenizer.from_pretrained(saved), BertClassifier.load(saved).tokenizer_
    # Apart from a special token that is typed in a text, which kbert takes as plain characters.
    for text in (text for text in SENTENCES if "[SEP]" not in text):
        assert theirs(text)["input_ids"] == ours.encode(text).ids
        assert theirs(text, "a table")["input_ids"] == ours.encode(text, "a table").ids


@pytest.fixture
def saved_by_transformers(transformers, toy_folder, tmp_path):
    """A function that saves a random classifier with transformers."""
    import torch

    def save(**config):
        torch.manual_seed(0)
        values = json.loads((toy_folder / "config.json").read_text(encoding="utf-8"))
        values = {key: value for key, value in values.items() if key not in ("architectures", "dtype", "model_type")}
        model = transformers.BertForSequenceClassification(transformers.BertConfig(**values, **config))
        with torch.no_grad():
            # Larger than a usual start, so that the texts are told apart.
            for weight in model.parameters():
                weight.mul_(10 if weight.dim() == 2 else 1)
        model.save_pretrained(tmp_path / "theirs")
        transformers.AutoTokenizer.from_pretrained(toy_folder).save_pretrained(tmp_path / "theirs")
        return tmp_path / "theirs"

    return save


@pytest.mark.parity
@pytest.mark.filterwarnings("ignore::kbert.errors.TruncationWarning")
def test_opens_what_transformers_saved(transformers, saved_by_transformers, tmp_path):
    folder = saved_by_transformers(
        id2label={0: "no", 1: "yes", 2: "perhaps"}, label2id={"no": 0, "yes": 1, "perhaps": 2}
    )
    classifier = BertClassifier.load(folder).set_params(max_length=16)
    texts = [text for text in SENTENCES if "[SEP]" not in text]
    logits, _ = transformers_logits(transformers, folder, texts, None)
    assert np.ptp(logits, axis=0).min() > 0.1
    expected = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    assert classifier.classes_.tolist() == ["no", "yes", "perhaps"]
    np.testing.assert_allclose(classifier.predict_proba(pd.Series(texts)), expected, atol=1e-5)
    assert classifier.predict(texts).tolist() == [["no", "yes", "perhaps"][i] for i in logits.argmax(axis=1)]
    # And it may be saved as one of kbert's own.
    classifier.save(tmp_path / "ours")
    again = BertClassifier.load(tmp_path / "ours", verify=True)
    assert np.array_equal(again.predict_proba(texts), classifier.predict_proba(texts))


@pytest.mark.parity
@pytest.mark.parametrize("n_labels", [2, 3])
def test_labels_without_names_are_whole_numbers(saved_by_transformers, n_labels):
    classifier = BertClassifier.load(saved_by_transformers(num_labels=n_labels))
    assert classifier.classes_.tolist() == list(range(n_labels))
    assert classifier.predict_proba(["the table", "a chair"]).shape == (2, n_labels)


@pytest.mark.parity
def test_texts_longer_than_the_positions_of_a_small_model_are_read_in_windows(saved_by_transformers):
    classifier = BertClassifier.load(saved_by_transformers())
    assert classifier.max_length_ == 64
    start, end = "the chair " * 100, "the table " * 100
    found = classifier.predict_proba([start, start + end])
    assert not np.allclose(found[0], found[1])


@pytest.mark.parametrize("start", ["classifier", "vectorizer", "saved vectorizer", "pretrainer"])
def test_a_config_that_asks_for_more_than_the_arrays_takes_no_memory(tmp_path, start):
    config = BertConfig(vocab_size=20, hidden_size=4, num_hidden_layers=1, num_attention_heads=1, intermediate_size=8)
    BertForPreTraining(config).save_pretrained(tmp_path)
    WordPieceTokenizer.train(["a good film", "a bad film"], vocab_size=20).save(tmp_path)
    values = json.loads((tmp_path / "config.json").read_text())
    # Ten thousand million numbers, which would be 40 GB.
    (tmp_path / "config.json").write_text(json.dumps({**values, "intermediate_size": 2_500_000_000}))
    with pytest.raises(WeightsMismatchError, match=r"config\.json"):
        if start == "classifier":
            BertClassifier(weights=tmp_path).fit(["a good film", "a bad film"], [1, 0])
        elif start == "vectorizer":
            BertVectorizer(weights=tmp_path).fit(["a good film"])
        elif start == "saved vectorizer":
            BertVectorizer.load(tmp_path)
        else:
            BertPretrainer(weights=tmp_path, max_steps=1).fit(["a good film. a bad film."] * 3)


@pytest.mark.parametrize(("dtype", "is_as_saved"), [("float32", False), ("mixed_bfloat16", True)])
def test_verifying_allows_for_the_dtype_that_was_saved(fitted, tmp_path, dtype, is_as_saved):
    fitted.save(tmp_path)
    values = json.loads((tmp_path / "kbert.json").read_text())
    assert values["golden"]["dtype"] == "float32"
    values["golden"]["logits"] = (np.array(values["golden"]["logits"]) + 0.1).tolist()
    values["golden"]["dtype"] = dtype
    (tmp_path / "kbert.json").write_text(json.dumps(values))
    if is_as_saved:
        BertClassifier.load(tmp_path, verify=True)
    else:
        with pytest.raises(WeightsMismatchError, match="outputs differ by up to 0.1 "):
            BertClassifier.load(tmp_path, verify=True)


def test_errors_do_not_steer_the_terminal_with_names_from_files(fitted, tmp_path):
    fitted.save(tmp_path)
    path = tmp_path / "kbert.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "estimator": "\x1b[2JBertTagger"}))
    with pytest.raises(WeightsMismatchError) as error:
        BertClassifier.load(tmp_path)
    assert "\x1b" not in str(error.value) and r"\x1b[2JBertTagger" in str(error.value)
