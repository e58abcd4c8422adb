"""The model card of a saved estimator, README.md: what it is, what it learned from, its scores, and how to load it."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import kbert
from kbert.config import BertConfig
from kbert.config_json import read_config_json
from kbert.errors import UnknownSizeError
from kbert.hub.model_cards import written_card
from kbert.sizes import SIZES, named_size
from kbert.values.printable import printable
from kbert.values.saved import TEXT, Rule, is_number

_SHOWN_LABELS = 50
# What tells the named sizes apart; a vocabulary may have grown.
_WIDTHS = ("hidden_size", "num_hidden_layers", "num_attention_heads")


def _is_scores(value: Any) -> bool:
    return isinstance(value, dict) and all(isinstance(name, str) and is_number(n) for name, n in value.items())


def _is_languages(value: Any) -> bool:
    return isinstance(value, str) or (isinstance(value, list) and all(isinstance(language, str) for language in value))


# What the user may say in ``card``.
FACTS: dict[str, Rule] = {
    "description": TEXT,
    "data": TEXT,
    "scores": (_is_scores, "finite numbers by the names of the scores, such as {'accuracy': 0.91}"),
    "scored_on": TEXT,
    "language": (_is_languages, "a code such as 'en', or a list of them"),
    "license": TEXT,
}


def checked_facts(card: Mapping[str, Any] | None) -> dict[str, Any]:
    """Check what the user says of a model, for its card. NumPy's scalars become plain numbers.

    Raises
    ------
    TypeError, ValueError
        Where it is no mapping, has a key that is not one of `FACTS`, or a value that breaks its rule; or where scores
        are given and what they were measured on is not.
    """
    if card is None:
        return {}
    if not isinstance(card, Mapping):
        raise TypeError(f"card must be a dict with some of the keys {', '.join(FACTS)}, got {type(card).__name__}.")
    facts = dict(card)
    if unknown := [key for key in facts if key not in FACTS]:
        raise ValueError(f"card has no key {unknown[0]!r}. Its keys are {', '.join(FACTS)}.")
    if isinstance(scores := facts.get("scores"), Mapping):
        plain = {name: value.item() if isinstance(value, np.generic) else value for name, value in scores.items()}
        facts["scores"] = plain
    for key, value in facts.items():
        test, wanted = FACTS[key]
        if not test(value):
            raise ValueError(f"card[{key!r}] must be {wanted}, got {value!r}.")
    if facts.get("scores") and not facts.get("scored_on"):
        raise ValueError("card has scores: say with the key 'scored_on' what they were measured on.")
    return facts


class _Head(NamedTuple):
    """What a card says of a kind of head.

    Attributes
    ----------
    kind : str
        What the model does, after its name.
    pipeline_tag : str
        The hub's name of the task.
    auto_class : str
        The class of transformers that opens the folder.
    call : str
        A method of the estimator, with an X of one row.
    """

    kind: str
    pipeline_tag: str
    auto_class: str
    call: str


# By the architecture in config.json.
_HEADS = {
    "BertForSequenceClassification": _Head(
        "classifies texts", "text-classification", "AutoModelForSequenceClassification", 'predict(["a text"])'
    ),
    "BertForTokenClassification": _Head(
        "tags words", "token-classification", "AutoModelForTokenClassification", 'predict([["some", "words"]])'
    ),
    "BertForQuestionAnswering": _Head(
        "answers questions by a part of a text",
        "question-answering",
        "AutoModelForQuestionAnswering",
        'predict([("Who came?", "Ada came, and then she left.")])',
    ),
    "BertForMultipleChoice": _Head(
        "chooses one of several options",
        "multiple-choice",
        "AutoModelForMultipleChoice",
        'predict([("It rains.", ["I take an umbrella.", "I take a hat."])])',
    ),
    "BertForPreTraining": _Head(
        "fills masked words", "fill-mask", "AutoModelForMaskedLM", 'fill_mask("a [MASK] text")'
    ),
    "BertForMaskedLM": _Head("fills masked words", "fill-mask", "AutoModelForMaskedLM", 'fill_mask("a [MASK] text")'),
    "BertModel": _Head("gives vectors of texts", "feature-extraction", "AutoModel", 'transform(["a text"])'),
}
_NUMBERS = "gives numbers for texts"


class _Base(NamedTuple):
    """Where training started. ``hub_name`` and ``licence`` are None where they are not known."""

    text: str
    hub_name: str | None = None
    licence: str | None = None


def model_card(estimator: Any, folder: Path, name: str, facts: Mapping[str, Any]) -> bytes:
    """Write the card of a fitted estimator.

    Parameters
    ----------
    estimator : SavableEstimator
    folder : Path
        Where its model is saved already.
    name : str
        What loads it: the name of its folder, or of its repository on the hub.
    facts : mapping
        What the user says of the model, as `checked_facts` gives it.

    Returns
    -------
    bytes
        The content of README.md.
    """
    config_json = read_config_json(folder)
    head = _HEADS[config_json["architectures"][0]]
    base = _base(estimator)
    return written_card(
        _metadata(head, base, name, facts),
        "\n".join(
            [
                f"# {printable(name)}",
                "",
                *_what_it_is(estimator, head, config_json, facts),
                "",
                *_table(estimator, base, config_json, facts),
                "",
                *_scores(estimator, facts),
                *_loading(estimator, head, config_json, name),
            ]
        ),
    )


def _metadata(head: _Head, base: _Base, name: str, facts: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of `huggingface_hub.ModelCardData`."""
    from huggingface_hub import EvalResult

    scored_on = facts.get("scored_on")
    results = [
        EvalResult(
            task_type=head.pipeline_tag,
            dataset_type=scored_on,
            dataset_name=scored_on,
            metric_type=metric,
            metric_value=value,
        )
        for metric, value in facts.get("scores", {}).items()
    ]
    return {
        "language": facts.get("language"),
        "license": facts.get("license", base.licence),
        "library_name": "kbert",
        "tags": ["kbert", "bert"],
        "base_model": base.hub_name,
        "pipeline_tag": head.pipeline_tag,
        "model_name": name,
        "eval_results": results or None,
    }


