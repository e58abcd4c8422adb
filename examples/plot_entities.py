"""
Named entities, marked in their texts
=====================================

Find people and firms in sentences, and show them where they stand.
"""

# %%
# Make some data
# --------------
#
# Each row is a text with the places of its entities: start, end and label, counted in characters.
# These sentences are made from five forms. Real data would come from an annotation tool
# (:doc:`/tasks/named_entity_recognition`).

# sphinx_gallery_thumbnail_path = "pictures/entities-light.png"
import random

import pandas as pd

people = ["Ada Lovelace", "Grace Hopper", "Alan Turing", "Barbara Liskov", "Tony Hoare"]
firms = ["Northwind Ltd", "Contoso AG", "Fabrikam Inc.", "Blue Heron GmbH", "Acme Inc."]
forms = [
    "This agreement is made between {FIRM} and {PERSON}.",
    "{PERSON} shall report to the board of {FIRM} each month.",
    "Payment is due to {FIRM} within 30 days.",
    "Notices are sent to {PERSON} in writing.",
    "Nothing in this clause limits the liability of either party.",
]


def row(draw):
    names = {"PERSON": draw.choice(people), "FIRM": draw.choice(firms)}
    text = draw.choice(forms).format(**names)
    places = [(text.find(name), name, label) for label, name in names.items()]
    return text, [(at, at + len(name), label) for at, name, label in places if at >= 0]


draw = random.Random(0)
train = pd.DataFrame([row(draw) for _ in range(160)], columns=["text", "spans"])
train.head(3)

# %%
# Fit, and mark new texts
# -----------------------

from kbert import BertTagger
from kbert.plots import EntityDisplay

tagger = BertTagger("minilm-l6", random_state=0)
tagger.fit(train.text, train.spans)
new = [
    "The licence passes from Initech GmbH to Margaret Hamilton on 1 May.",
    "Katherine Johnson signed for Globex Ltd, and Edsger Dijkstra was a witness.",
]
EntityDisplay.from_estimator(tagger, new)

# %%
# The same as a table, with the probability of each entity:

tagger.entities(new).round(2)
