"""
Why this label?
===============

``explain`` says how much each word speaks for a label, or against it.
"""

# %%
# A classifier of customer messages, fitted to 400 of them:

# sphinx_gallery_thumbnail_path = "pictures/attributions-light.png"
import pandas as pd

from kbert import BertClassifier

messages = pd.read_csv("data/support_messages.csv")
train, new = messages[:400], messages[400:]
classifier = BertClassifier("minilm-l6", epochs=2, random_state=0)
classifier.fit(train.message, train.label)

# %%
# The words in their texts
# ------------------------
#
# Blue words speak for the predicted label. Orange and underlined words speak against it.

from kbert.plots import AttributionDisplay

AttributionDisplay.from_estimator(classifier, new.message[:4])

# %%
# The words of a label
# --------------------
#
# ``explain`` gives the same scores as a table. Summed over some messages of a department, they show
# what the model goes by.

billing = new[new.label == "billing"].message[:12]
why = classifier.explain(billing, labels=["billing"] * len(billing))
sums = why.assign(word=why.word.str.lower()).groupby("word").score.sum().sort_values()

ax = pd.concat([sums.head(4), sums.tail(10)]).plot.barh(figsize=(6, 4))
ax.set(xlabel="sum of the scores for 'billing' in 12 messages", ylabel="")
ax.figure.tight_layout()

# %%
# :doc:`/howto/explain` has what a score is, how well it does, and what it costs.
