"""Reading and writing Keras's weights files (HDF5), whose arrays are found by paths. No Keras here."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import ml_dtypes
import numpy as np

from kbert.errors import WeightsMismatchError
from kbert.values.printable import listed
from kbert.weights.arrays import COPIED, Array, is_half

if TYPE_CHECKING:
    import h5py

# The most groups and arrays of a file, and their greatest depth: with more the library takes minutes. A BERT of 48
# layers has 2,000, at most ten deep.
_MOST_ITEMS, _DEEPEST = 20_000, 50

# How the shape of a Hugging Face array is changed for a Keras file. Letter key: D hidden, N heads, H head size.
TRANSPOSED = "transposed"
SPLIT_KERNEL = "transposed, heads apart (D, N, H)"
SPLIT_BIAS = "heads apart (N, H)"
SPLIT_OUTPUT = "transposed, heads apart (N, H, D)"


class Entry(NamedTuple):
    """One array of a Keras file: its path there, its Hugging Face name, and how the shape of the latter is changed."""

    path: str
    name: str
    change: str = COPIED


def dense(path: str, name: str, kernel: str = TRANSPOSED, bias: str = COPIED) -> list[Entry]:
    """Return the entries of the two arrays of a dense layer."""
    return [Entry(f"{path}/vars/0", f"{name}.weight", kernel), Entry(f"{path}/vars/1", f"{name}.bias", bias)]


def norm(path: str, name: str) -> list[Entry]:
    """Return the entries of the two arrays of a LayerNorm."""
    return dense(path, name, COPIED)


def numbered(name: str, i: int) -> str:
    """Return Keras's name, in a file, for layer number ``i`` of a class."""
    return f"{name}_{i}" if i else name


