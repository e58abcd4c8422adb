"""How near `explain` and LIME come to the best choice of words, on short rows of SST-2's dev part.

    KBERT_DATA=... python benchmarks/explain_limits.py [--rows 40]

It is the deletion test of benchmarks/explain.py, with the same recipe, on rows of 7 to 11 words. Of such a row the
prediction without each subset of its words can be taken, 2,048 at most. So the fifth of the words whose removal lowers
the probability most is known, and so is what methods that sample subsets would say after any number of samples:

- LIME: ridge regression of the probability on the words that are left, with its weights of samples, as any number of
  samples would give it, and from 300;
- Shapley values with words removed, of the logit (of which the log-odds are a multiple here) and of the probability:
  the mean over all orders, and over some;
- removing the word that lowers the probability most, then of the others the one that does, and so on.

Beside these are `explain` with integrated gradients and with Shapley values, whose words are replaced by [PAD]. Figures
go to benchmarks/results/explain_limits.csv: the mean drop, its difference to LIME's, and the error of that.
"""

import argparse
import datetime
import math
import warnings
from itertools import combinations
from pathlib import Path

import keras
import numpy as np
import pandas as pd
from explain import SHARE, mean_and_error, read, without

import kbert
from kbert import BertClassifier
from kbert.errors import MissingTextWarning
from kbert.training.shapley import Orders

RESULTS = Path(__file__).parent / "results" / "explain_limits.csv"
SHORTEST, LONGEST = 7, 11


class Row:
    """A row with the probability of its label without each subset of its words.

    A subset has a number, whose bits are the words that are left.
    """

    def __init__(self, classifier: BertClassifier, text: str, spans: np.ndarray):
        self.n = len(spans)
        self.left = (np.arange(2**self.n)[:, None] >> np.arange(self.n) & 1).astype(bool)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", MissingTextWarning)  # one subset is empty
            found = classifier.predict_proba([without(text, spans, np.flatnonzero(~left)) for left in self.left])
        self.probability = found[:, found[-1].argmax()]
        self.log_odds = np.log(self.probability / (1 - self.probability))
        self.n_removed = math.ceil(SHARE * self.n)

    def drop_without(self, words) -> float:
        """How far the probability falls without these words."""
        return float(self.probability[-1] - self.probability[2**self.n - 1 - sum(1 << int(word) for word in words)])

    def drop(self, scores: np.ndarray) -> float:
        """How far it falls without the words with the highest scores."""
        return self.drop_without(np.argsort(-scores, kind="stable")[: self.n_removed])

    def best(self) -> float:
        """The largest drop that removing so many words can make."""
        return max(map(self.drop_without, combinations(range(self.n), self.n_removed)))

    def greedy(self) -> float:
        """The drop by removing one word after the other, each time the one that lowers the probability most."""
        gone: list[int] = []
        for _ in range(self.n_removed):
            gone.append(max(set(range(self.n)) - set(gone), key=lambda word: self.drop_without([*gone, word])))
        return self.drop_without(gone)

    def lime(self, n_drawn: int | None) -> np.ndarray:
        """LIME's scores from so many samples, or from 5,000 that are distributed just as its law says."""
        n_left = self.left.sum(axis=1)
        samples = np.array([5000 / (self.n * math.comb(self.n, k)) for k in n_left.tolist()])
        if n_drawn is not None:
            samples[-1] = 0  # a word at least is removed
            samples = np.random.default_rng(0).multinomial(n_drawn, samples / samples.sum()).astype(float)
        samples[-1] = 1.0  # the text itself
        distance = 100 * (1 - np.sqrt(n_left / self.n))
        weights = samples * np.sqrt(np.exp(-(distance**2) / 25**2))
        X, y = (array - np.average(array, axis=0, weights=weights) for array in (self.left, self.probability))
        return np.linalg.solve((X.T * weights) @ X + np.eye(self.n), (X.T * weights) @ y)

    def shapley(self, values: np.ndarray, n_orders: int | None) -> np.ndarray:
        """Shapley values of what the subsets give: over some orders, or over all."""
        if n_orders is not None:
            ranks = Orders(n_orders).ranks(self.n)
            gone = np.array([ranks < k for k in range(self.n + 1)])  # (n + 1, n_orders, n)
            course = values[(~gone << np.arange(self.n)).sum(axis=-1)].T
            return np.take_along_axis(course[:, :-1] - course[:, 1:], ranks, axis=1).mean(axis=0)
        n_left = self.left.sum(axis=1)
        share = np.array([1 / (self.n * math.comb(self.n - 1, k)) for k in range(self.n)])
        scores = []
        for word in range(self.n):
            others = np.flatnonzero(~self.left[:, word])
            gains = values[others + (1 << word)] - values[others]
            scores.append((share[n_left[others]] * gains).sum())
        return np.array(scores)


def main() -> None:
    """Measure, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--train", type=int, default=2000, help="rows to train on")
    parser.add_argument("--rows", type=int, default=40, help="rows to explain")
    parser.add_argument("--results", type=Path, default=RESULTS)
    options = parser.parse_args()
    train, dev = read("sst2", options.train, 872)
    classifier = BertClassifier("minilm-l6", epochs=1, random_state=0, dtype="float32").fit(train.text, train.label)
    found: dict[str, list[float]] = {}
    n_rows = 0
    for text in dev.text:
        if n_rows == options.rows:
            break
        if not SHORTEST <= len(text.split()) <= LONGEST:
            continue
        label = classifier.predict([text])
        gradients = classifier.explain([text], label)
        if not SHORTEST <= len(gradients) <= LONGEST:
            continue
        n_rows += 1
        row = Row(classifier, text, gradients[["start", "end"]].to_numpy())
        by_pad = {n: classifier.explain([text], label, method="shapley", n_steps=n).score for n in (10, 100)}
        drops = {
            "the best words": row.best(),
            "one word after the other": row.greedy(),
            "LIME": row.drop(row.lime(None)),
            "LIME, 300 samples": row.drop(row.lime(300)),
            **{
                f"Shapley values of the {name}, words removed, {n or 'all'} orders": row.drop(row.shapley(values, n))
                for name, values in (("logit", row.log_odds), ("probability", row.probability))
                for n in (None, 20, 10)
            },
            "explain, Shapley values from [PAD], 100 orders": row.drop(by_pad[100].to_numpy()),
            "explain, Shapley values from [PAD], 10 orders": row.drop(by_pad[10].to_numpy()),
            "explain": row.drop(gradients.score.to_numpy()),
        }
        for name, drop in drops.items():
            found.setdefault(name, []).append(drop)
        print(n_rows, {name: round(drop, 3) for name, drop in drops.items()}, flush=True)
    facts = {
        "rows": n_rows, "train": options.train, "backend": keras.backend.backend(), "kbert": kbert.__version__,
        "date": datetime.date.today().isoformat(),
    }  # fmt: skip
    of_lime = np.array(found["LIME"])
    lines = [
        {
            "words": name,
            **mean_and_error("drop", np.array(drops)),
            **mean_and_error("minus_lime", np.array(drops) - of_lime),
            **facts,
        }
        for name, drops in found.items()
    ]
    pd.DataFrame(lines).to_csv(options.results, index=False)
    print(pd.DataFrame(lines).to_string())


if __name__ == "__main__":
    main()