def _base(estimator: Any) -> _Base:
    """Where training started, from the parameters ``size`` and ``weights``. A local path is nobody else's business."""
    weights = estimator.weights
    if weights is None:
        return _Base("random weights")
    named = estimator.size if weights == "auto" else weights
    if isinstance(named, str) and not named.startswith("hf://"):
        on_disk = weights != "auto" and named not in SIZES and os.path.exists(os.path.expanduser(named))
        if not on_disk:
            try:
                known = named_size(named)
            except UnknownSizeError:
                known = None
            if known is not None:
                # Parameters that were set after ``fit`` may speak of another model.
                config = BertConfig.from_size(named)
                fits = all(getattr(estimator.config_, key) == getattr(config, key) for key in _WIDTHS)
                return _Base(_link(known.hub_name), known.hub_name, known.licence) if fits else _Base("")
            if named.startswith("kerashub://"):
                return _Base(_code(named))
    hub_name = named.removeprefix("hf://") if isinstance(named, str) else ""
    if re.fullmatch(r"\w[\w.-]*/[\w.-]+", hub_name) and (named != hub_name or not os.path.exists(hub_name)):
        return _Base(_link(hub_name), hub_name)
    return _Base("the weights of a folder")


def _what_it_is(estimator: Any, head: _Head, config_json: Mapping[str, Any], facts: Mapping[str, Any]) -> list[str]:
    kind = _NUMBERS if config_json.get("problem_type") == "regression" else head.kind
    lines = [f"A BERT that {kind}: a `{type(estimator).__name__}` of [kbert](https://pypi.org/project/kbert-learn/)."]
    return [*lines, "", facts["description"]] if facts.get("description") else lines


def _table(estimator: Any, base: _Base, config_json: Mapping[str, Any], facts: Mapping[str, Any]) -> list[str]:
    config = estimator.config_
    lowercase = estimator.tokenizer_.lowercase
    rows = {
        "Labels": _labels(config_json),
        "Started from": base.text
        + (f", revision {_code(estimator.revision)}" if base.hub_name and estimator.revision else ""),
        "Licence": _licence(base, facts),
        "Trained on": _trained_on(estimator, facts),
        "Architecture": (
            f"{config.num_hidden_layers} layers of {config.hidden_size}, {config.num_attention_heads} heads, "
            f"{estimator.model_.count_params():,} parameters"
        ),
        "Vocabulary": f"{estimator.tokenizer_.vocab_size:,} word pieces, {'uncased' if lowercase else 'cased'}",
        "Longest input": _longest_input(estimator),
        "Written by": f"kbert {kbert.__version__}",
    }
    lines = [f"| {name} | {value} |" for name, value in rows.items() if value]
    return ["| | |", "|---|---|", *lines]


