"""The class_weight of a classifier, checked."""

from __future__ import annotations

from typing import Any

import numpy as np

from kbert.values.number_rules import is_real


def weights_of_classes(class_weight: dict[Any, float], classes: np.ndarray, zero_allowed: bool) -> np.ndarray:
    """The weight of each class, float64, by a class_weight that is checked. A class that it does not name counts 1."""
    # Not scikit-learn's reading of a dict, which takes the label "1" for the number 1.
    checked = checked_class_weight(class_weight, classes, zero_allowed)
    return np.array([checked.get(label, 1) for label in classes.tolist()], "float64")


def checked_class_weight(class_weight: dict[Any, float], classes: np.ndarray, zero_allowed: bool) -> dict[Any, float]:
    """A class_weight whose labels are classes, and whose values are weights.

    Labels that are no classes are passed over where all classes are named, as in scikit-learn: a part of the rows, as
    in cross-validation, may lack a rare class.

    Raises
    ------
    ValueError
        With the label.
    """
    labels = classes.tolist()
    unknown = [label for label in class_weight if label not in labels]
    if unknown and not all(label in class_weight for label in labels):
        raise ValueError(f"class_weight names {unknown[:5]}, which y does not hold. The classes are {labels[:20]}.")
    for label, weight in class_weight.items():
        if not is_real(weight) or weight < 0 or (weight == 0 and not zero_allowed):
            wanted = "at least 0" if zero_allowed else "more than 0"
            raise ValueError(f"class_weight must be numbers of {wanted}, got {weight!r} for {label!r}.")
    return class_weight
