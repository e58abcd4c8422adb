"""A tag for every word, at any length; spans of texts; entities."""

import copy
import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV

from kbert import BertTagger
from kbert.data.tags import tag_lists, word_column
from kbert.errors import LabelsWarning, MissingTextWarning, WeightsMismatchError
from kbert.metrics import entity_f1, entity_scores
from kbert.tasks import words as words_of_tasks
from kbert.tasks.bio import legal_tags

pytestmark = pytest.mark.slow

COLOURS, FILLERS = ("red", "blue"), "the a table chair room with was and it this".split()


def rows_of(n, longest=10, seed=0):
    """Words, and tags: a colour and the words up to the next "table" or "chair" are a thing."""
    rng = np.random.default_rng(seed)
    words, tags = [], []
    for _ in range(n):
        row, marks = [], []
        while len(row) < rng.integers(4, longest):
            if rng.random() < 0.3:
                row += [rng.choice(COLOURS), rng.choice(["table", "chair"])]
                marks += ["B-THING", "I-THING"]
            else:
                row.append(rng.choice(FILLERS))
                marks.append("O")
        words.append([str(word) for word in row])
        tags.append(marks)
    return words, tags


@pytest.fixture(scope="module")
def make(quick_folder):
    """A function that makes a BertTagger on toy weights that learn."""
    values = dict(weights=quick_folder, max_length=32, epochs=16, batch_size=16, learning_rate=3e-3, dtype="float32")
    values |= dict(head_start="random")  # a probe alone finds all of these entities
    return lambda **changes: BertTagger(**{**values, "random_state": 0, **changes})


@pytest.fixture(scope="module")
def things():
    return rows_of(160)


@pytest.fixture(scope="module")
def fitted(make, things):
    return make().fit(*things)


@pytest.mark.backend
def test_tags_are_learned_and_as_many_as_words(fitted, things):
    words, tags = rows_of(60, seed=1)
    predicted = fitted.predict(words)
    assert [len(row) for row in predicted] == [len(row) for row in words]
    assert fitted.score(words, tags) == entity_scores(tags, predicted).f1 > 0.9
    assert fitted.classes_.tolist() == ["B-THING", "I-THING", "O"]
    assert fitted.n_iter_ == 16 and not hasattr(fitted, "n_features_in_")


@pytest.mark.compiles
@pytest.mark.backend
def test_a_long_document_is_tagged_as_its_sentences_are(make):
    # A rule of single words, which so small a model learns at all positions of a window.
    def colours(rows):
        return [["B-COLOUR" if word in COLOURS else "O" for word in row] for row in rows]

    training, words = rows_of(120, longest=60)[0], rows_of(500, seed=2)[0]
    learned = make(epochs=6).fit(training, colours(training))
    document = sum(words, [])
    assert len(document) > 3000
    whole, alone = learned.predict([document])[0], sum(learned.predict(words), [])
    assert len(whole) == len(document)
    truth = sum(colours(words), [])
    scores = [entity_scores([truth], [found]).f1 for found in (whole, alone)]
    assert min(scores) > 0.95 and abs(scores[0] - scores[1]) < 0.005


def test_probabilities(fitted, things):
    probabilities = fitted.predict_proba(things[0][:9])
    assert [array.shape for array in probabilities] == [(len(row), 3) for row in things[0][:9]]
    np.testing.assert_allclose(np.concatenate(probabilities).sum(axis=1), 1)
    tags = [fitted.classes_[array.argmax(axis=1)].tolist() for array in probabilities]
    assert tags == copy.copy(fitted).set_params(decoding="argmax").predict(things[0][:9])


@pytest.mark.parametrize(
    "container",
    [
        tuple,
        pd.Series,
        lambda rows: pd.DataFrame({"words": rows}),
        lambda rows: [tuple(row) for row in rows],
        lambda rows: [np.array(row) for row in rows],
        lambda rows: pd.Series(rows, index=range(len(rows), 0, -1)).to_numpy(),
    ],
)
def test_every_container_gives_the_same(make, things, container):
    words, tags = things[0][:32], things[1][:32]
    expected = make(epochs=1).fit(words, tags).predict_proba(words)
    found = make(epochs=1).fit(container(words), container(tags)).predict_proba(container(words))
    for one, other in zip(expected, found, strict=True):
        assert np.array_equal(one, other)


