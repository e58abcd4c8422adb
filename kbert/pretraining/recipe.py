"""What "auto" stands for in pre-training: settings that learn most in minutes to days, from scratch or from weights."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

from kbert.config import BertConfig
from kbert.learning_rates import default_pretraining_rate

# Lengths of rows, and the share of the budget that each gets.
Phases = tuple[tuple[int, float], ...]


class Recipe(NamedTuple):
    """Settings of a run of pre-training; docs/benchmarks/pretraining.md has the measurements.

    Attributes
    ----------
    phases : tuple of (int, float)
    mixed : bool
        Whether the batches are of all these lengths throughout (`kbert.pretraining.PretrainingOptions`).
    batch_size : int
        Rows, of the shortest length.
    mask_rate : float
    dropout : float or None
        None is the checkpoint's.
    """

    phases: Phases
    mixed: bool
    batch_size: int
    mask_rate: float
    dropout: float | None


# Short rows first: a network that knows nothing learns little but frequencies until it finds its neighbours, which are
# near. Longer rows, for the positions that fine-tuning reads, come in little by little: in the last tenth alone they
# came at a learning rate that was too low to learn these positions (docs/benchmarks/pretraining.md). Many masks give
# more to learn from each row (Wettig et al., 2023, "Should You Mask 15% in Masked Language Modeling?"), and text that
# is read a few times at most needs no dropout (Geiping and Goldstein, 2023, "Cramming").
_FROM_SCRATCH = Recipe(phases=((64, 0.825), (256, 0.175)), mixed=True, batch_size=64, mask_rate=0.4, dropout=0.0)
# The masks, rows and dropout that the checkpoint knows.
_FROM_WEIGHTS = Recipe(phases=((128, 1.0),), mixed=False, batch_size=32, mask_rate=0.15, dropout=None)

# The greatest hidden_size of a narrow network, tiny or mini. It spends most of its time on the softmax over the
# vocabulary, so it has fewer pieces.
_NARROW, _PIECES_OF_NARROW = 256, 8000

# Devlin et al. (2018), appendix A.2, and the original code's run_pretraining.py and optimization.py.
PAPER: dict[str, Any] = {
    "max_length": ((128, 0.9), (512, 0.1)),
    "vocab_size": 30522,
    "nsp": True,
    "mask_rate": 0.15,
    "max_steps": 1_000_000,
    "batch_size": 256,
    "learning_rate": 1e-4,
    "warmup": 0.01,  # 10,000 of its million updates
    "dropout": None,
    "bias_correction": False,
}

# Of `BertPretrainer.score`, so that models that were trained under other masks can be compared: the paper's.
SCORED_MASK_RATE = 0.15


def automatic_vocab_size(size: str | BertConfig) -> int:
    """The most pieces of a vocabulary that is learned: an architecture of the user's own says it."""
    if isinstance(size, BertConfig):
        return size.vocab_size
    config = BertConfig.from_size(size)
    return _PIECES_OF_NARROW if config.hidden_size <= _NARROW else config.vocab_size


def longest_automatic_row(config: BertConfig) -> int:
    """Tokens of the longest row of a run on from weights."""
    return min(max(length for length, _ in _FROM_WEIGHTS.phases), config.trained_positions)


def config_of_run(config: BertConfig, dropout: float | None, from_scratch: bool) -> BertConfig:
    """The config of a model that is to be pre-trained. `Pretraining` notes in it which positions it has trained.

    Parameters
    ----------
    config : BertConfig
        Of the start.
    dropout : float or None
    from_scratch : bool
        Whether the start is random, so that no position is trained.
    """
    trained = 0 if from_scratch else config.num_trained_positions
    return replace(config.with_dropout(dropout), num_trained_positions=trained)


def settle_pretraining(parameters: Any, config: BertConfig, from_scratch: bool) -> tuple[Phases, bool]:
    """Replace "auto" in the parameters of `kbert.BertPretrainer`; the phases of the run, and whether they are mixed.

    Parameters
    ----------
    parameters : Parameters
        Changed in place. ``max_length`` becomes the longest row's.
    config : BertConfig
        Of the start.
    from_scratch : bool
        Whether the start is random.
    """
    recipe = _FROM_SCRATCH if from_scratch else _FROM_WEIGHTS
    for name in ("batch_size", "mask_rate", "dropout"):
        if getattr(parameters, name) == "auto":
            setattr(parameters, name, getattr(recipe, name))
    if parameters.learning_rate == "auto":
        parameters.learning_rate = default_pretraining_rate(config, continued=not from_scratch)
    lengths: Any = parameters.max_length
    mixed = isinstance(lengths, str) and recipe.mixed
    if lengths == "auto":
        lengths = [(min(length, config.max_position_embeddings), share) for length, share in recipe.phases]
    if isinstance(lengths, int):
        lengths = [(lengths, 1.0)]
    phases = tuple((int(length), float(share)) for length, share in lengths)
    parameters.max_length = max(length for length, _ in phases)
    return phases, mixed
