"""Which seeds kbert takes."""

# Keras keeps seeds as int32 on PyTorch, and the layers of a model count on from the first.
LARGEST_SEED = 2**31 - 2**16