def keras_shape(change: str, shape: tuple[int, ...], heads: int) -> tuple[int, ...]:
    """Return the shape in a Keras file of an array that has ``shape`` in a Hugging Face file."""
    if change == SPLIT_KERNEL:
        return (shape[1], heads, shape[0] // heads)
    if change == SPLIT_BIAS:
        return (heads, shape[0] // heads)
    if change == SPLIT_OUTPUT:
        return (heads, shape[1] // heads, shape[0])
    return shape[::-1] if change == TRANSPOSED else shape


def to_keras(change: str, array: np.ndarray, heads: int) -> np.ndarray:
    """Give a Hugging Face array the shape that it has in a Keras file."""
    return (array if change == COPIED else array.T).reshape(keras_shape(change, array.shape, heads))


def from_keras(change: str, array: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Give a Keras array the shape that it has in a Hugging Face file, which is ``shape``."""
    return array if change == COPIED else np.ascontiguousarray(array.reshape(shape[::-1]).T)


def read_datasets(file: Path | BytesIO, path: str | Path, skip: Callable[[str], bool]) -> dict[str, np.ndarray | None]:
    """Read all arrays of an HDF5 file, in the types that they have there.

    Links to other files are ignored. An array that claims to be larger than the file is refused before memory is
    allocated for it.

    Parameters
    ----------
    file : Path or BytesIO
    path : str or Path
        What messages call the file.
    skip : callable
        Path of an array in the file -> whether it is not to be read.

    Returns
    -------
    dict of ndarray
        By their paths in the file; None for those that were skipped.

    Raises
    ------
    WeightsMismatchError
        If the file is damaged, or an array is not of floating point or not complete in the file itself.
    """
    import h5py

    found: dict[str, np.ndarray | None] = {}
    try:
        size = Path(file).stat().st_size if isinstance(file, Path) else len(file.getbuffer())
        with h5py.File(file, "r") as opened:
            datasets: dict[str, h5py.Dataset] = {}
            n_items = 0

            def visit(name: str, item: Any) -> None:
                nonlocal n_items
                n_items += 1
                if n_items > _MOST_ITEMS or name.count("/") > _DEEPEST:
                    raise ValueError("more groups than a model has")
                if isinstance(item, h5py.Dataset):
                    datasets[name] = item

            opened.visititems(visit)  # this does not follow links
            bytes_left = size
            for name, dataset in datasets.items():
                if skip(name):
                    found[name] = None
                    continue
                n_bytes = math.prod(dataset.shape or (0,)) * dataset.dtype.itemsize
                bytes_left -= n_bytes
                is_elsewhere = dataset.is_virtual or dataset.external
                if is_elsewhere or dataset.id.get_storage_size() != n_bytes or bytes_left < 0:
                    raise WeightsMismatchError(
                        f"{name} in {path} has shape {dataset.shape}, and the file does not hold as much. It is "
                        "truncated or damaged: copy or download it again."
                    )
                found[name] = _array(dataset, name, path)
    except (WeightsMismatchError, PermissionError):
        raise
    # The library raises nearly every kind of error, depending on where a file is damaged.
    except Exception as error:
        raise WeightsMismatchError(
            f"{path} cannot be read ({type(error).__name__}: {error}). It is truncated or damaged: copy or download "
            "it again."
        ) from None
    return found


def _array(dataset: h5py.Dataset, name: str, path: str | Path) -> np.ndarray:
    array: np.ndarray = dataset[()]
    if array.dtype == np.dtype("V2") and dataset.attrs.get("dtype") == "bfloat16":
        array = array.view(ml_dtypes.bfloat16)  # keras/src/saving/saving_lib.py, H5IOStore
    if array.dtype.kind != "f" and not is_half(array):
        raise WeightsMismatchError(
            f"{name} in {path} holds {array.dtype}, and weights are float16, bfloat16, float32 or float64. A "
            "quantised model cannot be turned back: save it as it was before."
        )
    return array


def match(
    found: dict[str, np.ndarray | None],
    entries: Iterable[Entry],
    shapes: dict[str, tuple[int, ...]],
    heads: int,
    path: str | Path,
) -> list[Array]:
    """Find the arrays of a model among those of a file.

    Parameters
    ----------
    found : dict of ndarray
        What `read_datasets` gave.
    entries : iterable of Entry
        The arrays that the model has.
    shapes : dict of tuple
        Their shapes in a Hugging Face file, by name.
    heads : int
        Attention heads.
    path : str or Path
        What messages call the file.

    Returns
    -------
    list of Array
        In the shapes of a Hugging Face file.

    Raises
    ------
    WeightsMismatchError
        If an array is missing or of another shape than the config says, or if the file has one that is not BERT's.
    """
    arrays, used = [], set()
    for keras_path, name, change in entries:
        array = found.get(keras_path)
        if array is None:
            raise WeightsMismatchError(
                f"{path} lacks {keras_path} ({name}): it is not the file of the architecture in its config, or not "
                "complete."
            )
        shape = keras_shape(change, shapes[name], heads)
        if array.shape != shape:
            raise WeightsMismatchError(
                f"{keras_path} ({name}) in {path} has shape {array.shape}, and its config asks for {shape}."
            )
        used.add(keras_path)
        arrays.append(Array(keras_path, name, from_keras(change, array, shapes[name]), _reversed(change)))
    unknown = [keras_path for keras_path, array in found.items() if keras_path not in used and array is not None]
    if unknown:
        raise WeightsMismatchError(f"{path} holds {listed(unknown)}, which the BERT of its config does not have.")
    return arrays


def _reversed(change: str) -> str:
    """Describe the change from a Keras file to a Hugging Face file."""
    return change.replace("heads apart", "heads together")


def is_state(path: str) -> bool:
    """Whether a path is that of the state of an optimizer or a random generator, and not of a weight."""
    return path.startswith("optimizer/") or "seed_generator/" in path


def write_datasets(path: Path, arrays: dict[str, np.ndarray], names: dict[str, str]) -> None:
    """Write a weights file as Keras does.

    Parameters
    ----------
    path : Path
    arrays : dict of ndarray
        By their paths in the file. They are written as float32.
    names : dict of str
        The name of each layer, by its path. Keras stores them as attributes.
    """
    import h5py

    content = BytesIO()  # the HDF5 library itself may crash where the disk is full
    with h5py.File(content, "w") as file:
        for layer, name in names.items():
            file.create_group(f"{layer}/vars".lstrip("/")).attrs["name"] = name
        for keras_path, array in arrays.items():
            file.create_dataset(keras_path, data=np.ascontiguousarray(array, dtype="float32"))
    path.write_bytes(content.getbuffer())
