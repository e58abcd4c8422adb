"""Whole models read from a weights folder, and written to one."""

from pathlib import Path
from typing import Any

import numpy as np

from kbert.config import BertConfig
from kbert.errors import NewWeightsWarning, WeightsMismatchError
from kbert.hub import resolve_folder
from kbert.model import (
    BertEncoder,
    BertForPreTraining,
    BertForQuestionAnswering,
    BertForSequenceClassification,
    BertForTokenClassification,
)
from kbert.model.encoder import skip_initialisation
from kbert.warn import warn_user
from kbert.weights.arrays import of_its_head
from kbert.weights.formats import read_arrays
from kbert.weights.huggingface import (
    Slot,
    check_sizes,
    dense_slots,
    encoder_slots,
    load_slots,
    pretraining_slots,
    save_slots,
)

# Models without next-sentence pre-training, such as masked-LM checkpoints, come without a pooler.
_OPTIONAL = ("pooler.",)


def read_checkpoint(folder: str | Path) -> tuple[BertConfig, dict[str, np.ndarray]]:
    """Read the architecture and the arrays of a folder, and check that their sizes agree.

    Call this before a model is made: a damaged config.json may describe one that does not fit into memory.

    Raises
    ------
    WeightsNotFoundError, WeightsMismatchError
        When the folder is incomplete or damaged, or the sizes differ.
    """
    config, arrays = BertConfig.from_folder(folder), read_arrays(folder)
    check_sizes(config, arrays, folder)
    return of_its_head(config, arrays), arrays


def _n_outputs(arrays: dict[str, np.ndarray], head: str, width: int, folder: str | Path) -> int:
    """Return the number of outputs of a head.

    It is the size of the head's arrays, since ``id2label`` and ``num_labels`` in a config.json may be wrong.
    """
    names = (f"{head}.bias", f"{head}.weight")
    missing = [name for name in names if name not in arrays]
    bias, weight = (arrays.get(name) for name in names)
    if bias is None or weight is None or bias.ndim != 1 or not bias.size or weight.shape != (bias.size, width):
        fault = f"lacks {' and '.join(missing)}" if missing else f"has odd shapes for {' and '.join(names)}"
        raise WeightsMismatchError(
            f"The weights in {folder} have no head for this task: the file {fault}. Fine-tune from them with "
            "weights=folder, or load a model that was trained for the task."
        )
    return bias.size


def load_encoder(
    name_or_folder: str | Path, *, dtype: Any = None, revision: str | None = None, seed: int = 0
) -> BertEncoder:
    """Make the encoder of a folder, a size or a hub name; see `BertEncoder.from_pretrained`."""
    folder = resolve_folder(name_or_folder, revision)
    config, arrays = read_checkpoint(folder)
    with skip_initialisation():
        encoder = BertEncoder(config, dtype=dtype, seed=seed)
    tell_of_new(load_encoder_weights(encoder, folder, arrays), folder)
    return encoder


def load_encoder_weights(
    encoder: BertEncoder, folder: str | Path, arrays: dict[str, np.ndarray] | None = None
) -> list[str]:
    """Copy a folder's encoder into ``encoder``.

    Parameters
    ----------
    encoder : BertEncoder
    folder : str or Path
    arrays : dict of ndarray, optional
        The arrays of the folder, if they have been read already.

    Returns
    -------
    list of str
        What the folder lacks, which is the pooler at most. It starts at random; see `tell_of_new`.

    Raises
    ------
    WeightsMismatchError
        As `load_slots`.
    """
    return load_slots(encoder_slots(encoder), folder, _OPTIONAL, arrays)


def tell_of_new(new: list[str], folder: str | Path) -> None:
    """Warn of parts that a folder lacks, if there are any.

    Warns
    -----
    NewWeightsWarning
    """
    if new:
        warn_user(
            f"The checkpoint {folder} has no {', '.join(new)}: started at random, to be learned in training.",
            NewWeightsWarning,
        )


def save_encoder(encoder: BertEncoder, folder: str | Path, dtype: str = "float32") -> None:
    """Write an encoder into a folder; see `BertEncoder.save_pretrained`."""
    extra = {"architectures": ["BertModel"]}
    save_slots(folder, encoder.config, encoder_slots(encoder), extra=extra, dtype=dtype)


