"""Pre-training: corpus, instances, shards, masks, objective and trainer, in the order they run."""

from typing import Any

from kbert.pretraining.corpus import Corpus
from kbert.pretraining.options import PretrainingOptions
from kbert.pretraining.shards import Shards, write_shards

__all__ = ["Corpus", "Pretraining", "PretrainingOptions", "Shards", "write_shards"]


def __getattr__(name: str) -> Any:
    # It loads a backend; what comes before it does not.
    if name == "Pretraining":
        from kbert.pretraining.trainer import Pretraining

        return Pretraining
    raise AttributeError(f"module 'kbert.pretraining' has no attribute {name!r}")
