"""Vectors of texts and of words: the chosen layers, in the order of the rows, inside scikit-learn's pipelines."""

import pickle

import numpy as np
import pandas as pd
import pytest
from sklearn import config_context
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline

from kbert import BertVectorizer
from kbert.data import tags
from kbert.model import LAYER_CHOICES

TEXTS = ["the table was great", "a chair", "", "this room with the sad table and it was awful " * 2]


@pytest.fixture(scope="module")
def make(two_layer_folder):
    """A function that makes a BertVectorizer on toy weights of two layers."""
    values = dict(weights=two_layer_folder, max_length=32, dtype="float32")
    return lambda **changes: BertVectorizer(**{**values, **changes})


@pytest.fixture(scope="module")
def fitted(make, reviews):
    return make().fit(reviews.text)


pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::kbert.errors.MissingTextWarning")]


def test_iterables_that_are_read_once_are_taken_as_count_vectorizer_takes_them(make, fitted, reviews):
    texts = reviews.text[:6].tolist()
    expected = fitted.transform(texts)
    assert np.array_equal(make().fit(iter(texts)).transform(text for text in texts), expected)
    assert np.array_equal(make().fit_transform(text for text in texts), expected)
    words = make(level="word").fit_transform(text.split() for text in texts)
    assert [len(row) for row in words] == [len(text.split()) for text in texts]
    model = make_pipeline(make(), LogisticRegression()).fit(iter(texts), reviews.label[:6])
    assert len(model.predict(iter(texts))) == 6


@pytest.mark.parametrize("as_X", [lambda series: series, pd.Series.to_frame])
def test_tables_of_vectors_have_the_index_of_X(make, reviews, as_X):
    X = as_X(reviews.text[:3].set_axis(["a", "b", "c"]))
    vectorizer = make().set_output(transform="pandas").fit(X)
    for table in (vectorizer.transform(X), make().set_output(transform="pandas").fit_transform(X)):
        assert table.index.tolist() == ["a", "b", "c"] and table.columns[0] == "bertvectorizer0"
        assert np.array_equal(table, make().fit_transform(X))


def test_what_set_output_asked_for_is_saved(make, reviews, tmp_path):
    vectorizer = make().set_output(transform="pandas").fit(reviews.text[:3])
    vectorizer.save(tmp_path / "tables")
    pd.testing.assert_frame_equal(
        BertVectorizer.load(tmp_path / "tables").transform(reviews.text[:3]), vectorizer.transform(reviews.text[:3])
    )
    vectorizer.set_output(transform="default").save(tmp_path / "arrays")
    assert type(BertVectorizer.load(tmp_path / "arrays").transform(reviews.text[:3])) is np.ndarray


@pytest.mark.parity
@pytest.mark.parametrize("layers", LAYER_CHOICES)
@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_vectors_are_those_of_transformers(bert_tiny_folder, layers, pooling):
    transformers = pytest.importorskip("transformers", reason="pip install 'kbert-learn[parity]'")
    torch = pytest.importorskip("torch", reason="pip install 'kbert-learn[parity]'")
    model = transformers.BertModel.from_pretrained(bert_tiny_folder, add_pooling_layer=False).eval()
    vectorizer = BertVectorizer(weights=bert_tiny_folder, layers=layers, pooling=pooling, dtype="float32").fit(TEXTS)
    hidden = []
    for text in TEXTS:
        ids = torch.tensor([vectorizer.tokenizer_.encode(text).ids])
        with torch.no_grad():
            states = [state[0].numpy() for state in model(ids, output_hidden_states=True).hidden_states]
        hidden.append(states)
    last_four = [states[1:][-4:] for states in hidden]
    chosen = {
        "embeddings": [states[0] for states in hidden],
        "second_to_last": [states[-2] for states in hidden],
        "last": [states[-1] for states in hidden],
        "sum_last_4": [sum(states) for states in last_four],
        "concat_last_4": [np.concatenate(states, axis=1) for states in last_four],
        "sum_all": [sum(states[1:]) for states in hidden],
    }[layers]
    expected = [state.mean(axis=0) if pooling == "mean" else state[0] for state in chosen]
    np.testing.assert_allclose(vectorizer.transform(TEXTS), expected, atol=3e-5, rtol=1e-5)


@pytest.mark.backend
def test_a_row_alone_gets_what_it_gets_among_others(fitted, reviews):
    texts = reviews.text[:40].tolist() + TEXTS
    vectors = fitted.transform(texts)
    assert vectors.shape == (44, 32) and vectors.dtype == np.float32
    order = np.random.default_rng(0).permutation(44)
    np.testing.assert_allclose(fitted.transform([texts[i] for i in order]), vectors[order], atol=1e-5)
    np.testing.assert_allclose(fitted.transform(texts[5:6]), vectors[5:6], atol=1e-5)


