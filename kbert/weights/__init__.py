"""Weights folders in the Hugging Face layout, read and written; Google's own, read (see `kbert.weights.google`)."""

from kbert.weights.models import (
    load_encoder,
    load_encoder_weights,
    load_multiple_choice,
    load_pretraining,
    load_pretraining_weights,
    load_question_answerer,
    load_sequence_classifier,
    load_token_classifier,
    save_encoder,
    save_multiple_choice,
    save_pretraining,
    save_question_answerer,
    save_sequence_classifier,
    save_token_classifier,
)

__all__ = [
    "load_encoder",
    "load_encoder_weights",
    "load_multiple_choice",
    "load_pretraining",
    "load_pretraining_weights",
    "load_question_answerer",
    "load_sequence_classifier",
    "load_token_classifier",
    "save_encoder",
    "save_multiple_choice",
    "save_pretraining",
    "save_question_answerer",
    "save_sequence_classifier",
    "save_token_classifier",
]
