"""Makes ``saved/``: one small fitted estimator of each kind, and what it predicts, for `test_saved_folders.py`.

Run with the version whose folders are to be opened by later ones: ``python tests/estimators/save_examples.py FOLDER``.
"""

import inspect
import json
import sys
import tempfile
from pathlib import Path

import numpy as np

import kbert
from kbert import (
    BertClassifier,
    BertConfig,
    BertEncoder,
    BertMultipleChoice,
    BertPretrainer,
    BertQA,
    BertRegressor,
    BertTagger,
    BertVectorizer,
    WordPieceTokenizer,
)

ESTIMATORS = [getattr(kbert, name) for name in kbert.__all__ if hasattr(getattr(kbert, name), "get_params")]
WORDS = "red blue hot cold table chair great awful".split()
TEXTS = [" ".join(WORDS[(i + j * j) % 8] for j in range(3 + i % 4)) for i in range(16)]
WORD_ROWS = [text.split() for text in TEXTS]
QUESTIONS = [(row[0], text) for row, text in zip(WORD_ROWS, TEXTS, strict=True)]
CHOICES = [(text, ["red hot", "blue cold", "great"][: 2 + i % 2]) for i, text in enumerate(TEXTS)]


def signature(function):
    """The parameters of a function: name, kind and default. Annotations may become more exact."""
    parameters = inspect.signature(function).parameters.values()
    return [f"{p.kind.description} {p.name}{'' if p.default is p.empty else f'={p.default!r}'}" for p in parameters]


def signatures():
    """Every estimator's parameters and defaults, and its public methods with theirs."""
    return {
        estimator.__name__: {
            name: signature(getattr(estimator, name))
            for name in ("__init__", *sorted(dir(estimator)))
            if name == "__init__" or (not name.startswith("_") and callable(getattr(estimator, name)))
        }
        for estimator in ESTIMATORS
    }


def predictions(name, estimator):
    """What the estimator says of the texts, as JSON can hold it."""
    if name == "vectorizer":
        return estimator.transform(TEXTS).tolist()
    if name == "pretrainer":
        return estimator.fill_mask("red [MASK] table", 3).to_dict("list")
    if name == "tagger":
        return [estimator.predict(WORD_ROWS), [row.tolist() for row in estimator.predict_proba(WORD_ROWS)]]
    if name == "qa":
        # Not at the threshold, where the last digits of a backend decide between "" and a span.
        threshold, estimator.null_threshold_ = float(estimator.null_threshold_), np.inf
        answers = estimator.answers(QUESTIONS, 1).to_dict("list")
        estimator.null_threshold_ = threshold
        return [threshold, answers]
    if name == "choice":
        return np.nan_to_num(estimator.predict_proba(CHOICES), nan=-1).tolist()
    if name == "regressor":
        return estimator.predict(TEXTS).tolist()
    return [np.asarray(estimator.predict(TEXTS), object).tolist(), estimator.predict_proba(TEXTS).tolist()]


def fitted(weights):
    """The estimators by the name of their folder."""
    common = dict(weights=weights, max_length=16, epochs=1, batch_size=8, learning_rate=1e-3, random_state=0)
    labels = [int("red" in text) for text in TEXTS]
    tags = [["B-COLOUR" if word in ("red", "blue") else "O" for word in row] for row in WORD_ROWS]
    answers = [(row[1], len(row[0]) + 1) for row in WORD_ROWS[:12]] + [("", -1)] * 4
    return {
        "classifier": BertClassifier(**common, calibrate="temperature", validation_fraction=0.5).fit(TEXTS, labels),
        "multilabel": BertClassifier(**common, class_weight={"red": 2}).fit(
            TEXTS, [[word for word in ("red", "hot") if word in text] for text in TEXTS]
        ),
        "regressor": BertRegressor(**common).fit(TEXTS, [[len(text), -i] for i, text in enumerate(TEXTS)]),
        "tagger": BertTagger(**common).fit(WORD_ROWS, tags),
        "qa": BertQA(**{**common, "stride": 4}, validation_fraction=0.5).fit(QUESTIONS, answers),
        "choice": BertMultipleChoice(**common).fit(CHOICES, [i % 2 for i in range(16)]),
        "vectorizer": BertVectorizer(weights=weights, max_length=16, layers="sum_all").fit(TEXTS),
        "pretrainer": BertPretrainer(
            weights=weights, max_length=16, max_steps=2, batch_size=4, random_state=0, new_words=["awfully"]
        ).fit([text.replace(" ", ".\n") for text in TEXTS]),
    }


if __name__ == "__main__":
    out, weights = Path(sys.argv[1]), tempfile.mkdtemp()
    tokenizer = WordPieceTokenizer.train([" ".join(WORDS)] * 9, vocab_size=80, n_unused=2)
    config = BertConfig(
        vocab_size=tokenizer.vocab_size,
        hidden_size=8,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        max_position_embeddings=32,
        initializer_range=0.3,
    )
    BertEncoder(config, dtype="float32", seed=1).save_pretrained(weights)
    tokenizer.save(weights)
    expected = {"kbert": kbert.__version__, "signatures": signatures(), "predictions": {}}
    for name, estimator in fitted(weights).items():
        estimator.set_params(weights="auto").save(out / name)
        expected["predictions"][name] = predictions(name, estimator)
    for card in out.glob("*/README.md"):
        card.unlink()  # it names the versions in use
    (out / "expected.json").write_text(json.dumps(expected, indent=1) + "\n", encoding="utf-8")