@pytest.mark.parametrize("container", [list, tuple, np.array, pd.Series, lambda texts: pd.DataFrame({"t": texts})])
def test_every_container_gives_the_same(fitted, reviews, container):
    texts = reviews.text[:8].tolist()
    assert np.array_equal(fitted.transform(container(texts)), fitted.transform(texts))


def test_choices_of_one_architecture_do_not_share_compiled_code(make, reviews):
    texts = reviews.text[:8]
    vectors = {layers: make(layers=layers).fit_transform(texts) for layers in LAYER_CHOICES}
    assert {layers: array.shape[1] for layers, array in vectors.items() if array.shape[1] != 32} == {
        "concat_last_4": 64
    }
    same = [a for a in vectors for b in vectors if a < b and np.array_equal(vectors[a], vectors[b])]
    # With two layers, the sum of the last four is that of all.
    assert same == ["sum_all"]


@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_normalized_vectors_have_length_1_and_the_same_direction(make, tmp_path, pooling):
    plain = make(pooling=pooling).fit_transform(TEXTS)
    vectorizer = make(pooling=pooling, normalize=True).fit(TEXTS)
    vectors = vectorizer.transform(TEXTS)
    assert np.abs(np.linalg.norm(plain, axis=1) - 1).min() > 0.1
    np.testing.assert_allclose(vectors, plain / np.linalg.norm(plain, axis=1, keepdims=True), atol=1e-6)
    # It belongs to the fit, and is saved with it.
    assert np.array_equal(clone(vectorizer).fit_transform(TEXTS), vectors)
    assert np.array_equal(pickle.loads(pickle.dumps(vectorizer)).transform(TEXTS), vectors)
    vectorizer.save(tmp_path / "saved")
    assert np.array_equal(BertVectorizer.load(tmp_path / "saved", verify=True).transform(TEXTS), vectors)
    assert np.array_equal(vectorizer.set_params(normalize=False).transform(TEXTS), vectors)
    with pytest.raises(TypeError, match="normalize must be True or False"):
        make(normalize=[1]).fit(TEXTS)


def test_vectors_of_words_and_of_rows_in_windows_are_normalized_too(make):
    rows = ["the table and a chair with this room was it great sad happy fine plain", "sad"]
    plain, vectors = (make(level="word", normalize=normalize).fit_transform(rows) for normalize in (False, True))
    for one, other in zip(plain, vectors, strict=True):
        np.testing.assert_allclose(other, one / np.linalg.norm(one, axis=1, keepdims=True), atol=1e-6)
    in_windows = make(max_length=8, long_text="window", normalize=True).fit_transform(rows)
    np.testing.assert_allclose(np.linalg.norm(in_windows, axis=1), 1, atol=1e-6)


def test_the_mean_of_windows(make):
    text = "the table and a chair with this room was it great sad happy fine plain"
    reader = make(max_length=8, long_text="window", stride=4, pooling="cls").fit([text])
    assert len(reader.tokenizer_.encode(text).ids) - 2 == len(text.split())
    words = text.split()
    starts = [*range(0, len(words) - 6, 4), len(words) - 6]
    parts = make(max_length=8, pooling="cls").fit([text]).transform([" ".join(words[s : s + 6]) for s in starts])
    np.testing.assert_allclose(reader.transform([text])[0], parts.mean(axis=0), atol=1e-5)


def test_pairs_and_the_number_of_columns(fitted, make, pairs):
    vectors = make().fit_transform(pairs[["left", "right"]])
    assert vectors.shape == (200, 32)
    assert not np.allclose(vectors, make().fit_transform(pairs[["right", "left"]]))
    with pytest.raises(ValueError, match="X has 2 features, but BertVectorizer is expecting 1"):
        fitted.transform(pairs[["left", "right"]])


# --- Words


ROWS = [
    ["the", "unbelievable", "tables", "were", "great"],
    ["uncharacteristically"],
    [],
    ["Antidisestablish-ed", "a"],
]


@pytest.fixture(scope="module")
def of_words(make):
    """A vectorizer of words. Tests must not change it."""
    return make(level="word").fit(ROWS)


