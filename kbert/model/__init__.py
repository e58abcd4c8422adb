"""Batches to vectors and logits: the encoder and its heads, as functional Keras models."""

from kbert.backend import require_backend

require_backend()

from kbert.model.dispatch import compute_jax_at_once  # noqa: E402
from kbert.model.encoder import INPUT_NAMES, BertEncoder  # noqa: E402
from kbert.model.heads import (  # noqa: E402
    LAYER_CHOICES,
    POOLINGS,
    BertForFeatures,
    BertForQuestionAnswering,
    BertForSequenceClassification,
    BertForTokenClassification,
)
from kbert.model.pretraining import BertForPreTraining  # noqa: E402

compute_jax_at_once()

__all__ = [
    "INPUT_NAMES",
    "LAYER_CHOICES",
    "POOLINGS",
    "BertEncoder",
    "BertForFeatures",
    "BertForPreTraining",
    "BertForQuestionAnswering",
    "BertForSequenceClassification",
    "BertForTokenClassification",
]