def test_row_order_and_neighbours_do_not_matter(fitted, things):
    words = [*things[0][:40], [], ["red"], things[0][0] * 12]
    whole = fitted.predict_proba(words)
    order = np.random.default_rng(0).permutation(len(words))
    shuffled = fitted.predict_proba([words[i] for i in order])
    for place, i in enumerate(order):
        np.testing.assert_allclose(shuffled[place], whole[i], atol=1e-5)
        np.testing.assert_allclose(fitted.predict_proba([words[i]])[0], whole[i], atol=1e-5)


def test_rows_and_words_without_content_get_their_place(fitted):
    words = [["red", "", "chair"], [], ["\u200b"], [None, "the"]]
    with pytest.warns(MissingTextWarning, match="2 of the words in 4 rows are empty"):
        assert [len(row) for row in fitted.predict(words)] == [3, 0, 1, 2]
    with warnings.catch_warnings():
        warnings.simplefilter("error", MissingTextWarning)
        assert fitted.predict([[], []]) == [[], []]


# --- Entities and texts


def test_entities_of_words(fitted):
    table = fitted.entities([["it", "was", "a", "red", "table"], ["the"], ["blue", "chair", "and", "red", "chair"]])
    assert table.columns.tolist() == ["row", "start", "end", "word_start", "word_end", "text", "label", "score"]
    assert table[["row", "word_start", "word_end", "text"]].values.tolist() == [
        [0, 3, 5, "red table"],
        [2, 0, 2, "blue chair"],
        [2, 3, 5, "red chair"],
    ]
    assert table[["start", "end"]].values.tolist() == [[9, 18], [0, 10], [15, 24]]
    assert table.label.eq("THING").all() and table.score.between(0.5, 1).all()
    assert fitted.entities([["the"]]).columns.tolist() == table.columns.tolist()


def test_entities_have_the_index_of_their_rows(fitted):
    rows = [["it", "was", "a", "red", "table"], ["the"], ["blue", "chair", "and", "red", "chair"]]
    assert fitted.entities(rows).index.tolist() == [0, 1, 2]
    series = pd.Series(rows, index=pd.Index(["a", "b", "c"], name="id"))
    for X in (series, series.to_frame()):
        table = fitted.entities(X)
        assert table.index.tolist() == ["a", "c", "c"] and table.index.name == "id"
        assert table.row.tolist() == [0, 2, 2]
        pd.testing.assert_frame_equal(table.reset_index(drop=True), fitted.entities(rows))
    assert fitted.entities(series[["b"]]).index.tolist() == []


@pytest.fixture(scope="module")
def marked(things):
    """The same rows as texts, and their spans in characters."""
    texts, spans = [], []
    for words, tags in zip(*things, strict=True):
        text, marks = "", []
        for word, tag in zip(words, tags, strict=True):
            start = len(text) + bool(text)
            text = f"{text} {word}" if text else word
            if tag == "B-THING":
                marks.append((start, len(text), "THING"))
            elif tag == "I-THING":
                marks[-1] = (marks[-1][0], len(text), "THING")
        texts.append(text)
        spans.append(marks)
    return texts, spans


@pytest.mark.thorough
def test_texts_and_spans_train_the_same_model(make, fitted, things, marked):
    texts, spans = marked
    by_spans = make().fit(texts, spans)
    for one, other in zip(by_spans.predict_proba(things[0]), fitted.predict_proba(things[0]), strict=True):
        assert np.array_equal(one, other)
    assert by_spans.score(texts, spans) == fitted.score(*things)
    dicts = [[dict(zip(("start", "end", "label"), span, strict=True)) for span in row] for row in spans]
    assert by_spans.score(texts, dicts) == by_spans.score(texts, spans)
    predicted = by_spans.predict(texts)
    assert np.mean([one == other for one, other in zip(predicted, spans, strict=True)]) > 0.9


