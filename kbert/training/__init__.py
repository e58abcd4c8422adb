"""Training and predicting: one loop of updates for all tasks, and a step for each backend."""
