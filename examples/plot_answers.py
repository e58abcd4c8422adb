"""
Answers in their context
========================

Find the answer to a question in a text, or say that the text does not have it.
"""

# %%
# Make some data
# --------------
#
# A row has a question, a context, the answer, and the character where the answer begins. Questions
# that the context does not answer have ``""`` and ``-1``.

# sphinx_gallery_thumbnail_path = "pictures/answers-light.png"
import random

import pandas as pd

names = ["Mia", "Ben", "Aisha", "Tomás", "Yuki", "Olga"]
things = ["a lamp", "two mugs", "a rug", "a kettle", "six plates", "an oak table"]
places = ["at the door", "with a neighbour", "in the garage", "behind the shed"]
questions = {
    "name": "Who ordered?",
    "thing": "What was ordered?",
    "place": "Where is it to be left?",
}


def row(draw):
    facts = {
        "name": draw.choice(names),
        "thing": draw.choice(things),
        "place": draw.choice(places),
    }
    first = draw.choice(["{name} ordered {thing}.", "{thing} for {name}, please."])
    second = draw.choice(["Please leave it {place}.", "It is to be left {place}.", ""])
    context = f"{first} {second}".format(**facts)
    asked = draw.choice(list(questions))
    start = context.find(facts[asked])
    return questions[asked], context, facts[asked] if start >= 0 else "", start


draw = random.Random(0)
columns = ["question", "context", "answer", "answer_start"]
train = pd.DataFrame([row(draw) for _ in range(200)], columns=columns)
train.head(4)

# %%
# Fit, and ask
# ------------

from kbert import BertQA
from kbert.plots import AnswerDisplay

qa = BertQA("minilm-l6", random_state=0)
qa.fit(train, train)

note = "Frau Köhler wants four blue bowls soon. Please leave them under the stairs."
asked = pd.DataFrame({"question": list(questions.values()), "context": note})
AnswerDisplay.from_estimator(qa, asked, n_best=3)

# %%
# The same as a table. ``answers`` gives the place of each in its context, and its probability:

qa.answers(asked, n_best=2).round(2)

# %%
# The training rows come from a few made-up sentences, so the model knows little beyond them. Trained
# on SQuAD's questions it answers questions of kinds that it has not seen
# (:doc:`/tasks/question_answering`).