def test_words_and_spans_have_their_accents(fitted):
    # Uncased models drop combining marks, which then belong to no piece.
    text = "a re\u0301d table\u0301\u0302 and  हूं"
    assert fitted.tokenizer_.split_words([text])[0] == [["a", "re\u0301d", "table\u0301\u0302", "and", "हूं"]]
    spans = fitted.predict([text])
    assert [text[start:end] for start, end, _ in spans[0]] == ["re\u0301d table\u0301\u0302"]
    assert fitted.entities([text]).text.tolist() == ["re\u0301d table\u0301\u0302"]
    assert fitted.score([text], spans) == 1 and entity_f1(spans, fitted.predict([text])) == 1


def test_spans_are_slices_of_their_texts(fitted):
    texts = ["  It was a RED   table and a blue chair", "", "\u200bred\tchair"]
    with pytest.warns(MissingTextWarning, match="1 of the texts in 3 rows is empty"):
        spans = fitted.predict(texts)
    found = [[text[start:end] for start, end, _ in row] for text, row in zip(texts, spans, strict=True)]
    assert found == [["RED   table", "blue chair"], [], ["red\tchair"]]
    table = fitted.entities(["a red table"])
    assert table[["start", "end", "text"]].values.tolist() == [[2, 11, "red table"]]


@pytest.mark.parametrize(
    ("spans", "message"),
    [
        ([(0, 3)], r"holds \(0, 3\), which is no span. Give \(start, end, label\), or a dict with these keys"),
        ([(0.5, 3.0, "X")], "holds .*0.5.* which is no span"),
        ([{"begin": 0, "end": 3, "label": "X"}], "holds {'begin': 0, 'end': 3, 'label': 'X'}, which is no span"),
        ((0, 3, "X"), r"holds 0, which is no span. Put the spans of a row in a list: \[\(0, 3, 'X'\)\]"),
        (["O", "B-X", "O"], "holds 'O', which is no span. Tags, one for each word, go with lists of words as X"),
        ("[(2, 5, 'X')]", "Give a list for each row.*read again by ast.literal_eval"),
        ([(2, 1, "X")], "start is to be at least 0 and less than end"),
        ([(0, 99, "X")], "has 11 characters"),
        ([(0, 5, "X"), (2, 11, "Y")], "overlap"),
        ([(1, 2, "X")], "holds no word"),
        ([(2, 4, "X"), (4, 5, "Y")], "shares the word 'red'"),
        ("X", "Give a list for each row"),
    ],
)
def test_spans_that_cannot_be_used_are_named(make, spans, message):
    with pytest.raises(ValueError, match=f"y: row 1.*{message}"):
        make().fit(["a red table", "a red table"], [[], spans])


def test_positions_of_spans_may_be_whole_floats(make):
    # As pandas has a column of whole numbers in which one is missing.
    texts = ["a red table"] * 4
    spans, floats = ([[{"start": number(2), "end": number(5), "label": "X"}]] * 4 for number in (int, float))
    models = [make(epochs=1).fit(texts, of_type) for of_type in (spans, floats)]
    assert np.array_equal(models[0].predict_proba(texts)[0], models[1].predict_proba(texts)[0])


def test_a_table_without_entities_has_the_types_of_one_with_entities(fitted):
    found = fitted.entities([["a", "red", "table"]])
    none = fitted.entities(pd.Series([[]], index=["k"]))
    assert len(found) and not len(none)
    assert none.dtypes.to_dict() == found.dtypes.to_dict()
    assert pd.concat([found, none]).dtypes.to_dict() == found.dtypes.to_dict()


def test_lists_of_words_that_a_file_holds_as_text_are_refused_when_predicting_too(fitted):
    with pytest.raises(ValueError, match="The rows of X are lists of words written as strings"):
        fitted.predict(["['a', 'red', 'table']", "['a']"])
    with pytest.raises(ValueError, match=r"X = \[re.findall\("):
        fitted.predict(["['a' 'red' 'table']"])  # NumPy's
    for text in ("[1] a red table", "[a], a table", "[2019]", "(1, 2)"):  # which are texts
        fitted.predict([text])


def test_spans_are_widened_to_words(fitted):
    words = word_column(["a red-hot table"]).split(fitted.tokenizer_.split_words)
    assert words.words == [["a", "red", "-", "hot", "table"]]
    assert tag_lists([[(3, 5, "X"), (6, 8, "Y")]], words) == [["O", "B-X", "O", "B-Y", "O"]]


