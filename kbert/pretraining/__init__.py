"""Pre-training: corpus, instances, shards, masks, objective and trainer, in the order they run."""

from kbert.pretraining.corpus import Corpus
from kbert.pretraining.shards import Shards, write_shards

__all__ = ["Corpus", "Pretraining", "PretrainingOptions", "Shards", "write_shards"]


def __getattr__(name):
    # These load a backend; what comes before them does not.
    if name in ("Pretraining", "PretrainingOptions"):
        from kbert.pretraining import trainer

        return getattr(trainer, name)
    raise AttributeError(f"module 'kbert.pretraining' has no attribute {name!r}")
