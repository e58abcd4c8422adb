"""The parameter that was probably meant by a name that an estimator does not have."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from difflib import get_close_matches
from typing import Any

from kbert.errors import UnknownSizeError
from kbert.sizes import named_size

# What other libraries (transformers, Keras, PyTorch, scikit-learn, setfit) call a parameter of kbert.
_OTHER_NAMES = {
    "learning_rate": ("lr", "eta", "step_size", "learning_rate_init"),
    "epochs": ("n_epochs", "num_epochs", "num_train_epochs", "nb_epoch", "max_epochs", "n_iter", "max_iter"),
    "batch_size": ("bs", "train_batch_size", "per_device_train_batch_size", "eval_batch_size"),
    "max_length": ("max_len", "maxlen", "max_seq_length", "max_seq_len", "sequence_length", "max_tokens"),
    "warmup": ("warmup_steps", "warmup_ratio", "warmup_proportion", "num_warmup_steps"),
    "weight_decay": ("wd", "decay", "l2"),
    "dropout": ("dropout_rate", "hidden_dropout_prob", "dropout_prob"),
    "freeze": ("freeze_layers", "frozen_layers", "n_frozen"),
    "gradient_accumulation": ("gradient_accumulation_steps", "accumulate_grad_batches"),
    "validation_fraction": ("validation_split", "val_split", "val_fraction", "test_size"),
    "n_iter_no_change": ("patience", "early_stopping_patience"),
    "random_state": ("seed", "random_seed"),
    "long_text": ("truncation", "truncate"),
    "stride": ("doc_stride", "overlap"),
    "class_weight": ("class_weights",),
    "mask_rate": ("mlm_probability", "masked_lm_prob"),
    "max_steps": ("num_train_steps", "steps"),
    "dtype": ("torch_dtype", "precision", "fp16", "bf16"),
}
_OF_OTHERS = {other: name for name, others in _OTHER_NAMES.items() for other in others}
# These may be a size or weights: the value tells.
_MODEL = ("model", "model_name", "model_name_or_path", "model_id", "pretrained", "pretrained_model", "checkpoint")


def refuse_unknown_parameters(estimator: type, given: dict[str, Any]) -> None:
    """Raise a TypeError for a keyword that an estimator's ``__init__`` does not take, as Python does, with advice."""
    signature = inspect.signature(estimator.__init__)  # type: ignore[misc]
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in signature.parameters.values()):
        return  # a subclass that passes keywords on
    names = list(signature.parameters)[1:]
    for keyword, value in given.items():
        if keyword not in names:
            advice = did_you_mean(keyword, value, names) or f" Its parameters are {', '.join(names)}."
            raise TypeError(f"{estimator.__name__} got an unexpected keyword argument {keyword!r}.{advice}")


def did_you_mean(keyword: str, value: Any, names: Sequence[str]) -> str:
    """The parameter that is probably meant, as a sentence after a space; "" if none comes near."""
    meant = _meant(keyword, value, names)
    return f" Did you mean {meant}?" if meant else ""


def _meant(keyword: str, value: Any, names: Sequence[str]) -> str | None:
    if keyword.lower() in _MODEL:
        return f"size={value!r}" if _is_size(value) else "weights"
    other = _OF_OTHERS.get(keyword.lower())
    if other in names:
        return other
    return next(iter(get_close_matches(keyword.lower(), names, n=1, cutoff=0.7)), None)


def _is_size(value: Any) -> bool:
    try:
        named_size(value)
    except (UnknownSizeError, AttributeError):
        return False
    return True