def test_spans_that_were_widened_are_told_once(make):
    texts = pd.Series(["a red table", "the room", "red-hot chair", "a blue room"] * 8, index=range(100, 132))
    spans = [[(3, 9, "X")], [(0, 3, "X")], [(0, 8, "X"), (8, 13, "X")], [(1, 7, "X")]] * 8
    with pytest.warns(LabelsWarning) as found:
        tagger = make(epochs=1).fit(texts, pd.Series(spans, index=texts.index))
    (warning,) = [one for one in found if issubclass(one.category, LabelsWarning)]
    assert str(warning.message).startswith(
        "8 of 40 spans of y (20%) begin or end inside a word, and were widened to whole words, since a word has one "
        "tag: row 0 (index 100) 'ed tab' to 'red table'; row 4"
    )
    assert "and 5 more. If these are not meant" in str(warning.message) and warning.filename == __file__
    # Not the white space at the end of a span, nor when it is scored.
    with warnings.catch_warnings():
        warnings.simplefilter("error", LabelsWarning)
        tagger.score(texts, spans)


# --- Decoding


def test_legal_tags_against_all_paths():
    classes = np.array(["B-X", "B-Y", "I-X", "I-Y", "O"], dtype=object)
    rng = np.random.default_rng(0)

    def legal(path):
        before = "O"
        for i in path:
            tag = classes[i]
            if tag[0] == "I" and (before[0] == "O" or before[1:] != tag[1:]):
                return False
            before = tag
        return True

    paths = np.array([path for path in np.ndindex(*[5] * 5) if legal(path)])
    for _ in range(30):
        scores = np.log(rng.dirichlet(np.ones(5), size=5))
        best = paths[scores[np.arange(5), paths].sum(axis=1).argmax()]
        assert legal_tags(scores, classes).tolist() == best.tolist()


@pytest.mark.parametrize(
    ("tags", "hint"),
    [
        ({"B-THING": "B-THING", "I-THING": "L-THING"}, "'L-THING' is a tag of BIOES or BILOU. Convert"),
        ({"B-THING": "THING", "I-THING": "THING"}, "'THING' stands beside 'O'. In BIO the first word"),
        ({"O": "_"}, "'_' stands beside 'B-THING'. In BIO"),
        ({"B-THING": "ADJ", "I-THING": "NOUN", "O": "X"}, ""),
        ({"B-THING": "COMMA", "I-THING": "PERIOD"}, ""),  # marks of punctuation never stand side by side
        ({"B-THING": "N", "I-THING": "O", "O": "V"}, ""),  # in some sets of parts of speech O is a pronoun
    ],
)
def test_tags_that_seem_to_mark_entities_and_do_not_are_warned_of(make, things, tags, hint):
    words = [[*row, *["the"] * 8] for row in things[0][:8]]  # most words are outside, as in texts
    of_bio = [[tags.get(tag, tag) for tag in [*row, *["O"] * 8]] for row in things[1][:8]]
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always", LabelsWarning)
        tagger = make(epochs=1).fit(words, of_bio)
    told = [str(warning.message) for warning in told if warning.category is LabelsWarning]
    assert len(told) == bool(hint) and all("mark no entities" in text and hint in text for text in told)
    # Spans, which `predict` gives for texts, are read as the tags of their words.
    texts = [" ".join(row) for row in words]
    assert tagger.score(texts, tagger.predict(texts)) == 1
    report = tagger.report(texts, tagger.predict(texts), explain=False).as_dict()
    assert report["score"]["value"] == 1


def test_decoding_bio_never_begins_inside(fitted, monkeypatch):
    def predict_words(_, words, *__):
        return np.random.default_rng(words.n_words).normal(size=(words.n_words, 3))

    monkeypatch.setattr(words_of_tasks, "predict_words", predict_words)
    words = rows_of(60, seed=3)[0]

    def illegal(rows):
        return sum(row[0] == "I-THING" or ("O", "I-THING") in zip(row, row[1:], strict=False) for row in rows)

    assert illegal(copy.copy(fitted).set_params(decoding="argmax").predict(words)) > 30
    found = copy.copy(fitted).set_params(decoding="bio").predict(words)
    assert illegal(found) == 0 and found == fitted.predict(words)
    assert fitted.classes_[fitted._results(words)[1]].tolist() == sum(found, [])  # what an export compares


