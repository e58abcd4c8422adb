"""Keras's weights files (HDF5): their arrays by path, which of BERT's each is, and the way back. No Keras here."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from io import BytesIO
from pathlib import Path
from typing import BinaryIO, NamedTuple

import ml_dtypes
import numpy as np

from kbert.errors import WeightsMismatchError
from kbert.weights.arrays import COPIED, Array, is_half, listed

# Groups and arrays of a file, and how deep they lie: for many, or deep ones, the library takes minutes. A BERT of 48
# layers has 2,000, at most ten deep.
_MOST_ITEMS, _DEEPEST = 20_000, 50

# What lies between a Hugging Face array and Keras's.
TRANSPOSED = "transposed"
SPLIT_KERNEL = "transposed, heads apart (D, N, H)"
SPLIT_BIAS = "heads apart (N, H)"
SPLIT_OUTPUT = "transposed, heads apart (N, H, D)"


class Entry(NamedTuple):
    """One array of a Keras file: its path, its Hugging Face name, and what lies between the two."""

    path: str
    name: str
    change: str = COPIED


def dense(path: str, name: str, kernel: str = TRANSPOSED, bias: str = COPIED) -> list[Entry]:
    """The two arrays of a dense layer."""
    return [Entry(f"{path}/vars/0", f"{name}.weight", kernel), Entry(f"{path}/vars/1", f"{name}.bias", bias)]


def norm(path: str, name: str) -> list[Entry]:
    """The two arrays of a LayerNorm."""
    return dense(path, name, COPIED)


def numbered(name: str, i: int) -> str:
    """How Keras calls the layer number i of a class in a file."""
    return f"{name}_{i}" if i else name


def keras_shape(change: str, shape: tuple[int, ...], heads: int) -> tuple[int, ...]:
    """The shape in a Keras file of an array that has ``shape`` in a Hugging Face file."""
    if change == SPLIT_KERNEL:
        return (shape[1], heads, shape[0] // heads)
    if change == SPLIT_BIAS:
        return (heads, shape[0] // heads)
    if change == SPLIT_OUTPUT:
        return (heads, shape[1] // heads, shape[0])
    return shape[::-1] if change == TRANSPOSED else shape


def to_keras(change: str, array: np.ndarray, heads: int) -> np.ndarray:
    """A Hugging Face array as a Keras file has it."""
    return (array if change == COPIED else array.T).reshape(keras_shape(change, array.shape, heads))


def from_keras(change: str, array: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """A Keras array as a Hugging Face file has it, of the given shape there."""
    return array if change == COPIED else np.ascontiguousarray(array.reshape(shape[::-1]).T)


def read_datasets(
    file: Path | BinaryIO, place: str | Path, skip: Callable[[str], bool]
) -> dict[str, np.ndarray | None]:
    """All arrays of an HDF5 file by path, in their own types; None for those that ``skip`` says are not to be read.

    Only what lies in the file itself is read: links to other files are passed over, and an array that claims more than
    the file holds is refused before there is memory for it.

    Raises
    ------
    WeightsMismatchError
        If the file is damaged, or an array is not one of numbers that lies in it as a whole.
    """
    import h5py

    found: dict[str, np.ndarray | None] = {}
    try:
        size = Path(file).stat().st_size if isinstance(file, Path) else len(file.getbuffer())
        with h5py.File(file, "r") as opened:
            datasets: dict[str, h5py.Dataset] = {}
            n_met = 0

            def visit(path: str, item) -> None:
                nonlocal n_met
                n_met += 1
                if n_met > _MOST_ITEMS or path.count("/") > _DEEPEST:
                    raise ValueError("more groups than a model has")
                if isinstance(item, h5py.Dataset):
                    datasets[path] = item

            opened.visititems(visit)  # which follows no links
            left = size
            for path, dataset in datasets.items():
                if skip(path):
                    found[path] = None
                    continue
                n_bytes = math.prod(dataset.shape or (0,)) * dataset.dtype.itemsize
                left -= n_bytes
                if dataset.is_virtual or dataset.external or dataset.id.get_storage_size() != n_bytes or left < 0:
                    raise WeightsMismatchError(
                        f"{path} in {place} has shape {dataset.shape}, and the file does not hold as much. It is "
                        "truncated or damaged: copy or download it again."
                    )
                found[path] = _array(dataset, path, place)
    except (WeightsMismatchError, PermissionError):
        raise
    # The library raises nearly every kind of error, depending on where a file is damaged.
    except Exception as error:
        raise WeightsMismatchError(
            f"{place} cannot be read ({type(error).__name__}: {error}). It is truncated or damaged: copy or download "
            "it again."
        ) from None
    return found


def _array(dataset, path: str, place) -> np.ndarray:
    array = dataset[()]
    if array.dtype == np.dtype("V2") and dataset.attrs.get("dtype") == "bfloat16":
        array = array.view(ml_dtypes.bfloat16)  # keras/src/saving/saving_lib.py, H5IOStore
    if array.dtype.kind != "f" and not is_half(array):
        raise WeightsMismatchError(
            f"{path} in {place} holds {array.dtype}, and weights are float16, bfloat16, float32 or float64. A "
            "quantised model cannot be turned back: save it as it was before."
        )
    return array


def match(
    found: dict[str, np.ndarray | None],
    entries: Iterable[Entry],
    shapes: dict[str, tuple[int, ...]],
    heads: int,
    place: str | Path,
) -> list[Array]:
    """The arrays of a file by their Hugging Face names.

    Raises
    ------
    WeightsMismatchError
        If one is missing, or one is of another shape than the config says, or there is one that is not BERT's.
    """
    arrays, used = [], set()
    for path, name, change in entries:
        if found.get(path) is None:
            raise WeightsMismatchError(
                f"{place} lacks {path} ({name}): it is not the file of the architecture in its config, or not complete."
            )
        array, wanted = found[path], keras_shape(change, shapes[name], heads)
        if array.shape != wanted:
            raise WeightsMismatchError(
                f"{path} ({name}) in {place} has shape {array.shape}, and its config asks for {wanted}."
            )
        used.add(path)
        arrays.append(Array(path, name, from_keras(change, array, shapes[name]), _backwards(change)))
    unknown = [path for path, array in found.items() if path not in used and array is not None]
    if unknown:
        raise WeightsMismatchError(f"{place} holds {listed(unknown)}, which the BERT of its config has not.")
    return arrays


def _backwards(change: str) -> str:
    return change.replace("heads apart", "heads together")


def is_no_weight(path: str) -> bool:
    """Whether a path is that of an optimizer's or a random generator's state."""
    return path.startswith("optimizer/") or "seed_generator/" in path


def write_datasets(path: Path, arrays: dict[str, np.ndarray], names: dict[str, str]) -> None:
    """Write arrays as Keras lays them out, with the name of each layer (by its path) where Keras notes it."""
    import h5py

    content = BytesIO()  # HDF5's library does not outlive a disk that is full
    with h5py.File(content, "w") as file:
        for layer, name in names.items():
            file.create_group(f"{layer}/vars".lstrip("/")).attrs["name"] = name
        for where, array in arrays.items():
            file.create_dataset(where, data=np.ascontiguousarray(array, dtype="float32"))
    path.write_bytes(content.getbuffer())
