"""
Lengths, max_length and windows
===============================

How long are the texts, and what happens to those that are longer than ``max_length``?
"""

# %%
# Count the tokens
# ----------------
#
# Nothing is fitted for this display, and no model is loaded: the tokenizer counts.

import pandas as pd

from kbert import BertVectorizer
from kbert.plots import LengthDisplay

messages = pd.read_csv("data/support_messages.csv").sample(300, random_state=0)
vectorizer = BertVectorizer("minilm-l6", max_length=24, long_text="truncate")
display = LengthDisplay.from_estimator(vectorizer, messages.message)

# %%
# Cut or read in windows
# ----------------------
#
# With ``long_text="truncate"`` the end of a long text is lost. With ``"window"``, the default, the
# text is read in overlapping windows of ``max_length`` tokens. Here a linear model is fitted to the
# vectors, for several ``max_length``. Warnings of cut rows are expected, and silenced.

import warnings

from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_score

from kbert.errors import TruncationWarning

lengths = [8, 12, 16, 24, 32, 64]
accuracy = pd.DataFrame(index=lengths, columns=["truncate", "window"], dtype=float)
for max_length in lengths:
    for long_text in accuracy.columns:
        vectorizer.set_params(max_length=max_length, long_text=long_text)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", TruncationWarning)
            vectors = vectorizer.fit_transform(messages.message)
        scores = cross_val_score(LogisticRegression(), vectors, messages.label, cv=5)
        accuracy.loc[max_length, long_text] = scores.mean()

ax = accuracy.plot(marker="o", xlabel="max_length", ylabel="accuracy", figsize=(6, 4))
ax.figure.tight_layout()

# %%
# The window that is left out at the end of a text often says what the text is about. When
# ``max_length`` is longer than the longest text, both ways are the same. :doc:`/howto/long_texts`
# has the figures for reviews of films.