@pytest.mark.parametrize(
    ("tag", "decoding"),
    [
        (lambda tag, _: tag, "bio"),
        (lambda tag, _: tag[-5:], "argmax"),
        (lambda tag, i: tag if i else "I-THING", "argmax"),
    ],
    ids=["BIO", "no BIO", "an I- at the start"],
)
def test_decoding_is_that_of_the_tags(make, things, tmp_path, tag, decoding):
    words, tags = things[0][:48], [[tag(t, i) for i, t in enumerate(row)] for row in things[1][:48]]
    tagger = make(learning_rate=1e-9, epochs=1).fit(words, tags)  # tags stay as random as the head
    assert tagger.decoding_ == decoding
    tagger.save(tmp_path / "saved")
    loaded = BertTagger.load(tmp_path / "saved")
    assert loaded.decoding_ == decoding and loaded.predict(words) == tagger.predict(words)
    other = copy.copy(tagger).set_params(decoding="argmax")
    assert (tagger.predict(words) == other.predict(words)) == (decoding == "argmax")


def test_what_decoding_stands_for_follows_the_rows_of_each_fit(make, things):
    words, tags = list(things[0][:48]), [list(row) for row in things[1][:48]]
    tagger = make(decoding="argmax", epochs=1, warm_start=True).fit(words, tags)
    assert tagger.decoding_ == "bio"  # which "auto" would be
    slips = [["I-THING", *row[1:]] for row in tags]
    assert tagger.fit(words, slips).decoding_ == "argmax" and tagger.fit(words, tags).decoding_ == "bio"
    assert tagger.fit(words * 3, [slips[0], *(tags * 3)[1:]]).decoding_ == "bio"  # 1 of 144 is a slip
    assert tagger.fit(words, [slips[0], *tags[1:]]).decoding_ == "bio"  # and so is 1 of 48
    # Of the rows with an entity nearly all begin with I- in IOB1, however few they are.
    none = [["O"] * len(row) for row in tags[:-4]]
    assert tagger.fit(words, [*none, *tags[-4:]]).decoding_ == "bio"
    assert tagger.fit(words, [*none, *slips[-4:]]).decoding_ == "argmax"


def test_decoding_bio_where_no_tag_begins_an_entity():
    classes = np.array(["B-LOC", "I-LOC", "I-PER", "O"], dtype=object)
    scores = np.log([[0.1, 0.2, 0.6, 0.1], [0.1, 0.6, 0.2, 0.1], [0.1, 0.1, 0.2, 0.6]])
    assert classes[legal_tags(scores, classes)].tolist() == ["I-PER", "I-PER", "O"]  # I-LOC must follow B-LOC


def test_decoding_bio_tells_of_tags_that_it_never_gives(make, things):
    words, tags = things[0][:8], [list(row) for row in things[1][:8]]
    for row in tags:
        row[:] = ["I" + tag[1:] if tag != "O" else tag for tag in row]
    tags[0][tags[0].index("I-THING")] = "B-THING"
    n = sum("I-THING" in row for row in tags[1:])
    wanted = rf'y: {n} of 8 rows have an I- tag.*decoding="bio" never gives.*iob1_to_bio\(y\)'
    with pytest.warns(LabelsWarning, match=wanted):
        make(decoding="bio", epochs=1).fit(words, tags)


def test_tags_that_are_no_bio_tags(make, things):
    words = things[0]
    tags = [["colour" if word in COLOURS else "other" for word in row] for row in words]
    learned = make(epochs=4).fit(words, tags)
    assert learned.score(words, tags) > 0.95
    found = np.mean(
        [a == b for t, p in zip(tags, learned.predict(words), strict=True) for a, b in zip(t, p, strict=True)]
    )
    assert learned.score(words, tags) == pytest.approx(found)
    assert learned.predict(["a red table"]) == [[(0, 1, "other"), (2, 5, "colour"), (6, 11, "other")]]
    with pytest.raises(ValueError, match="entities needs BIO tags"):
        learned.entities(words)


