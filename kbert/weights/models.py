"""Whole models from a weights folder, and back."""

import warnings
from pathlib import Path

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
from kbert.weights.formats import read_arrays
from kbert.weights.huggingface import (
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
    """The architecture and the arrays of a folder, which were found to be of one size.

    To be called before a model is made: a config.json may ask for one that no memory holds.
    """
    config, arrays = BertConfig.from_folder(folder), read_arrays(folder)
    check_sizes(config, arrays, folder)
    return config, arrays


def _n_outputs(arrays: dict[str, np.ndarray], head: str, width: int, folder: str | Path) -> int:
    """Outputs of a head by its arrays, since the ``id2label`` and ``num_labels`` of a config.json may be wrong."""
    names = (f"{head}.bias", f"{head}.weight")
    missing = [name for name in names if name not in arrays]
    bias, weight = (arrays.get(name) for name in names)
    if missing or bias.ndim != 1 or not bias.size or weight.shape != (bias.size, width):
        fault = f"lacks {' and '.join(missing)}" if missing else f"has odd shapes for {' and '.join(names)}"
        raise WeightsMismatchError(
            f"The weights in {folder} have no head for this task: the file {fault}. Fine-tune from them with "
            "weights=folder, or load a model that was trained for the task."
        )
    return bias.size


def load_encoder(name_or_folder: str | Path, *, dtype=None, revision: str | None = None, seed: int = 0) -> BertEncoder:
    """See `BertEncoder.from_pretrained`."""
    folder = resolve_folder(name_or_folder, revision)
    config, arrays = read_checkpoint(folder)
    with skip_initialisation():
        encoder = BertEncoder(config, dtype=dtype, seed=seed)
    load_encoder_weights(encoder, folder, arrays)
    return encoder


def load_encoder_weights(encoder: BertEncoder, folder: str | Path, arrays: dict[str, np.ndarray] | None = None) -> None:
    """Copy a folder's encoder into ``encoder``; a pooler that it lacks starts at random, with a warning."""
    new = load_slots(encoder_slots(encoder), folder, _OPTIONAL, arrays)
    if new:
        warnings.warn(
            f"The checkpoint {folder} has no {', '.join(new)}: started at random, to be learned in training.",
            NewWeightsWarning,
            stacklevel=4,  # of who calls from_pretrained
        )


def save_encoder(encoder: BertEncoder, folder: str | Path, dtype: str = "float32") -> None:
    """See `BertEncoder.save_pretrained`."""
    extra = {"architectures": ["BertModel"]}
    save_slots(folder, encoder.config, encoder_slots(encoder), extra=extra, dtype=dtype)


def load_pretraining(
    name_or_folder: str | Path, *, nsp: bool = True, dtype=None, revision: str | None = None, seed: int = 0
) -> BertForPreTraining:
    """A `BertForPreTraining` with the weights of a folder, a size or a hub name; see `load_pretraining_weights`."""
    folder = resolve_folder(name_or_folder, revision)
    config, arrays = read_checkpoint(folder)
    with skip_initialisation():
        model = BertForPreTraining(config, nsp, dtype=dtype, seed=seed)
    load_pretraining_weights(model, folder, arrays)
    return model


# What a checkpoint may lack of a model that is pre-trained further.
_PRETRAINING_PARTS = {
    "cls.predictions.": "masked-LM head (cls.predictions.*)",
    "pooler.": "pooler (pooler.*)",
    "cls.seq_relationship.": "next-sentence head (cls.seq_relationship.*)",
}


def load_pretraining_weights(
    model: BertForPreTraining, folder: str | Path, arrays: dict[str, np.ndarray] | None = None
) -> None:
    """Copy what `transformers.BertForPreTraining` or `BertForMaskedLM` saved, or any other BERT, into ``model``.

    Raises
    ------
    WeightsMismatchError
        As `load_slots`; also when the file's output matrix is not the word embeddings.

    Warns
    -----
    NewWeightsWarning
        Once, naming the heads, and the pooler where there is a next-sentence head on it, that the folder lacks: they
        start at random.
    """
    new = load_slots(pretraining_slots(model), folder, tuple(_PRETRAINING_PARTS), arrays)
    parts = [
        part
        for prefix, part in _PRETRAINING_PARTS.items()
        if any(name.startswith(prefix) for name in new) and (prefix != "pooler." or model.nsp_head is not None)
    ]
    if parts:
        warnings.warn(
            f"The checkpoint {folder} has no {', no '.join(parts)}: started at random, to be learned in training.",
            NewWeightsWarning,
            stacklevel=4,  # of who calls from_pretrained
        )


def save_pretraining(model: BertForPreTraining, folder: str | Path, dtype: str = "float32") -> None:
    """Write what `transformers.BertForPreTraining` opens, or, without a next-sentence head, `BertForMaskedLM`.

    The pooler is written in both cases, although `BertForMaskedLM` has none and passes it over: one that was read with
    the encoder is worth having when the model is fine-tuned.
    """
    architecture = "BertForMaskedLM" if model.nsp_head is None else "BertForPreTraining"
    extra = {"architectures": [architecture]}
    save_slots(folder, model.config, pretraining_slots(model), prefix="bert.", extra=extra, dtype=dtype)


def _classifier_slots(model: BertForSequenceClassification):
    return encoder_slots(model.encoder) + dense_slots("classifier", model.classifier)


@skip_initialisation()
def load_sequence_classifier(folder: str | Path, *, dtype=None, seed: int = 0) -> BertForSequenceClassification:
    """A `BertForSequenceClassification` with all of its weights, head included, from a folder."""
    config, arrays = read_checkpoint(folder)
    n_labels = _n_outputs(arrays, "classifier", config.hidden_size, folder)
    model = BertForSequenceClassification(config, n_labels, dtype=dtype, seed=seed)
    load_slots(_classifier_slots(model), folder, arrays=arrays)
    return model


def save_sequence_classifier(
    model: BertForSequenceClassification, folder: str | Path, id2label: dict[int, str], problem_type: str
) -> None:
    """Write what `transformers.BertForSequenceClassification` opens: encoder, head, label names and problem type."""
    extra = {
        "architectures": ["BertForSequenceClassification"],
        "id2label": {str(i): label for i, label in id2label.items()},
        "label2id": {label: i for i, label in id2label.items()},
        "problem_type": problem_type,
    }
    save_slots(folder, model.config, _classifier_slots(model), prefix="bert.", extra=extra)


@skip_initialisation()
def load_multiple_choice(folder: str | Path, *, dtype=None, seed: int = 0) -> BertForSequenceClassification:
    """A `BertForSequenceClassification` with one output, an option's score, and all of its weights from a folder.

    What `transformers.BertForMultipleChoice` saves: the same arrays, and a config.json that says nothing of outputs.
    """
    config, arrays = read_checkpoint(folder)
    n_outputs = _n_outputs(arrays, "classifier", config.hidden_size, folder)
    if n_outputs != 1:
        raise WeightsMismatchError(
            f"The head in {folder} has {n_outputs} outputs, and one for multiple choice has a single one, an option's "
            "score. Load the folder with the estimator of its task."
        )
    model = BertForSequenceClassification(config, 1, dtype=dtype, seed=seed)
    load_slots(_classifier_slots(model), folder, arrays=arrays)
    return model


def save_multiple_choice(model: BertForSequenceClassification, folder: str | Path) -> None:
    """Write what `transformers.BertForMultipleChoice` opens: encoder and head."""
    extra = {"architectures": ["BertForMultipleChoice"]}
    save_slots(folder, model.config, _classifier_slots(model), prefix="bert.", extra=extra)


@skip_initialisation()
def load_token_classifier(folder: str | Path, *, dtype=None) -> BertForTokenClassification:
    """A `BertForTokenClassification` with all of its weights, head included, from a folder."""
    config, arrays = read_checkpoint(folder)
    n_labels = _n_outputs(arrays, "classifier", config.hidden_size, folder)
    model = BertForTokenClassification(config, n_labels, dtype=dtype)
    slots = encoder_slots(model.encoder) + dense_slots("classifier", model.classifier)
    load_slots(slots, folder, _OPTIONAL, arrays)
    return model


def save_token_classifier(model: BertForTokenClassification, folder: str | Path, id2label: dict[int, str]) -> None:
    """Write what `transformers.BertForTokenClassification` opens, which has no pooler: encoder, head, label names."""
    extra = {
        "architectures": ["BertForTokenClassification"],
        "id2label": {str(i): label for i, label in id2label.items()},
        "label2id": {label: i for i, label in id2label.items()},
    }
    slots = _without_pooler(model) + dense_slots("classifier", model.classifier)
    save_slots(folder, model.config, slots, prefix="bert.", extra=extra)


@skip_initialisation()
def load_question_answerer(folder: str | Path, *, dtype=None) -> BertForQuestionAnswering:
    """A `BertForQuestionAnswering` with all of its weights, head included, from a folder."""
    config, arrays = read_checkpoint(folder)
    _n_outputs(arrays, "qa_outputs", config.hidden_size, folder)
    model = BertForQuestionAnswering(config, dtype=dtype)
    slots = encoder_slots(model.encoder) + dense_slots("qa_outputs", model.qa_outputs)
    load_slots(slots, folder, _OPTIONAL, arrays)
    return model


def save_question_answerer(model: BertForQuestionAnswering, folder: str | Path) -> None:
    """Write what `transformers.BertForQuestionAnswering` opens, which has no pooler: encoder and head."""
    extra = {"architectures": ["BertForQuestionAnswering"]}
    slots = _without_pooler(model) + dense_slots("qa_outputs", model.qa_outputs)
    save_slots(folder, model.config, slots, prefix="bert.", extra=extra)


def _without_pooler(model):
    return [slot for slot in encoder_slots(model.encoder) if not slot.name.startswith(_OPTIONAL)]