def load_pretraining(
    name_or_folder: str | Path,
    *,
    nsp: bool | None = True,
    dtype: Any = None,
    revision: str | None = None,
    seed: int = 0,
) -> BertForPreTraining:
    """Make a `BertForPreTraining` with the weights of a folder, a size or a hub name.

    With ``nsp=None`` it has the head for next sentences where the folder has it. What the folder may lack is said in
    `load_pretraining_weights`.
    """
    folder = resolve_folder(name_or_folder, revision)
    config, arrays = read_checkpoint(folder)
    if nsp is None:
        nsp = any(name.startswith(_NSP_HEAD) for name in arrays)
    with skip_initialisation():
        model = BertForPreTraining(config, nsp, dtype=dtype, seed=seed)
    load_pretraining_weights(model, folder, arrays)
    return model


_NSP_HEAD = "cls.seq_relationship."
# The parts that a checkpoint may lack, and what the warning calls them. They start at random.
_PRETRAINING_PARTS = {
    "cls.predictions.": "masked-LM head (cls.predictions.*)",
    "pooler.": "pooler (pooler.*)",
    _NSP_HEAD: "next-sentence head (cls.seq_relationship.*)",
}


def load_pretraining_weights(
    model: BertForPreTraining, folder: str | Path, arrays: dict[str, np.ndarray] | None = None
) -> None:
    """Copy a folder's weights into ``model``: those of `transformers.BertForPreTraining`, or of any other BERT.

    Parameters
    ----------
    model : BertForPreTraining
    folder : str or Path
    arrays : dict of ndarray, optional
        The arrays of the folder, if they have been read already.

    Raises
    ------
    WeightsMismatchError
        As `load_slots`; also when the file's output matrix differs from its word embeddings.

    Warns
    -----
    NewWeightsWarning
        When the folder lacks a head, or the pooler that the next-sentence head needs. They start at random.
    """
    new = load_slots(pretraining_slots(model), folder, tuple(_PRETRAINING_PARTS), arrays)
    model.has_new_mlm_head = any(name.startswith("cls.predictions.") for name in new)
    parts = [
        part
        for prefix, part in _PRETRAINING_PARTS.items()
        if any(name.startswith(prefix) for name in new) and (prefix != "pooler." or model.nsp_head is not None)
    ]
    if parts:
        warn_user(
            f"The checkpoint {folder} has no {', no '.join(parts)}: started at random, to be learned in training.",
            NewWeightsWarning,
        )


def save_pretraining(model: BertForPreTraining, folder: str | Path, dtype: str = "float32") -> None:
    """Write a folder for `transformers.BertForPreTraining`, or `BertForMaskedLM` without a next-sentence head.

    The pooler is written in both cases. `BertForMaskedLM` has none and ignores it, but it is of use in fine-tuning.
    """
    architecture = "BertForMaskedLM" if model.nsp_head is None else "BertForPreTraining"
    extra = {"architectures": [architecture]}
    save_slots(folder, model.config, pretraining_slots(model), prefix="bert.", extra=extra, dtype=dtype)


def _classifier_name(config: BertConfig) -> str:
    return "mean_classifier" if config.classifier_pooling == "mean" else "classifier"


def _classifier_slots(model: BertForSequenceClassification) -> list[Slot]:
    return encoder_slots(model.encoder) + dense_slots(_classifier_name(model.config), model.classifier)


@skip_initialisation()
def load_sequence_classifier(folder: str | Path, *, dtype: Any = None) -> BertForSequenceClassification:
    """Read a `BertForSequenceClassification` with its head from a folder."""
    config, arrays = read_checkpoint(folder)
    n_labels = _n_outputs(arrays, _classifier_name(config), config.hidden_size, folder)
    model = BertForSequenceClassification(config, n_labels, dtype=dtype)
    load_slots(_classifier_slots(model), folder, arrays=arrays)
    return model


