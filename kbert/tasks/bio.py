"""The most probable tags of a row among those in which I- only continues an entity of its type."""

from collections.abc import Sequence
from functools import lru_cache

import numpy as np


def legal_tags(scores: np.ndarray, classes: np.ndarray) -> np.ndarray:
    """Viterbi's algorithm, where a step is allowed or not.

    Parameters
    ----------
    scores : ndarray of float, shape (n_words, n_classes)
        Log-probabilities, or logits: what is added to all scores of a word changes nothing.
    classes : ndarray of str
        BIO tags: O, B-type or I-type. Other tags are always allowed, and so are I-type where no class is B-type.

    Returns
    -------
    ndarray of int, shape (n_words,)
        The number of each word's tag. Where each word's most probable tag is legal, those.
    """
    best = scores.argmax(axis=1)
    if is_legal(best, classes):
        return best
    allowed = _allowed(tuple(map(str, classes)))
    steps = np.where(allowed[:-1], 0.0, -np.inf)
    total = np.where(allowed[-1], scores[0], -np.inf)
    came_from = np.zeros(scores.shape, int)
    for i in range(1, len(scores)):
        reached = total[:, None] + steps
        came_from[i] = reached.argmax(axis=0)
        total = reached.max(axis=0) + scores[i]
    path = np.empty(len(scores), int)
    path[-1] = total.argmax()
    for i in range(len(path) - 1, 0, -1):
        path[i - 1] = came_from[i, path[i]]
    return path


def is_legal(numbers: Sequence[int] | np.ndarray, classes: np.ndarray) -> bool:
    """Whether `legal_tags` may give these tags to a row's words, by their numbers among the classes."""
    numbers = np.asarray(numbers, int)
    before = np.concatenate([[len(classes)], numbers[:-1]])
    return bool(_allowed(tuple(map(str, classes)))[before, numbers].all())


@lru_cache(maxsize=8)
def _allowed(classes: tuple[str, ...]) -> np.ndarray:
    """Which tag may follow which, [from, to]; the last row is for the first word."""
    names = [*classes, "O"]
    # Where no tag begins the entities of a type, I- may begin them.
    inside = [name[:1] == "I" and name[1:2] in ("", "-") and f"B{name[1:]}" in names for name in names[:-1]]
    return np.array(
        [
            [
                not within or (before[:1] in ("B", "I") and before[1:] == tag[1:])
                for tag, within in zip(names[:-1], inside, strict=True)
            ]
            for before in names
        ]
    )