# --- Habits


def test_early_stopping_uses_the_score_of_entities(make, things):
    words, tags = things
    learned = make(early_stopping=True, n_iter_no_change=2, validation_fraction=0.2).fit(words, tags)
    assert max(learned.history_["val_score"]) > 0.8
    tagger = make(epochs=3).fit(words[:100], tags[:100], eval_set=(words[100:], tags[100:]))
    assert tagger.history_["val_score"][-1] == pytest.approx(tagger.score(words[100:], tags[100:]))


def test_sample_weight_counts(make, things):
    words, tags = things
    wrong = np.arange(160) % 2 == 0
    flipped = [["O"] * len(row) if w else row for row, w in zip(tags, wrong, strict=True)]
    assert make(epochs=25).fit(words, flipped, np.where(wrong, 0, 1)).score(words, tags) > 0.9


def test_it_goes_on(make, things):
    learned = make(warm_start=True).fit(*things)
    before = learned.score(*things)
    learned.set_params(epochs=1, learning_rate=1e-6).fit(things[0][:8], [["O"] * len(row) for row in things[0][:8]])
    assert learned.score(*things) == pytest.approx(before, abs=0.02) and len(learned.classes_) == 3


@pytest.mark.backend
def test_copies_and_saved_ones_predict_the_same(fitted, things, tmp_path):
    words = things[0]
    assert pickle.loads(pickle.dumps(fitted)).predict(words) == fitted.predict(words)
    fitted.save(tmp_path / "saved")
    loaded = BertTagger.load(tmp_path / "saved", verify=True)
    for one, other in zip(loaded.predict_proba(words), fitted.predict_proba(words), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-6)
    assert clone(loaded).get_params() == loaded.get_params()
    (tmp_path / "saved" / "kbert.json").unlink()
    assert BertTagger.load(tmp_path / "saved").classes_.tolist() == fitted.classes_.tolist()


@pytest.mark.parity
def test_transformers_opens_it_with_the_same_logits(fitted, things, tmp_path):
    transformers = pytest.importorskip("transformers", reason="pip install 'kbert-learn[parity]'")
    torch = pytest.importorskip("torch", reason="pip install 'kbert-learn[parity]'")
    fitted.save(tmp_path / "saved")
    model = transformers.BertForTokenClassification.from_pretrained(tmp_path / "saved").eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "saved")
    assert model.config.id2label == {0: "B-THING", 1: "I-THING", 2: "O"}
    for words in things[0][:10]:
        encoded = tokenizer(words, is_split_into_words=True, return_tensors="pt")
        with torch.no_grad():
            probabilities = torch.softmax(model(**encoded).logits[0].double(), dim=-1).numpy()
        first = [encoded.word_ids().index(i) for i in range(len(words))]
        np.testing.assert_allclose(fitted.predict_proba([words])[0], probabilities[first], atol=1e-5)


def test_what_transformers_saved_is_opened(things, tmp_path):
    transformers = pytest.importorskip("transformers", reason="pip install 'kbert-learn[parity]'")
    names = {0: "O", 1: "B-X", 2: "I-X"}
    config = transformers.BertConfig(
        vocab_size=7, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32, id2label=names
    )
    transformers.BertForTokenClassification(config).save_pretrained(tmp_path)
    (tmp_path / "vocab.txt").write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "red"]))
    learned = BertTagger.load(tmp_path)
    assert learned.classes_.tolist() == ["O", "B-X", "I-X"]
    assert [len(row) for row in learned.predict([["the", "red"], ["what"]])] == [2, 1]


@pytest.mark.thorough
def test_a_grid_search_scores_entities(make, things):
    search = GridSearchCV(make(), {"epochs": [1, 8]}, cv=2).fit(things[0], things[1])
    assert search.best_params_ == {"epochs": 8} and search.best_score_ > 0.8
    assert len(search.predict(things[0][:3])) == 3


def test_a_random_start_learns_its_vocabulary(things):
    learned = BertTagger("tiny", weights=None, epochs=1, random_state=0, dtype="float32").fit(*things)
    assert learned.tokenizer_.token_to_id("chair") is not None


