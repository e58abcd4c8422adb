"""Weights folders as plain arrays: model.safetensors, pytorch_model.bin or Google's checkpoint in, safetensors out."""

import json
from pathlib import Path

import numpy as np

from kbert.errors import WeightsMismatchError, WeightsNotFoundError

SAFETENSORS = "model.safetensors"
PICKLED = "pytorch_model.bin"


def read_arrays(folder: str | Path) -> dict[str, np.ndarray]:
    """All arrays of a weights folder by the names in the file; those of a TensorFlow checkpoint of Google's by theirs
    in transformers.

    Raises
    ------
    WeightsNotFoundError
        When the folder holds no weights file.
    WeightsMismatchError
        When the file is damaged.
    """
    folder = Path(folder)
    if (folder / SAFETENSORS).is_file():
        return _read_safetensors(folder / SAFETENSORS)
    if (folder / PICKLED).is_file():
        return _read_pickled(folder / PICKLED)
    # Imported here because it needs the names of transformers, which are beside what reads this file.
    from kbert.weights.google import find_checkpoint, read_google

    if find_checkpoint(folder) is not None:
        return read_google(folder)
    raise WeightsNotFoundError(
        f"There is no {SAFETENSORS} in {folder}, nor a TensorFlow checkpoint (bert_model.ckpt.index). Save the model "
        "there again (transformers: model.save_pretrained(folder, safe_serialization=True))."
    )


def _read_safetensors(path: Path) -> dict[str, np.ndarray]:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="np") as file:
            return {name: file.get_tensor(name) for name in file.keys()}
    except (SafetensorError, OSError, ValueError, TypeError) as error:
        size = path.stat().st_size
        raise WeightsMismatchError(
            f"{path} ({size:,} bytes) cannot be read ({error}). It is truncated or damaged: copy or download it again."
        ) from None


def _read_pickled(path: Path) -> dict[str, np.ndarray]:
    try:
        import torch
    except ImportError:
        raise WeightsNotFoundError(
            f"{path} is in PyTorch's own format, which needs PyTorch to read: pip install torch. "
            "Or save the model as model.safetensors."
        ) from None
    try:
        # weights_only refuses everything but plain arrays, so that no code of the file is run.
        state = torch.load(path, map_location="cpu", weights_only=True)
        return {name: tensor.float().numpy() for name, tensor in state.items()}
    except Exception as error:
        raise WeightsMismatchError(
            f"{path} cannot be read as plain weights ({type(error).__name__}: {error}). Copy or download it again, "
            "or save the model as model.safetensors."
        ) from None


def write_folder(folder: str | Path, config: dict, arrays: dict[str, np.ndarray]) -> None:
    """Write ``config.json`` and ``model.safetensors`` into a folder, which is made where it is missing."""
    from safetensors.numpy import save_file

    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    # transformers reads the "format" key, and refuses a file without one.
    save_file(
        {name: np.ascontiguousarray(array) for name, array in arrays.items()}, folder / SAFETENSORS, {"format": "pt"}
    )