def _labels(config_json: Mapping[str, Any]) -> str:
    names = config_json.get("id2label")
    if not names or config_json.get("problem_type") == "regression":
        return ""
    shown = [_code(str(name)) for name in list(names.values())[:_SHOWN_LABELS]]
    more = f" and {len(names) - _SHOWN_LABELS:,} more, in config.json" if len(names) > _SHOWN_LABELS else ""
    return ", ".join(shown) + more


def _licence(base: _Base, facts: Mapping[str, Any]) -> str:
    if "license" in facts:
        own = _code(facts["license"])
        return f"{own}; of the weights that training started from: {_code(base.licence)}" if base.licence else own
    return f"{_code(base.licence)}, that of the weights that training started from" if base.licence else ""


def _trained_on(estimator: Any, facts: Mapping[str, Any]) -> str:
    n_rows = getattr(estimator, "n_rows_", None)
    rows = "" if n_rows is None else f"{n_rows:,} row{'s' if n_rows != 1 else ''}"
    return ": ".join(part for part in (rows, _cell(facts.get("data", ""))) if part)


def _longest_input(estimator: Any) -> str:
    settled = getattr(estimator, "max_length_", estimator.max_length)
    if not isinstance(settled, int):
        return ""
    long_text = getattr(estimator, "long_text_", getattr(estimator, "long_text", None))
    rest = {"window": "; longer texts are read in windows", "truncate": "; longer texts are cut"}
    return f"{settled} tokens{rest.get(str(long_text), '')}"


def _scores(estimator: Any, facts: Mapping[str, Any]) -> list[str]:
    """The scores that were given, and the one that ``fit`` measured on validation rows."""
    rows = [(metric, value, _cell(facts.get("scored_on", ""))) for metric, value in facts.get("scores", {}).items()]
    measured = [score for score in getattr(estimator, "history_", {}).get("val_score", []) if np.isfinite(score)]
    if measured:
        chosen = getattr(estimator, "early_stopping", False)
        on = "the validation rows of `fit`" + (", which chose the epoch" if chosen else "")
        name = estimator._task().score_name or f"`{type(estimator).__name__}.score`"
        rows.append((name, max(measured) if chosen else measured[-1], on))
    if not rows:
        return []
    lines = [f"| {_cell(name)} | {value:.4g} | {on} |" for name, value, on in rows]
    return ["## Scores", "", "| score | value | measured on |", "|---|---|---|", *lines, ""]


def _loading(estimator: Any, head: _Head, config_json: Mapping[str, Any], name: str) -> list[str]:
    call, kind = head.call, type(estimator).__name__
    if getattr(estimator, "n_features_in_", 1) == 2:
        call = call.replace('["a text"]', '[("a text", "another")]')
    if getattr(estimator, "n_features_in_", 1) == 3:
        call = call.replace('("It rains.", [', '("It rains.", "What helps?", [')
    # `kbert.load` does not know a class of the user's own.
    load = f"kbert.load({name!r})" if kind in kbert.__all__ else f"{kind}.load({name!r})"
    lines = [
        "## Use",
        "",
        "With kbert (`pip install 'kbert-learn[torch]'`, or `[jax]`, or `[tensorflow]`):",
        "",
        "```python",
        "import kbert",
        "",
        f"model = {load}",
        f"model.{call}",
        "```",
        "",
    ]
    auto_class = head.auto_class
    if config_json.get("classifier_pooling") == "mean":
        auto_class = "AutoModel"
        lines += ["transformers reads the encoder alone, since the head reads the mean over the tokens:"]
    else:
        lines += ["With transformers, which opens the same weights:"]
    return [
        *lines,
        "",
        "```python",
        f"from transformers import {auto_class}, AutoTokenizer",
        "",
        f"tokenizer = AutoTokenizer.from_pretrained({name!r})",
        f"model = {auto_class}.from_pretrained({name!r})",
        "```",
        "",
        "Neither runs code from this folder.",
    ]


def _link(hub_name: str) -> str:
    return f"[{hub_name}](https://huggingface.co/{hub_name})"


def _code(text: str) -> str:
    """A text of anybody's as code in a cell of a table: in one line, and with nothing that Markdown or HTML reads."""
    return f"`{_cell(text).replace('`', chr(0x2019))}`"


def _cell(text: str) -> str:
    return printable(text).replace("|", r"\|")
