"""Rows and labels for saved estimators of every kind."""

import numpy as np
import pandas as pd

WORDS = "red blue hot cold table chair great awful".split()
TEXTS = [" ".join(WORDS[(i + j * j) % 8] for j in range(3 + i % 4)) for i in range(40)]
INDEX = [f"r{i}" for i in range(40)]


def rows_of(kind):
    """X and y; with an odd text, and some rows that are given what the estimator will not say."""
    rng = np.random.default_rng(0)
    texts = pd.Series(["red <b>hot</b> & 'cold' שלום 😀", *TEXTS[1:]], index=INDEX)
    words = [text.split() for text in texts]
    if kind == "classifier":
        return texts, rng.integers(2, size=40)
    if kind == "multilabel":
        return texts, [[name for name in ("hot", "red") if name in row] for row in words[:-1]] + [["green", "red"]]
    if kind == "regressor":
        return texts, rng.normal(5, 2, (40, 2))
    if kind == "tagger":
        tags = [["B-COLOUR" if word in ("red", "blue", "hot") else "O" for word in row] for row in words]
        return pd.Series(words, index=INDEX), tags
    if kind == "qa":
        contexts = pd.DataFrame({"question": [row[0] for row in words], "context": list(texts)}, index=INDEX)
        return contexts, pd.DataFrame({"answer": ["" if i % 4 == 0 else row[0] for i, row in enumerate(words)]})
    options = [["red hot", "blue cold", "great"][: 2 + i % 2] for i in range(40)]
    return pd.DataFrame({"context": list(texts), "options": options}, index=INDEX), rng.integers(2, size=40)