@pytest.mark.parity
@pytest.mark.parametrize("layers", LAYER_CHOICES)
def test_vectors_of_words_are_those_of_transformers_at_first_pieces(bert_tiny_folder, layers):
    transformers = pytest.importorskip("transformers", reason="pip install 'kbert-learn[parity]'")
    torch = pytest.importorskip("torch", reason="pip install 'kbert-learn[parity]'")
    model = transformers.BertModel.from_pretrained(bert_tiny_folder, add_pooling_layer=False).eval()
    vectorizer = BertVectorizer(weights=bert_tiny_folder, level="word", layers=layers, dtype="float32").fit(ROWS)
    tokenizer = vectorizer.tokenizer_
    assert len(tokenizer.encode("uncharacteristically").ids) > 3
    for words, vectors in zip(ROWS, vectorizer.transform(ROWS), strict=True):
        pieces = [tokenizer.encode(word).ids[1:-1] for word in words]
        firsts = np.cumsum([1, *map(len, pieces)])[:-1]
        ids = torch.tensor([[tokenizer.cls_id, *sum(pieces, []), tokenizer.sep_id]])
        with torch.no_grad():
            states = [state[0].numpy() for state in model(ids, output_hidden_states=True).hidden_states]
        expected = {
            "embeddings": states[0],
            "second_to_last": states[-2],
            "last": states[-1],
            "sum_last_4": sum(states[1:][-4:]),
            "concat_last_4": np.concatenate(states[1:][-4:], axis=1),
            "sum_all": sum(states[1:]),
        }[layers][firsts]
        assert vectors.dtype == np.float32
        np.testing.assert_allclose(vectors, expected, atol=3e-5, rtol=1e-5)


@pytest.mark.backend
def test_words_get_the_same_in_any_order_of_the_rows(of_words, reviews, monkeypatch):
    rows = [text.split() for text in reviews.text[:20]] + [[], ["a"] * 70, [], ["the", "", "table"]]
    vectors = of_words.transform(rows)
    assert [array.shape for array in vectors] == [(len(row), 32) for row in rows]
    order = np.random.default_rng(0).permutation(len(rows))
    for i, array in zip(order, of_words.transform([rows[i] for i in order]), strict=True):
        np.testing.assert_allclose(array, vectors[i], atol=1e-5)
    monkeypatch.setattr(tags, "_CHUNK_WORDS", 7)  # some rows at a time
    for array, expected in zip(of_words.transform(rows), vectors, strict=True):
        np.testing.assert_allclose(array, expected, atol=1e-5)


def test_empty_rows_give_no_vectors(of_words):
    assert [array.shape for array in of_words.transform([[], []])] == [(0, 32), (0, 32)]
    assert [array.shape for array in of_words.transform(["", "a table"])] == [(0, 32), (2, 32)]


def test_a_long_row_is_read_in_windows(make):
    words = "the table and a chair with this room was it great sad happy fine plain".split()
    vectors = make(level="word", max_length=8, stride=4).fit_transform([words])[0]
    windows = [range(0, 6), range(4, 10), range(8, 14), range(9, 15)]  # of six words, which have a piece each
    alone = make(level="word", max_length=8).fit_transform([[words[i] for i in window] for window in windows])
    for i in range(len(words)):
        places = [(min(i - w[0], w[-1] - i), -n) for n, w in enumerate(windows) if i in w]
        n = -max(places)[1]
        np.testing.assert_allclose(vectors[i], alone[n][i - windows[n][0]], atol=1e-5)


@pytest.mark.parametrize(
    "container", [tuple, pd.Series, lambda rows: pd.DataFrame({"words": rows}), lambda rows: [tuple(r) for r in rows]]
)
def test_every_container_of_words_gives_the_same(of_words, container):
    for one, other in zip(of_words.transform(container(ROWS)), of_words.transform(ROWS), strict=True):
        assert np.array_equal(one, other)


def test_texts_are_split_into_the_tokenizers_words(of_words):
    texts = ["The table, and a red-hot chair", "it was great"]
    words = of_words.tokenizer_.split_words(texts)[0]
    assert [len(row) for row in words] == [9, 3]
    for one, other in zip(of_words.transform(texts), of_words.transform(words), strict=True):
        assert np.array_equal(one, other)


def test_vectors_of_words_are_no_table(make):
    vectorizer = make(level="word").set_output(transform="pandas").fit(ROWS)
    with pytest.raises(ValueError, match='level="word" gives a list of arrays, one a row, and set_output asks for'):
        vectorizer.transform(ROWS)
    assert len(vectorizer.set_output(transform="default").transform(ROWS)) == len(ROWS)
    with config_context(transform_output="pandas"):
        assert len(vectorizer.transform(ROWS)) == len(ROWS)
        with pytest.raises(ValueError, match="set_output asks for a table \\('pandas'\\)"):
            make(level="word").fit_transform(ROWS)


