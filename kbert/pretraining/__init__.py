"""Pre-training: corpus, instances, shards, masks, objective and trainer, in the order they run."""
