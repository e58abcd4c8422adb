"""
Probabilities: calibration and thresholds
=========================================

Are the probabilities true? Of the messages that a model calls a return with 80%, 80% should be
returns. And from which probability on should a message count as one?
"""

# %%
# Returns are one message in six. The question is yes or no: is this message about a return?
# ``calibrate="temperature"`` keeps a tenth of the rows and takes from them the number by which the
# logits are divided.

import pandas as pd
from sklearn.model_selection import train_test_split

from kbert import BertClassifier

messages = pd.read_csv("data/support_messages.csv")
is_return = messages.label == "returns"
train_X, test_X, train_y, test_y = train_test_split(
    messages.message,
    is_return,
    test_size=0.5,
    stratify=is_return,
    random_state=0,
)
classifier = BertClassifier("minilm-l6", calibrate="temperature", random_state=0)
classifier.fit(train_X, train_y)
print(f"the logits were divided by {classifier.temperature_:.2f}")

# %%
# Calibration
# -----------
#
# Points on the diagonal are probabilities that hold. Five bins, each with the same number of
# messages: with 300 test messages, more bins would show noise. What the model would have said
# without the temperature follows from the logits.

import matplotlib.pyplot as plt
from scipy.special import expit
from sklearn.calibration import CalibrationDisplay

probability = classifier.predict_proba(test_X)[:, 1]
before = expit(classifier.decision_function(test_X) * classifier.temperature_)
_, ax = plt.subplots(figsize=(5, 5))
for name, values in (("with temperature", probability), ("without", before)):
    CalibrationDisplay.from_predictions(
        test_y,
        values,
        n_bins=5,
        strategy="quantile",
        name=name,
        ax=ax,
    )

# %%
# Thresholds
# ----------
#
# ``predict`` says "return" from a probability of 0.5 on. Another threshold trades precision for
# recall: how many of the messages that are called returns are returns, and how many of the
# returns are found. Choose it on validation rows, not on the rows that you report.

from sklearn.metrics import PrecisionRecallDisplay, precision_score, recall_score

display = PrecisionRecallDisplay.from_predictions(test_y, probability, name="kbert")
for threshold in (0.1, 0.5, 0.9):
    found = probability >= threshold
    recall, precision = recall_score(test_y, found), precision_score(test_y, found)
    display.ax_.plot(recall, precision, "o", label=f"threshold {threshold}")
display.ax_.legend(loc="lower left")
display.figure_.tight_layout()

# %%
# scikit-learn's ``TunedThresholdClassifierCV`` and ``FixedThresholdClassifier`` put a threshold
# into ``predict``.
