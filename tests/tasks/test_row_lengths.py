"""How long rows are: the counts of the tokenizer itself, and the sequences that fit and predict compute."""

from types import SimpleNamespace

import numpy as np
import pytest

from kbert import WordPieceTokenizer
from kbert.tasks import Choice, Questions, Regression, SingleLabel, Tagging
from kbert.tasks import texts as texts_module
from kbert.tasks.row_lengths import row_lengths
from kbert.tasks.texts import TextReader
from kbert.tasks.words import WordReader
from kbert.text import build_choices, build_question_windows, build_sequences, build_windows
from kbert.text.words import build_word_windows

LETTERS = list("abcdefgh")


@pytest.fixture(scope="module")
def tokenizer():
    return WordPieceTokenizer.train(["a b c d e f g h"], min_frequency=1)


@pytest.fixture(params=[3, 8192], ids=["some rows at a time", "at once"])
def chunked(request, monkeypatch):
    monkeypatch.setattr(texts_module, "CHUNK_ROWS", request.param)


def random_texts(rng, n, longest=40):
    """Texts of 0 to ``longest`` words; "abc" is three pieces."""
    return [" ".join(rng.choice([*LETTERS, "abc"], rng.integers(0, longest))) for _ in range(n)]


def count(tokenizer, *text):
    """A plain count, special tokens included."""
    return len(tokenizer.encode(*text).ids)


def computed(found):
    """Tokens of all sequences of each row, as the cost of a fit counts them."""
    return np.bincount(found.rows, found.sequences, len(found.whole))


def tokens_by_row(sequences, n_rows):
    """What is computed for each row of sequences that were built."""
    return np.bincount(sequences.rows, sequences.lengths, n_rows)


@pytest.mark.parametrize("long_text", ["truncate", "window"])
@pytest.mark.parametrize(("max_length", "stride"), [(16, None), (16, 5), (9, 1), (128, None)])
def test_texts(tokenizer, chunked, long_text, max_length, stride):
    texts = ["", *random_texts(np.random.default_rng(0), 12)]
    reader = TextReader(max_length=max_length, long_text=long_text, stride=stride)
    found = row_lengths(reader, reader.read(texts), tokenizer)
    assert found.whole.tolist() == [count(tokenizer, text) for text in texts]
    cut = build_sequences(tokenizer, texts, max_length=max_length)
    windows = build_windows(tokenizer, texts, max_length=max_length, stride=stride)
    np.testing.assert_array_equal(found.cut, cut.lengths)
    np.testing.assert_array_equal(found.windowed, tokens_by_row(windows, len(texts)))
    np.testing.assert_array_equal(computed(found), found.windowed if long_text == "window" else found.cut)
    assert (found.whole > max_length).tolist() == cut.truncated.tolist()


@pytest.mark.parametrize("stride", [None, 4])
def test_pairs(tokenizer, chunked, stride):
    rng = np.random.default_rng(1)
    pairs = [("", ""), *zip(random_texts(rng, 12), random_texts(rng, 12), strict=True)]
    firsts, seconds = [a for a, _ in pairs], [b for _, b in pairs]
    reader = TextReader(max_length=17, long_text="window", stride=stride)
    found = row_lengths(reader, reader.read(pairs), tokenizer)
    assert found.whole.tolist() == [count(tokenizer, *pair) for pair in pairs]
    np.testing.assert_array_equal(found.cut, build_sequences(tokenizer, firsts, seconds, 17).lengths)
    windows = build_windows(tokenizer, firsts, seconds, 17, stride)
    np.testing.assert_array_equal(computed(found), tokens_by_row(windows, len(pairs)))


def test_a_stride_that_is_not_used_may_be_any(tokenizer):
    reader = TextReader(max_length=8, stride=64)
    found = row_lengths(reader, reader.read(["a " * 20]), tokenizer)
    assert computed(found).tolist() == [8] and found.windowed.tolist() == [8 * 4]
    with pytest.raises(ValueError, match="stride must be a whole number from 1 to 6"):
        row_lengths(TextReader(max_length=8, stride=64, long_text="window"), reader.read(["a"]), tokenizer)


@pytest.mark.parametrize("reader", [Tagging(max_length=10, stride=3), WordReader(max_length=10)])
def test_words_and_texts_that_are_split(tokenizer, reader):
    texts = ["", *random_texts(np.random.default_rng(2), 12)]
    rows = [text.split() for text in texts]
    found = row_lengths(reader, reader.read(rows), tokenizer)
    assert found.whole.tolist() == [count(tokenizer, text) if text else 0 for text in texts]
    sequences = build_word_windows(tokenizer, rows, 10, reader.stride)[0].sequences
    np.testing.assert_array_equal(computed(found), tokens_by_row(sequences, len(rows)))
    np.testing.assert_array_equal(found.cut, np.minimum(found.whole, 10))
    of_texts = row_lengths(reader, reader.read(texts), tokenizer)
    assert all(np.array_equal(a, b) for a, b in zip(found, of_texts, strict=True))
    # A word of no piece is the unknown token.
    assert row_lengths(reader, reader.read([["a", "\x00", "b"]]), tokenizer).whole.tolist() == [5]


