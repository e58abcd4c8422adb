"""Batches to vectors and logits: the encoder and its heads, as functional Keras models."""

from kbert.backend import require_backend
from kbert.startup_messages import import_tensorflow

require_backend()
import_tensorflow()

from kbert.model.base import INPUT_NAMES  # noqa: E402
from kbert.model.compile_cache import use_compile_cache  # noqa: E402
from kbert.model.dispatch import disable_jax_async_dispatch  # noqa: E402
from kbert.model.encoder import BertEncoder  # noqa: E402
from kbert.model.heads import (  # noqa: E402
    LAYER_CHOICES,
    POOLINGS,
    BertForFeatures,
    BertForQuestionAnswering,
    BertForSequenceClassification,
    BertForTextVectors,
    BertForTokenClassification,
)
from kbert.model.pretraining import BertForPreTraining  # noqa: E402

disable_jax_async_dispatch()
use_compile_cache()

__all__ = [
    "INPUT_NAMES",
    "LAYER_CHOICES",
    "POOLINGS",
    "BertEncoder",
    "BertForFeatures",
    "BertForPreTraining",
    "BertForQuestionAnswering",
    "BertForSequenceClassification",
    "BertForTextVectors",
    "BertForTokenClassification",
]
