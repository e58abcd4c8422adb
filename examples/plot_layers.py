"""
Which layers give the best vectors?
===================================

``BertVectorizer`` can take its vectors from several layers. The display scores a linear model on
each of the six choices that the BERT paper compares in its Table 7.
"""

# %%

import pandas as pd

from kbert import BertVectorizer
from kbert.plots import LayerDisplay

messages = pd.read_csv("data/support_messages.csv").sample(300, random_state=0)
vectorizer = BertVectorizer("minilm-l6", max_length=64)
display = LayerDisplay.from_estimator(vectorizer, messages.message, messages.label)

# %%
# Small dots are the scores of the five folds. Choices whose dots overlap cannot be told apart on so
# few rows. In a pipeline ``layers`` is a parameter like any other, so a grid search can choose it
# too: :doc:`/tasks/embeddings`.
#
# Vectors as a map
# ----------------
#
# Messages that mean much the same have similar vectors. The nearest messages to a new one, by the
# cosine of their vectors:

import numpy as np

vectors = BertVectorizer("minilm-l6", normalize=True).fit(messages.message)
new = "my parcel has not come"
similarity = vectors.transform(messages.message) @ vectors.transform([new])[0]
nearest = np.argsort(similarity)[::-1][:5]
messages.iloc[nearest].assign(cosine=similarity[nearest].round(2))
