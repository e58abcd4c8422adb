"""
A first classifier and its confusion matrix
===========================================

Sort messages of customers into six departments, and look at which departments are taken for
which.

The data are 625 messages. They are in the repository, in ``examples/data``.
"""

# %%
# Read and split
# --------------

import pandas as pd
from sklearn.model_selection import train_test_split

messages = pd.read_csv("data/support_messages.csv")
train, test = train_test_split(
    messages,
    test_size=0.2,
    stratify=messages.label,
    random_state=0,
)
print(train.sample(5, random_state=1).to_string(index=False, max_colwidth=60))

# %%
# Fit
# ---
#
# ``"minilm-l6"`` is a small BERT. No other parameter is set, apart from the seed. The head starts
# from a linear model, and then all layers are trained.

from kbert import BertClassifier

classifier = BertClassifier("minilm-l6", random_state=0)
classifier.fit(train.message, train.label)

# %%
# Judge
# -----
#
# The estimator is scikit-learn's kind of estimator, so scikit-learn's displays take it.

from sklearn.metrics import ConfusionMatrixDisplay

display = ConfusionMatrixDisplay.from_estimator(
    classifier,
    test.message,
    test.label,
    xticks_rotation="vertical",
    cmap="Blues",
    colorbar=False,
)
accuracy = classifier.score(test.message, test.label)
display.ax_.set_title(f"accuracy {accuracy:.2f}")
display.figure_.tight_layout()

# %%
# The messages that go to the wrong department, with the probability of the label that was
# predicted:

predicted = classifier.predict(test.message)
wrong = test.assign(
    predicted=predicted,
    probability=classifier.predict_proba(test.message).max(axis=1).round(2),
)[predicted != test.label]
wrong.sort_values("probability", ascending=False).head(8)