@pytest.mark.parametrize(
    ("X", "y", "error", "message"),
    [
        ([], [], ValueError, "X is empty"),
        ([["a"], "b"], [["O"], ["O"]], ValueError, "row 1 is 'b', and other rows are lists"),
        ([["a", 3]], [["O", "O"]], TypeError, "word 1 of row 0 is 3, of type int"),
        ([["a", "b"], ["c"]], [["O", "O"], ["O", "B-X"]], ValueError, "row 1 has 2 tags, and X has 1 words"),
        ([["a"], ["b"]], [["O"]], ValueError, "X has 2 rows and y has 1"),
        ([["a"], ["b"]], [["O"], [3]], TypeError, "tag 0 of row 1 is the number 3"),
        ([["a"], ["b"]], [["O"], [None]], TypeError, "tag 0 of row 1 is None"),
        ([["a"], ["b"]], [["O"], ["O"]], ValueError, r"at least two tags to tell apart, and y holds \['O'\]"),
        ([["O", "B-X"]] * 2, [["Ada", "went"]] * 2, ValueError, r"Words go first: tagger.fit\(y, X\)"),
        ([["O", "I-X"]] * 2, [["Ada", "went"]] * 2, ValueError, r"X holds tags .'I-X'.*: tagger.fit\(y, X\)"),
        ([["a"], ["b"]], None, ValueError, "requires y to be passed"),
        ([["a"], ["b"]], [["O"], "B-X"], ValueError, "row 1 is 'B-X'. Give a list for each row"),
        ("a text", [["O"]], ValueError, "X is a single str"),
        (
            pd.DataFrame({"a": [["x"]], "b": [["y"]]}),
            [["O"]],
            ValueError,
            r"X has 2 columns \(.a., .b.\), where 1 is expected: choose it, as in df\[.a.\]",
        ),
        ([7], [["O"]], TypeError, "row 0 is 7, of type int. Give a list of words"),
        (["['a', 'b']"] * 2, [["O", "B-X"]] * 2, ValueError, r"written as strings.*X = \[ast.literal_eval\(row\)"),
    ],
)
def test_what_cannot_be_used_is_named(make, X, y, error, message):
    with pytest.raises(error, match=message):
        make().fit(X, y)


def test_a_lone_surrogate_is_named_with_its_row_and_word(make, fitted):
    words, tags = [["a", "a"], ["a", "b\ud83d"]], [["O", "B-X"], ["O", "O"]]
    with pytest.raises(ValueError, match="^X: word 1 of row 1 holds a lone surrogate"):
        make().fit(words, tags)
    with pytest.raises(ValueError, match="^eval_set's X: word 1 of row 1 holds a lone surrogate"):
        make().fit([["a", "a"]], [["O", "B-X"]], eval_set=(words, tags))
    with pytest.raises(ValueError, match="^X: word 1 of row 1 holds a lone surrogate"):
        fitted.predict(words)
    with pytest.raises(ValueError, match=r"^X: row 1 \(index 9\) holds a lone surrogate"):
        fitted.predict(pd.Series(["fine", "b\ud83d"], index=[0, 9], dtype=object))
    with pytest.raises(ValueError, match="^y: tag 0 of row 1 holds a lone surrogate"):
        make().fit([["a"], ["b"]], [["O"], ["B-\ud83d"]])


def test_a_column_of_another_name_is_refused(make, things, tmp_path):
    frame = pd.DataFrame({"w": things[0][:32]})
    learned = make(epochs=1, warm_start=True).fit(frame, things[1][:32])
    assert learned.feature_names_in_.tolist() == ["w"]
    assert len(learned.predict(frame)) == len(learned.predict(frame.w)) == 32
    other = frame.rename(columns={"w": "zz"})
    uses = (
        lambda: learned.predict(other),
        lambda: learned.predict_proba(other),
        lambda: learned.entities(other),
        lambda: learned.score(other, things[1][:32]),
        lambda: learned.fit(other, things[1][:32]),
        lambda: make().fit(frame, things[1][:32], eval_set=(other, things[1][:32])),
    )
    for use in uses:
        with pytest.raises(
            ValueError, match=r"feature names should match those that were passed during fit.*\n.*\['zz'\]"
        ):
            use()


