"""Sort customer messages by what they are about: fit, judge, save, load.

Run it with ``make quickstart``.
"""

import tempfile
from pathlib import Path

import pandas as pd
from sklearn.metrics import accuracy_score, confusion_matrix
from sklearn.model_selection import train_test_split

from kbert import BertClassifier

messages = pd.read_csv(Path(__file__).parent / "data" / "support_messages.csv")
train, test = train_test_split(
    messages,
    test_size=0.2,
    stratify=messages.label,
    random_state=0,
)

classifier = BertClassifier(size="minilm-l6", random_state=0, verbose=1)
classifier.fit(train.message, train.label)

predicted = classifier.predict(test.message)
print(f"\ntest accuracy {accuracy_score(test.label, predicted):.3f}\n")
classes = classifier.classes_
counts = confusion_matrix(test.label, predicted)
print(pd.DataFrame(counts, index=classes, columns=classes).to_string())

new = [
    "I was charged twice for the same order",
    "parcel says delivered but nothing here??",
    "the app crashes every time I open my basket",
    "before I send it back, does it also come in a size 42?",
]
print()
for text, probabilities in zip(new, classifier.predict_proba(new), strict=True):
    best = probabilities.argsort()[::-1][:2]
    print(f"{text:60}", "  ".join(f"{classes[i]} {probabilities[i]:.2f}" for i in best))

with tempfile.TemporaryDirectory() as folder:
    classifier.save(Path(folder) / "support")
    loaded = BertClassifier.load(Path(folder) / "support", verify=True)
    same = (loaded.predict_proba(new) == classifier.predict_proba(new)).all()
print(f"\nsaved, loaded, and predicts {'the same' if same else 'SOMETHING ELSE'}")
