"""The same data sets through the Hugging Face library ``datasets``, in the same columns."""

from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import pandas as pd

from kbert.datasets.choices import choices_frame, swag_choice
from kbert.datasets.conll import iob1_to_bio
from kbert.datasets.glue import GLUE, ZERO_ONE, text_names
from kbert.datasets.squad import Question, squad_frame
from kbert.errors import DatasetNotFoundError


@dataclass(frozen=True)
class Repository:
    """A data set on the hub: its name, configuration and branch, and the text columns if it is a GLUE task."""

    name: str
    config: str | None = None
    revision: str | None = None
    texts: tuple[str, ...] = ()


_GLUE_TEXTS = {
    "cola": ("sentence",),
    "sst2": ("sentence",),
    "mrpc": ("sentence1", "sentence2"),
    "stsb": ("sentence1", "sentence2"),
    "qqp": ("question1", "question2"),
    "mnli": ("premise", "hypothesis"),
    "qnli": ("question", "sentence"),
    "rte": ("sentence1", "sentence2"),
    "wnli": ("sentence1", "sentence2"),
    "ax": ("premise", "hypothesis"),
}
HUB: dict[str, Repository] = {
    **{task: Repository("nyu-mll/glue", task, texts=texts) for task, texts in _GLUE_TEXTS.items()},
    "squad": Repository("rajpurkar/squad"),
    "squad_v2": Repository("rajpurkar/squad_v2"),
    # The repository itself has a loading script, which datasets 4 and later refuse; this branch has its output.
    "conll2003": Repository("eriktks/conll2003", revision="refs/convert/parquet"),
    "swag": Repository("allenai/swag", "regular"),
}


def library_is_installed() -> bool:
    """Whether ``import datasets`` would find the library. A folder of data with that name does not count."""
    spec = find_spec("datasets")
    return spec is not None and spec.origin is not None


def load_from_hub(name: str, part: str) -> pd.DataFrame:
    """Load one part of a data set through the library, which keeps downloads in its own cache.

    Raises
    ------
    DatasetNotFoundError
        If the library cannot be imported or cannot load the data set.
    """
    try:
        from datasets import load_dataset
    except ImportError as error:
        raise DatasetNotFoundError(
            "The Hugging Face library could not be imported. Install it with: pip install datasets"
        ) from error
    repository = HUB[name]
    options = {} if repository.revision is None else {"revision": repository.revision}
    if repository.config is not None:
        options["name"] = repository.config
    split = part.replace("dev", "validation", 1)
    try:
        dataset = load_dataset(repository.name, split=split, **options)
    # Many kinds of error can occur in there, from the network to a damaged cache.
    except Exception as error:
        raise DatasetNotFoundError(
            f"The library datasets could not load {repository.name} ({split}): {type(error).__name__}: {error}"
        ) from error
    columns = dataset.to_dict()
    if name in GLUE:
        return _glue(name, columns, dataset.features)
    if name == "conll2003":
        return _conll(columns, dataset.features)
    if name == "swag":
        records = (dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True))
        return choices_frame(swag_choice(record, f"{repository.name}, row {i}") for i, record in enumerate(records))
    return _squad(columns, repository.name)


def _glue(task: str, columns: dict[str, list[Any]], features: Any) -> pd.DataFrame:
    texts = HUB[task].texts
    frame = {new: columns[old] for new, old in zip(text_names(len(texts)), texts, strict=True)}
    labels = columns.get("label", [])
    withheld = [label is None or label == -1 for label in labels]
    if any(withheld) and not all(withheld):
        raise ValueError(f"{HUB[task].name}, {task}, row {withheld.index(True)}: has no label, and others have.")
    if not all(withheld):
        if GLUE[task].labels is None:
            frame["label"] = [float(label) for label in labels]
        elif GLUE[task].labels == ZERO_ONE:
            # The hub's label names ("acceptable") are not GLUE's, but its label numbers are.
            frame["label"] = [str(label) for label in labels]
        else:
            names = features["label"].names
            frame["label"] = [names[label] for label in labels]
    if "idx" in columns:
        frame["index"] = columns["idx"]
    return pd.DataFrame(frame)


def _conll(columns: dict[str, list[Any]], features: Any) -> pd.DataFrame:
    names = features["ner_tags"].feature.names
    # The hub has no lines that begin a document, and empty sentences where they were.
    rows = [
        (words, [names[tag] for tag in tags])
        for words, tags in zip(columns["tokens"], columns["ner_tags"], strict=True)
        if words
    ]
    tags = iob1_to_bio([tags for _, tags in rows])
    return pd.DataFrame({"words": [words for words, _ in rows], "tags": tags, "document": 0})


def _squad(columns: dict[str, list[Any]], source: str) -> pd.DataFrame:
    questions = []
    for i, answers in enumerate(columns["answers"]):
        pairs = list(zip(answers["text"], answers["answer_start"], strict=True))
        questions.append(
            Question(columns["id"][i], columns["title"][i], columns["question"][i], columns["context"][i], pairs)
        )
    return squad_frame(questions, source)
