"""The ``config.json`` of a weights folder: the keys of the architecture and all others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kbert.errors import WeightsMismatchError, WeightsNotFoundError
from kbert.files.json_files import json_object
from kbert.kerashub_json import config_of_preset, is_preset

# The largest config.json that is parsed: it has each label twice, and there may be 100,000 of some hundred bytes.
MOST_BYTES, MOST_VALUES = 100_000_000, 1_000_000


def read_config_json(folder: str | Path) -> dict[str, Any]:
    """Read all keys of a folder's ``config.json``, also those that do not describe the architecture.

    Google's own folders have a ``bert_config.json`` instead. The config.json of a KerasHub preset is translated into
    the keys of a Hugging Face folder.

    Raises
    ------
    WeightsNotFoundError
        If the folder has neither file.
    WeightsMismatchError
        If the file is not a JSON object, or is the preset of another model than BERT.
    """
    paths = [Path(folder) / name for name in ("config.json", "bert_config.json")]
    path = next((path for path in paths if path.is_file()), None)
    if path is None:
        raise WeightsNotFoundError(
            f"There is no config.json in {folder}. A weights folder holds config.json, model.safetensors and "
            "tokenizer.json or vocab.txt; did you mean one of its subfolders?"
        )
    values = json_object(
        path,
        WeightsMismatchError,
        " Copy or download the folder again.",
        most_bytes=MOST_BYTES,
        most_values=MOST_VALUES,
    )
    return config_of_preset(values, path.parent) if is_preset(values) else values


def output_names(values: dict[str, Any], n_outputs: int) -> list[Any] | None:
    """Return the names of a head's outputs, in their order, from ``id2label`` among the keys of a config.json.

    None if there is no ``id2label``, or if it does not have exactly one name for each output.
    """
    names, numbers = values.get("id2label"), [str(i) for i in range(n_outputs)]
    if not isinstance(names, dict) or sorted(names) != sorted(numbers):
        return None
    return [names[number] for number in numbers]