def save_sequence_classifier(
    model: BertForSequenceClassification, folder: str | Path, id2label: dict[int, str], problem_type: str
) -> None:
    """Write a folder for `transformers.BertForSequenceClassification`.

    transformers has no BERT that classifies the mean over the tokens. Of such a model it reads the encoder, and says
    that it lacks a classifier.

    Parameters
    ----------
    model : BertForSequenceClassification
    folder : str or Path
    id2label : dict of int to str
        The names of the outputs.
    problem_type : str
        As transformers calls it: "single_label_classification", "multi_label_classification" or "regression".
    """
    extra = {
        "architectures": ["BertForSequenceClassification"],
        "id2label": {str(i): label for i, label in id2label.items()},
        "label2id": {label: i for i, label in id2label.items()},
        "problem_type": problem_type,
    }
    save_slots(folder, model.config, _classifier_slots(model), prefix="bert.", extra=extra)


def load_multiple_choice(folder: str | Path, *, dtype: Any = None) -> BertForSequenceClassification:
    """Read what `save_multiple_choice` or transformers wrote: a model with one output, the score of an option.

    It has the arrays of a `BertForSequenceClassification`, and a config.json without the number of outputs.
    """
    model = load_sequence_classifier(folder, dtype=dtype)
    if model.num_labels != 1:
        raise WeightsMismatchError(
            f"The head in {folder} has {model.num_labels} outputs, and one for multiple choice has a single one, an "
            "option's score. Load the folder with the estimator of its task."
        )
    return model


def save_multiple_choice(model: BertForSequenceClassification, folder: str | Path) -> None:
    """Write a folder for `transformers.BertForMultipleChoice`. Of a head on the mean it reads the encoder alone."""
    extra = {"architectures": ["BertForMultipleChoice"]}
    save_slots(folder, model.config, _classifier_slots(model), prefix="bert.", extra=extra)


@skip_initialisation()
def load_token_classifier(folder: str | Path, *, dtype: Any = None) -> BertForTokenClassification:
    """Read a `BertForTokenClassification` with its head from a folder."""
    config, arrays = read_checkpoint(folder)
    n_labels = _n_outputs(arrays, "classifier", config.hidden_size, folder)
    model = BertForTokenClassification(config, n_labels, dtype=dtype)
    slots = encoder_slots(model.encoder) + dense_slots("classifier", model.classifier)
    load_slots(slots, folder, _OPTIONAL, arrays)
    return model


def save_token_classifier(model: BertForTokenClassification, folder: str | Path, id2label: dict[int, str]) -> None:
    """Write a folder for `transformers.BertForTokenClassification`, which has no pooler."""
    extra = {
        "architectures": ["BertForTokenClassification"],
        "id2label": {str(i): label for i, label in id2label.items()},
        "label2id": {label: i for i, label in id2label.items()},
    }
    slots = _without_pooler(model) + dense_slots("classifier", model.classifier)
    save_slots(folder, model.config, slots, prefix="bert.", extra=extra)


@skip_initialisation()
def load_question_answerer(folder: str | Path, *, dtype: Any = None) -> BertForQuestionAnswering:
    """Read a `BertForQuestionAnswering` with its head from a folder."""
    config, arrays = read_checkpoint(folder)
    _n_outputs(arrays, "qa_outputs", config.hidden_size, folder)
    model = BertForQuestionAnswering(config, dtype=dtype)
    slots = encoder_slots(model.encoder) + dense_slots("qa_outputs", model.qa_outputs)
    load_slots(slots, folder, _OPTIONAL, arrays)
    return model


def save_question_answerer(model: BertForQuestionAnswering, folder: str | Path) -> None:
    """Write a folder for `transformers.BertForQuestionAnswering`, which has no pooler."""
    extra = {"architectures": ["BertForQuestionAnswering"]}
    slots = _without_pooler(model) + dense_slots("qa_outputs", model.qa_outputs)
    save_slots(folder, model.config, slots, prefix="bert.", extra=extra)


def _without_pooler(model: BertForTokenClassification | BertForQuestionAnswering) -> list[Slot]:
    return [slot for slot in encoder_slots(model.encoder) if not slot.name.startswith(_OPTIONAL)]
