"""Pre-training: corpus, instances, shards, masks, objective and trainer, in the order they run."""

from typing import Any

from kbert.pretraining.corpus import Corpus
from kbert.pretraining.options import PretrainingOptions
from kbert.pretraining.shards import Shards, write_shards

__all__ = ["Corpus", "Pretraining", "PretrainingOptions", "Shards", "start_at_frequencies", "write_shards"]


def __getattr__(name: str) -> Any:
    # These load a backend; what comes before them does not.
    if name == "Pretraining":
        from kbert.pretraining.trainer import Pretraining

        return Pretraining
    if name == "start_at_frequencies":
        from kbert.pretraining.output_bias import start_at_frequencies

        return start_at_frequencies
    raise AttributeError(f"module 'kbert.pretraining' has no attribute {name!r}")
