"""Weights folders, read and written in several formats: Hugging Face, Google, KerasHub, Keras's own files.

The names below are imported on first use, since they need Keras and the commands in this package do not.
"""

from importlib import import_module
from typing import Any

_HOME = "kbert.weights.models"
__all__ = [
    "load_encoder",
    "load_encoder_weights",
    "load_multiple_choice",
    "load_pretraining",
    "load_pretraining_weights",
    "load_question_answerer",
    "load_sequence_classifier",
    "load_token_classifier",
    "read_checkpoint",
    "save_encoder",
    "save_multiple_choice",
    "save_pretraining",
    "save_question_answerer",
    "save_sequence_classifier",
    "save_token_classifier",
    "tell_of_new",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_HOME), name)
    globals()[name] = value
    return value