@pytest.mark.backend
def test_a_vectorizer_of_words_is_saved_pickled_and_cloned(make, tmp_path):
    frame = pd.DataFrame({"words": ROWS})
    vectorizer = make(level="word", layers="concat_last_4", stride=9).fit(frame)
    vectorizer.save(tmp_path / "saved")
    loaded = BertVectorizer.load(tmp_path / "saved", verify=True)
    assert (loaded.level, loaded.stride, loaded.feature_names_in_.tolist()) == ("word", 9, ["words"])
    with pytest.raises(ValueError, match="The feature names should match"):
        loaded.transform(frame.rename(columns={"words": "others"}))
    for other in (loaded, pickle.loads(pickle.dumps(vectorizer)), clone(vectorizer).fit(frame)):
        assert other.get_feature_names_out()[[0, -1]].tolist() == ["bertvectorizer0", "bertvectorizer63"]
        for one, expected in zip(other.transform(ROWS), vectorizer.transform(ROWS), strict=True):
            np.testing.assert_allclose(one, expected, atol=1e-6)


def test_another_level_waits_for_the_next_fit(make):
    vectorizer = make(level="word").fit(["a table"]).set_params(level="text")
    assert vectorizer.transform(["a table"])[0].shape == (2, 32)
    assert vectorizer.fit(["a table"]).set_params(level="word").transform(["a table"]).shape == (1, 32)


def test_a_random_start_learns_its_vocabulary_from_words(reviews):
    words = reviews.text.str.split()
    vectorizer = BertVectorizer("tiny", weights=None, level="word", random_state=0, dtype="float32").fit(words)
    assert vectorizer.tokenizer_.token_to_id("lovely") is not None


# --- scikit-learn


def test_names_and_tables(make, reviews):
    vectorizer = make().set_output(transform="pandas").fit(reviews[["text"]])
    table = vectorizer.transform(reviews[["text"]][50:60])
    assert table.columns.tolist() == vectorizer.get_feature_names_out().tolist()
    assert table.columns[:2].tolist() == ["bertvectorizer0", "bertvectorizer1"]
    assert table.index.tolist() == list(range(50, 60))


def test_in_a_pipeline_with_a_search_over_layers(make, reviews):
    pipeline = make_pipeline(make(), LogisticRegression(max_iter=500))
    search = GridSearchCV(pipeline, {"bertvectorizer__layers": ["embeddings", "last"]}, cv=2)
    search.fit(reviews.text, reviews.label)
    assert search.score(reviews.text, reviews.label) > 0.9
    assert clone(search.best_estimator_).get_params()["bertvectorizer__max_length"] == 32


def test_two_text_columns_side_by_side(make, pairs):
    both = ColumnTransformer([("l", make(), ["left"]), ("r", make(layers="embeddings"), ["right"])])
    both.set_output(transform="pandas")
    table = both.fit_transform(pairs[["left", "right"]])
    assert table.shape == (200, 64)
    assert table.columns[0] == "l__bertvectorizer0" and table.columns[-1] == "r__bertvectorizer31"
    np.testing.assert_allclose(table.iloc[:, :32], make().fit_transform(pairs.left), atol=1e-5)


def test_a_random_start_learns_its_vocabulary(reviews):
    vectorizer = BertVectorizer("tiny", weights=None, random_state=0, dtype="float32").fit(reviews.text)
    assert vectorizer.tokenizer_.token_to_id("lovely") is not None
    again = BertVectorizer("tiny", weights=None, random_state=0, dtype="float32").fit(reviews.text)
    assert np.array_equal(again.transform(reviews.text[:4]), vectorizer.transform(reviews.text[:4]))


@pytest.mark.backend
def test_saved_and_loaded_it_gives_the_same(make, reviews, tmp_path):
    vectorizer = make(layers="concat_last_4", pooling="cls").fit(reviews[["text"]])
    vectorizer.save(tmp_path / "saved")
    loaded = BertVectorizer.load(tmp_path / "saved", verify=True)
    np.testing.assert_allclose(loaded.transform(reviews[["text"]]), vectorizer.transform(reviews[["text"]]), atol=1e-6)
    assert loaded.feature_names_in_.tolist() == ["text"] and loaded.layers == "concat_last_4"
    assert not hasattr(loaded, "history_")


@pytest.mark.parametrize(
    ("name", "value"), [("layers", "first"), ("layers", 3), ("pooling", "max"), ("pooling", None), ("level", "token")]
)
def test_wrong_choices_are_refused(make, name, value):
    with pytest.raises((TypeError, ValueError), match=f"BertVectorizer: {name} must be "):
        make(**{name: value}).fit(TEXTS)
