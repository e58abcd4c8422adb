"""Scores that scikit-learn and scipy lack: entity F1, and SQuAD's exact match and F1. NumPy alone.

All scores are shares from 0 to 1; the official scripts of SQuAD and CoNLL print them times 100.
"""

from kbert.metrics.answers import NullThreshold, answer_scores, best_null_threshold, normalize_answer, squad_scores
from kbert.metrics.entities import EntityScores, bio_spans, entity_f1, entity_scores, is_bio, is_bio_tag

__all__ = [
    "EntityScores",
    "NullThreshold",
    "answer_scores",
    "best_null_threshold",
    "bio_spans",
    "entity_f1",
    "entity_scores",
    "is_bio",
    "is_bio_tag",
    "normalize_answer",
    "squad_scores",
]
