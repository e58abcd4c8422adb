"""A toy BERT, small enough to be fitted many times, and texts that it can learn to tell apart."""

import copy

import numpy as np
import pandas as pd
import pytest

from kbert import BertClassifier, BertConfig, BertEncoder, WordPieceTokenizer

SIGNS = {"bad": ("awful", "broken", "sad"), "good": ("great", "lovely", "happy"), "meh": ("plain", "usual", "fine")}
FILLERS = "the a table chair room with was and it this".split()
KINDS = ("red", "blue", "hot", "cold")


def sentences(labels, seed=0):
    """One text of six words for each label, one of which gives the label away; all alike in length, so in shape."""
    rng = np.random.default_rng(seed)
    texts = []
    for label in labels:
        words = [*rng.choice(FILLERS, 5), rng.choice(SIGNS[label])]
        texts.append(" ".join(rng.permutation(words)))
    return texts


@pytest.fixture(scope="session")
def reviews():
    """200 rows, two labels."""
    labels = ["bad", "good"] * 100
    return pd.DataFrame({"text": sentences(labels), "label": labels})


@pytest.fixture(scope="session")
def three_classes():
    """48 rows, three labels."""
    labels = ["bad", "good", "meh"] * 16
    return pd.DataFrame({"text": sentences(labels), "label": labels})


@pytest.fixture(scope="session")
def pairs():
    """200 rows whose label, to be both red and hot, takes both columns to tell: one alone is right in 5 of 6 rows."""
    rng = np.random.default_rng(0)
    kinds = rng.permutation([("red", "hot")] * 102 + [("red", "cold"), ("blue", "hot"), ("blue", "cold")] * 34)[:200]
    filler = rng.choice(FILLERS, (200, 2))
    texts = np.char.add(np.char.add(filler, " "), kinds)
    label = (kinds == ("red", "hot")).all(axis=1)
    return pd.DataFrame({"left": texts[:, 0], "right": texts[:, 1], "both": label})


def write_toy_folder(folder, layers, **config):
    """A weights folder with a random start, whose vocabulary has all the words above."""
    words = [*FILLERS, *KINDS, *(word for signs in SIGNS.values() for word in signs)]
    tokenizer = WordPieceTokenizer.train([" ".join(words)] * 20, vocab_size=200)
    config = BertConfig(
        vocab_size=tokenizer.vocab_size,
        hidden_size=32,
        num_hidden_layers=layers,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=64,
        **config,
    )
    BertEncoder(config, dtype="float32", seed=7).save_pretrained(folder)
    tokenizer.save(folder)
    return folder


@pytest.fixture(scope="session")
def toy_folder(tmp_path_factory):
    """Weights with one layer, which is what is quick to compile."""
    return write_toy_folder(tmp_path_factory.mktemp("toy") / "one", layers=1)


@pytest.fixture(scope="session")
def quick_folder(tmp_path_factory):
    """Weights with one layer and larger numbers, so that so small a model learns in a few epochs, whatever the seed."""
    return write_toy_folder(tmp_path_factory.mktemp("toy") / "quick", layers=1, initializer_range=0.1)


@pytest.fixture(scope="session")
def two_layer_folder(tmp_path_factory):
    """Weights with two layers."""
    return write_toy_folder(tmp_path_factory.mktemp("toy") / "two", layers=2)


@pytest.fixture(scope="session")
def one_segment_folder(tmp_path_factory):
    """Weights that know no second text."""
    return write_toy_folder(tmp_path_factory.mktemp("toy") / "segment", layers=1, type_vocab_size=1)


@pytest.fixture(scope="session")
def toy(toy_folder):
    """A function that makes a BertClassifier on the toy weights; its arguments change the parameters."""

    def make(**changes):
        values = dict(weights=toy_folder, max_length=16, epochs=1, batch_size=16, learning_rate=3e-3, dtype="float32")
        values |= dict(head_start="random", long_text="truncate")  # what most of these tests are about
        return BertClassifier(**{**values, "random_state": 0, **changes})

    return make


@pytest.fixture(scope="session")
def fitted(toy, reviews):
    """A classifier that has learned the reviews, given as a Series. Tests must not change it."""
    return toy(epochs=6).fit(reviews.text, reviews.label)


@pytest.fixture(scope="session")
def answering():
    """A function that makes a fitted estimator one of a user's own class, which predicts what it is told."""

    def make(fitted, answers):
        own = copy.copy(fitted)
        own.__class__ = type("Own", (type(fitted),), {"predict": lambda self, X: answers})
        return own

    return make


@pytest.fixture(scope="session")
def fitted_three(toy, three_classes):
    """A classifier of three labels, given as a DataFrame of one column. Tests must not change it."""
    return toy().fit(three_classes[["text"]], three_classes.label)
