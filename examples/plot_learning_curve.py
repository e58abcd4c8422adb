"""
How many rows does it take?
===========================

Accuracy by the number of labelled messages, for a BERT that is tuned to few labels and for two
simpler models. The curve says whether it is worth while to label more.
"""

# %%
# The simpler models are TF-IDF with a linear model, and BERT's vectors with a linear model. Each
# model learns from 48, 144 and 432 messages, and is scored on the same 150 others.

import pandas as pd
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

from kbert import BertClassifier, BertVectorizer

messages = pd.read_csv("data/support_messages.csv").sample(frac=1, random_state=0)
test, pool = messages[:150], messages[150:]
linear = LogisticRegression(max_iter=1000)
models = {
    "few_labels=True": BertClassifier("minilm-l6", few_labels=True, random_state=0),
    "BertVectorizer, linear": make_pipeline(BertVectorizer("minilm-l6"), linear),
    "TF-IDF, linear": make_pipeline(TfidfVectorizer(), linear),
}
sizes = [48, 144, 432]
accuracy = pd.DataFrame(index=sizes, columns=list(models), dtype=float)
for name, model in models.items():
    for size in sizes:
        model.fit(pool.message[:size], pool.label[:size])
        accuracy.loc[size, name] = model.score(test.message, test.label)
accuracy.round(2)

# %%
# A line for the most frequent label shows what knowing nothing is worth.

import matplotlib.pyplot as plt

_, ax = plt.subplots(figsize=(6, 4))
accuracy.plot(marker="o", logx=True, ylim=(0, 1), ax=ax)
nothing = test.label.value_counts(normalize=True).max()
ax.axhline(nothing, color="gray", linestyle=":", label="most frequent label")
ax.set(xticks=sizes, xticklabels=sizes, xlabel="labelled messages", ylabel="accuracy")
ax.minorticks_off()
ax.legend(loc="lower right")
plt.tight_layout()

# %%
# This is one draw of the rows. Points that lie close together may change places in another draw.
# With 64 rows a class and more, ``BertClassifier`` without ``few_labels`` scores as high or higher, and
# takes longer: :doc:`/benchmarks/first_fit` has several draws on several data sets. scikit-learn's
# ``LearningCurveDisplay.from_estimator`` repeats the fits with cross-validation.