@pytest.mark.parametrize("stride", [None, 4, 128])
def test_questions_and_contexts(tokenizer, chunked, stride):
    rng = np.random.default_rng(3)
    contexts = ["", *random_texts(rng, 4, 60)] * 2  # each for two questions
    questions = [*random_texts(rng, 9, 12), "a " * 70]
    task = Questions(max_length=24, stride=stride)
    found = row_lengths(task, task.read(list(zip(questions, contexts, strict=True))), tokenizer)
    assert found.whole.tolist() == [count(tokenizer, *row) for row in zip(questions, contexts, strict=True)]
    windows, _ = build_question_windows(tokenizer, questions, contexts, 24, stride)
    np.testing.assert_array_equal(computed(found), tokens_by_row(windows, 10))
    first = np.unique(windows.rows, return_index=True)[1]
    np.testing.assert_array_equal(found.cut, windows.lengths[first])


def test_a_row_in_windows_counts_as_much_as_one_in_a_single_sequence(tokenizer):
    task = SingleLabel(max_length=12, long_text="window", stride=4, classes_=np.array(["x", "y"]))
    columns = task.read(["a b", "a b c d " * 4, "c d", "a b c d " * 10])
    labels, weights = np.array([0, 1, 0, 1]), np.array([1.0, 2.0, 3.0, 1.0], "float32")
    data = task.training_data(task.examples(columns, labels, weights, tokenizer))
    n_windows = np.bincount(data.sequences.rows)
    assert n_windows[0] == 1 and n_windows[3] > n_windows[1] > 1
    by_row = np.bincount(data.sequences.rows, data.weights)
    np.testing.assert_allclose(by_row / by_row[0], weights / weights[0], rtol=1e-5)


def test_rows_of_weight_zero_do_not_count_in_the_score():
    labels = np.array([[1.0], [2.0], [3.0], [9.0]])
    rated = SimpleNamespace(n_rows=4, labels=labels, weights=np.array([1, 1, 2, 0], "float32"))
    assert Regression().score(np.array([[1.0], [2.0], [3.0], [-9.0]]), rated) == 1.0


@pytest.mark.parametrize("stride", [0, -1, 2.5])
def test_windows_that_go_no_further_are_refused(tokenizer, stride):
    with pytest.raises(ValueError, match="stride must be a whole number of at least 1"):
        build_question_windows(tokenizer, ["a b"], ["c d e f" * 30], 24, stride)


@pytest.mark.parametrize("with_questions", [False, True])
def test_options(tokenizer, chunked, with_questions):
    rng = np.random.default_rng(4)
    contexts, questions = ["", *random_texts(rng, 6)], random_texts(rng, 7, 5)
    options = [random_texts(rng, n, 30) for n in (2, 3, 4, 5, 2, 3, 4)]
    columns = [contexts, questions, options] if with_questions else [contexts, options]
    task = Choice(max_length=20)
    found = row_lengths(task, task.read(list(zip(*columns, strict=True))), tokenizer)
    seconds = [
        [f"{question} {option}" if with_questions and question else option for option in of_row]
        for question, of_row in zip(questions, options, strict=True)
    ]
    assert found.whole.tolist() == [
        max(count(tokenizer, context, second) for second in of_row)
        for context, of_row in zip(contexts, seconds, strict=True)
    ]
    built = build_choices(tokenizer, contexts, questions if with_questions else None, options, 20)
    np.testing.assert_array_equal(computed(found), tokens_by_row(built, 7))
    assert found.windowed is None


def test_a_context_that_cannot_be_tokenised_is_told_by_its_row(tokenizer):
    task = Questions()
    columns = task.read([("a", "b"), ("a", "b"), ("a", "b")])
    columns.contexts[2] = "\ud800"
    with pytest.raises(ValueError, match="contexts: row 2"):
        row_lengths(task, columns, tokenizer)


@pytest.mark.parametrize("long_text", ["truncate", "window"])
def test_the_sequences_are_those_that_are_built(tokenizer, long_text):
    texts = ["", *random_texts(np.random.default_rng(2), 12)]
    reader = TextReader(max_length=12, long_text=long_text)
    found = row_lengths(reader, reader.read(texts), tokenizer)
    build = build_windows if long_text == "window" else build_sequences
    built = build(tokenizer, texts, max_length=12)
    np.testing.assert_array_equal(found.sequences, built.lengths)
    np.testing.assert_array_equal(found.rows, built.rows)


def test_the_sequences_of_words_options_and_questions(tokenizer):
    rng = np.random.default_rng(3)
    tagging = Tagging(max_length=10, stride=3)
    words = [text.split() for text in ["", *random_texts(rng, 9)]]
    found = row_lengths(tagging, tagging.read(words), tokenizer)
    built = build_word_windows(tokenizer, words, 10, 3)[0].sequences
    np.testing.assert_array_equal(found.sequences, built.lengths)
    np.testing.assert_array_equal(found.rows, built.rows)
    contexts, options = random_texts(rng, 6), [random_texts(rng, 2 + i % 3, 9) for i in range(6)]
    options = [[text or "a" for text in of_row] for of_row in options]
    choice = Choice(max_length=15)
    rows = list(zip(contexts, options, strict=True))
    found = row_lengths(choice, choice.read(rows), tokenizer)
    built = build_choices(tokenizer, contexts, None, options, 15)
    np.testing.assert_array_equal(found.sequences, built.lengths)
    np.testing.assert_array_equal(found.rows, built.rows)
    questions = Questions(max_length=20, stride=4)
    pairs = list(zip(random_texts(rng, 5, 6), random_texts(rng, 5), strict=True))
    found = row_lengths(questions, questions.read(pairs), tokenizer)
    built, _ = build_question_windows(tokenizer, [q for q, _ in pairs], [c for _, c in pairs], 20, 4)
    np.testing.assert_array_equal(found.sequences, built.lengths)
    np.testing.assert_array_equal(found.rows, built.rows)