def test_rows_without_words_are_not_split_off(make, things):
    words, tags = [*things[0][:16], *[[]] * 48], [*things[1][:16], *[[]] * 48]
    learned = make(epochs=1, early_stopping=True, validation_fraction=0.125).fit(words, tags)
    assert np.isfinite(learned.history_["val_loss"]).all()
    with pytest.raises(ValueError, match="early_stopping splits validation_fraction=0.1 of 1 rows off"):
        make(early_stopping=True).fit([["a", "b"], *[[]] * 7], [["O", "B-X"], *[[]] * 7])


def test_an_eval_set_that_does_not_fit_is_named(make, things):
    words, tags = things[0][:8], things[1][:8]
    for eval_set, message in (
        ([(words, tags), (words, tags)], "got a list with 2 such"),
        ((words,), r"eval_set must be a pair \(X, y\)"),
        ((words, tags[:3]), "eval_set's X has 8 rows and eval_set's y has 3 labels"),
        (([["a"]], [["O", "O"]]), "eval_set's y: row 0 has 2 tags, and eval_set's X has 1 words"),
        (([["a"], "b"], [["O"], ["O"]]), "eval_set's X: row 1 is 'b'"),
        (([[]], [[]]), "No row of eval_set's X has a word"),
    ):
        with pytest.raises(ValueError, match=message):
            make().fit(words, tags, eval_set=eval_set)


def test_empty_words_are_told_at_the_users_line(fitted):
    for use in (fitted.predict, fitted.predict_proba, fitted.entities, lambda X: fitted.score(X, [["O"]])):
        with pytest.warns(MissingTextWarning) as told:
            use([[""]])
        assert [warning.filename for warning in told if warning.category is MissingTextWarning] == [__file__]


def test_tags_that_fit_did_not_see(fitted, things):
    words, tags = things[0][:2], [["B-NEW"] * len(row) for row in things[0][:2]]
    assert fitted.score(words, tags) == 0
    with pytest.raises(ValueError, match=r"eval_set's y holds tags that y of fit did not: \['B-NEW'\]"):
        clone(fitted).fit(*things, eval_set=(words, tags))


def test_a_damaged_head_is_refused(fitted, tmp_path):
    fitted.save(tmp_path / "saved")
    path = tmp_path / "saved" / "kbert.json"
    path.write_text(path.read_text().replace('"I-THING",', ""))
    with pytest.raises(WeightsMismatchError, match="holds 2 tags and a head of 3 outputs"):
        BertTagger.load(tmp_path / "saved")


def test_early_stopping_watches_the_score_of_the_decoding_in_use(make, things):
    words, tags = things[0][:48], things[1][:48]
    # A rate so low that tags stay as random as the head, and I- tags stand where none may.
    tagger = make(learning_rate=1e-9, epochs=1, early_stopping=True)
    tagger.fit(words, tags, eval_set=(words, tags))
    own = tagger.score(words, tags)
    assert tagger.history_["val_score"] == pytest.approx([own])
    assert tagger.set_params(decoding="argmax").score(words, tags) != pytest.approx(own)


def test_weights_on_rows_without_words_alone(make):
    X, y, weight = [[], ["red", "table"]] * 8, [[], ["X", "O"]] * 8, [1, 0] * 8
    with pytest.raises(ValueError, match="sample_weight is 0 for all rows that have a word"):
        make(epochs=1).fit(X, y, sample_weight=weight)
    tagger = make(epochs=1).fit(X, y)
    for rows, weights in ((([[]], [[]]), None), ((X[:2], y[:2]), [1, 0])):
        with pytest.raises(ValueError, match="There is no word to score"):
            tagger.score(*rows, sample_weight=weights)


def test_only_the_ratios_of_weights_count(make, things):
    words, tags = (part[:30] for part in things)
    given = dict(head_start="probe", learning_rate=1e-30, weight_decay=0.0, epochs=1)
    one, other = (make(**given).fit(words, tags, sample_weight=np.full(30, weight)) for weight in (1e-3, 1e3))
    for row, same in zip(one.predict_proba(words[:3]), other.predict_proba(words[:3]), strict=True):
        np.testing.assert_allclose(row, same, atol=1e-5)
