"""Constants of the models that code without Keras needs."""

INPUT_NAMES = ("token_ids", "segment_ids", "position_ids", "text_ids")

# The choices of Table 7 in the paper (Devlin et al., 2018). Its sums over layers are weighted, these are not.
LAYER_CHOICES = ("embeddings", "second_to_last", "last", "sum_last_4", "concat_last_4", "sum_all")
POOLINGS = ("mean", "cls")
# A vector that is scaled to length 1 is divided by its length, or by this if it is shorter: one of zeros stays zero.
SHORTEST = 1e-12
# Keras keeps seeds as int32 on PyTorch, and the layers of a model count on from the first.
LARGEST_SEED = 2**31 - 2**16
