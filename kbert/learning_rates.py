"""Peak learning rates by the width of the model: "paper", and what "auto" multiplies by a task's factor."""

from __future__ import annotations

from kbert.config import BertConfig
from kbert.sizes import SIZES

# Pre-training from scratch: the greatest hidden_size, and its rate. That of 128 was measured
# (docs/benchmarks/pretraining.md); wider models than 512 take 1e-4 (github.com/google-research/bert, "Pre-training tips
# and caveats").
_PRETRAINING_RATES = ((128, 3e-3), (256, 1e-3), (512, 5e-4))


def default_learning_rate(config: BertConfig) -> float:
    """Return the fine-tuning rate of the nearest named size. The wider the model, the lower the rate."""
    if config.hidden_size >= 1024:
        return SIZES["large"].learning_rate
    if config.hidden_size >= 768:
        return SIZES["base"].learning_rate
    if config.hidden_size >= 384:
        return SIZES["small"].learning_rate
    return SIZES["tiny"].learning_rate


def is_narrow(config: BertConfig) -> bool:
    """Whether a model is narrower than base: the paper's fine-tuning was for base and large."""
    return config.hidden_size < 768


def factor_if_narrow(config: BertConfig, factor: float) -> float:
    """Return a factor on the fine-tuning rate of a size, but 1 for models as wide as base and large.

    Such factors were measured with minilm-l6 (docs/benchmarks/defaults.md); the rates of those widths are the paper's.
    """
    return factor if is_narrow(config) else 1.0


def factor_if_tiny(config: BertConfig) -> float:
    """Return what "auto" multiplies the rate of models by that are narrower than mini, and 1 for others.

    Measured with a model of the size of tiny (docs/benchmarks/first_fit.md, "Another checkpoint"). The result, 3e-4, is
    the highest rate that Google tried for its smaller models (github.com/google-research/bert).
    """
    return 3.0 if config.hidden_size < SIZES["mini"].architecture["hidden_size"] else 1.0


def default_pretraining_rate(config: BertConfig, continued: bool = False) -> float:
    """Return the rate of pre-training from scratch, or (``continued``) from trained weights."""
    if continued:
        return 2e-5
    return next((rate for width, rate in _PRETRAINING_RATES if config.hidden_size <= width), 1e-4)
