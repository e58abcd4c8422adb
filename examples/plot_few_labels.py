"""
Few labels: what training does to the vectors
=============================================

With eight labelled messages a class, ``few_labels=True`` moves the vectors of messages of one class
together and those of other classes apart. This picture shows the vectors of other messages before
and after.
"""

# %%
# Eight messages of each department to learn from, and 240 others to look at:

import pandas as pd

from kbert import BertClassifier

messages = pd.read_csv("data/support_messages.csv")
train = messages.groupby("label").sample(8, random_state=0)
test = messages.drop(train.index).sample(240, random_state=0)

classifier = BertClassifier("minilm-l6", few_labels=True, random_state=0)
classifier.fit(train.message, train.label)
accuracy = classifier.score(test.message, test.label)
print(f"accuracy with {len(train)} labelled messages: {accuracy:.2f}")

# %%
# A saved classifier is a weights folder like any other. :class:`~kbert.BertVectorizer` reads it, and
# gives the vectors after the training.

import tempfile

from kbert import BertVectorizer

before = BertVectorizer("minilm-l6").fit_transform(test.message)
with tempfile.TemporaryDirectory() as folder:
    classifier.save(f"{folder}/few")
    after = BertVectorizer(weights=f"{folder}/few").fit_transform(test.message)

# %%
# The vectors have 384 numbers. A discriminant analysis, fitted to one half of the messages, finds
# the two directions that tell most about the departments. The points are the other half.

import matplotlib.pyplot as plt
from sklearn.decomposition import PCA
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.pipeline import make_pipeline

_, axes = plt.subplots(1, 2, figsize=(8, 4))
panels = {"released weights": before, "after training": after}
for ax, (title, vectors) in zip(axes, panels.items()):
    plane = make_pipeline(PCA(16), LinearDiscriminantAnalysis(n_components=2))
    plane.fit(vectors[:120], test.label[:120])
    points = plane.transform(vectors[120:])
    for label in classifier.classes_:
        of_label = (test.label[120:] == label).to_numpy()
        ax.scatter(*points[of_label].T, s=14, label=label)
    ax.set(title=title, xticks=[], yticks=[])
axes[1].legend(fontsize="small", loc="center left", bbox_to_anchor=(1, 0.5))
plt.tight_layout()
