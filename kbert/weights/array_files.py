"""Reading a file of arrays: safetensors, or PyTorch's own format.

Files may come from anybody. The sizes that a file claims are compared with its length before memory is allocated.
"""

import io
import json
import math
import pickletools
import re
import zipfile
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from kbert.errors import WeightsMismatchError, WeightsNotFoundError

# Bytes of a safetensors header. That of BERT-large, with 391 arrays, has 50 kB. For one of 100 MB the library takes
# half a minute and a gigabyte.
_LONGEST_HEADER = 1_000_000
# Bytes and steps of the pickle that lists the arrays in PyTorch's format. That of BERT-large has 60 kB and 20,000
# steps. Each step may make an object.
_LONGEST_PICKLE, _MOST_STEPS = 1_000_000, 200_000
# The steps that keep an object for later, and those that fetch it. PyTorch refuses others by which one is used twice.
_KEEPS, _FETCHES = ("BINPUT", "LONG_BINPUT"), ("BINGET", "LONG_BINGET")

# The types of safetensors (github.com/huggingface/safetensors) that kbert reads, for weights and counts.
_TYPES = {
    **{"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": ml_dtypes.bfloat16, "BOOL": "?"},
    **{"I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "i1", "U64": "<u8", "U32": "<u4", "U16": "<u2", "U8": "u1"},
}


def read_safetensors(path: Path) -> dict[str, np.ndarray]:
    """Read all arrays of a safetensors file, in the types that they have there.

    Raises
    ------
    WeightsMismatchError
        When the file is truncated or damaged, or an array has a type that NumPy does not have.
    """
    header, start = _checked_header(path)
    arrays = {}
    with path.open("rb") as file:
        for name, entry in header.items():
            kind, shape = entry["dtype"], entry["shape"]
            if kind not in _TYPES:
                raise WeightsMismatchError(
                    f"{name} in {path} is of type {kind}, in which weights are quantised. Save the model again in "
                    "float32, float16 or bfloat16."
                )
            # The library has checked the header. NumPy reads the arrays, since the library maps the file, which would
            # keep a second copy of it in memory.
            file.seek(start + entry["data_offsets"][0])
            numbers = np.fromfile(file, _TYPES[kind], math.prod(shape))
            try:
                arrays[name] = numbers.reshape(shape)
            except ValueError as error:  # a shape with a 0 takes no room in the file, however large it is otherwise
                raise WeightsMismatchError(
                    f"{name} in {path} claims the shape {tuple(shape)}, which no array has ({error}). Copy or download "
                    "the file again."
                ) from None
    return arrays


def _checked_header(path: Path) -> tuple[dict[str, dict[str, Any]], int]:
    """Check that a file is complete and undamaged.

    Returns
    -------
    header : dict
        For each array, by its name: ``dtype``, ``shape`` and ``data_offsets``.
    start : int
        The offset in bytes at which the arrays begin.
    """
    from safetensors import SafetensorError, safe_open

    size = path.stat().st_size
    try:
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            if _LONGEST_HEADER < length <= size:
                raise ValueError(f"a header of {length:,} bytes, which no BERT has")
            # The library refuses a header whose arrays overlap or do not fill the rest of the file.
            with safe_open(path, framework="np"):
                header = json.loads(file.read(length))
    except PermissionError:
        raise
    except (SafetensorError, OSError, ValueError) as error:
        raise WeightsMismatchError(
            f"{path} ({size:,} bytes) cannot be read ({error}). It is truncated or damaged: copy or download it again."
        ) from None
    header.pop("__metadata__", None)
    return header, 8 + length


def read_pickled(path: Path) -> dict[str, np.ndarray]:
    """Read all arrays of a file in PyTorch's format, zip or older, in the types that they have there.

    Raises
    ------
    WeightsNotFoundError
        When PyTorch is not installed.
    WeightsMismatchError
        When the file is damaged, or holds anything but arrays.
    """
    try:
        import torch
    except ImportError:
        raise WeightsNotFoundError(
            f"{path} is in PyTorch's own format, which needs PyTorch to read: pip install torch. "
            "Or save the model as model.safetensors, where PyTorch is installed "
            "(transformers: model.save_pretrained(folder))."
        ) from None
    size = path.stat().st_size
    try:
        _check_pickle(path, size)
        # With weights_only, PyTorch refuses everything but plain arrays, so no code in the file is run.
        state = torch.load(path, map_location="cpu", weights_only=True)
        if not isinstance(state, dict):
            raise ValueError(f"it holds a {type(state).__name__}")
        arrays = {}
        for name in list(state):
            tensor = state.pop(name)
            if not isinstance(tensor, torch.Tensor) or not isinstance(name, str):
                raise ValueError(f"{name!r} in it is a {type(tensor).__name__}, not an array")
            # A few numbers in the file may claim to be a large array by repeating (a stride of 0).
            if tensor.numel() * tensor.element_size() > size:
                raise ValueError(f"{name!r} claims the shape {tuple(tensor.shape)}, which is more than the file")
            if tensor.dtype == torch.bfloat16:  # NumPy itself has no such type
                arrays[name] = tensor.detach().view(torch.int16).numpy().view(ml_dtypes.bfloat16)
            else:
                arrays[name] = tensor.detach().numpy()
        return arrays
    except PermissionError:
        raise
    except Exception as error:
        # The first sentence only: PyTorch's messages go on to say how to run the code in the file. What its own reader
        # of plain arrays did not like comes after that.
        own = re.search(r"WeightsUnpickler error:\s*(\S[^\n]*)", str(error))
        reason = re.split(r"(?<=\.)\s", own[1] if own else str(error).strip())[0]
        raise WeightsMismatchError(
            f"{path} cannot be read as plain weights ({type(error).__name__}: {reason}). Copy or download it again, "
            "or save the model as model.safetensors."
        ) from None


def _check_pickle(path: Path, size: int) -> None:
    """Check, before PyTorch reads it, that the pickle in a file is no longer than the list of a BERT's arrays."""
    with path.open("rb") as file:
        content = file.read(_LONGEST_PICKLE + 1)
    if not content.startswith(b"PK\3\4"):  # as PyTorch tells its formats apart
        # The older one: its number, version and system, the list of the arrays, and that of their storages.
        _check_steps(content, n_pickles=5)
        return
    with zipfile.ZipFile(path) as archive:
        entries = archive.infolist()
        # PyTorch never compresses. A compressed file could unpack to a thousand times its size.
        if sum(entry.file_size for entry in entries) > size:
            raise ValueError("its parts claim more bytes than the file has")
        for entry in entries:
            if entry.filename.lower().endswith("data.pkl"):  # PyTorch finds it in any case
                with archive.open(entry) as file:
                    _check_steps(file.read(_LONGEST_PICKLE + 1))


def _check_steps(content: bytes, n_pickles: int = 1) -> None:
    """Go through pickles without running them."""
    stream, n_steps = io.BytesIO(content), 0
    try:
        for _ in range(n_pickles):
            kept_tuples: set[Any] = set()
            is_tuple = False
            for step, argument, _ in pickletools.genops(stream):
                n_steps += 1
                if n_steps > _MOST_STEPS:
                    raise ValueError(f"its pickle has more than {_MOST_STEPS:,} steps, and no BERT has so many arrays")
                if step.name in _KEEPS:
                    if is_tuple:
                        kept_tuples.add(argument)
                    continue
                # A tuple of a tuple twice, and so on 50 times: as the key of a dict, it takes years.
                if step.name in _FETCHES and argument in kept_tuples:
                    raise ValueError("its pickle uses a tuple twice, which no list of arrays does")
                is_tuple = "TUPLE" in step.name
    except ValueError:
        if n_steps <= _MOST_STEPS and stream.tell() > _LONGEST_PICKLE:
            raise ValueError(f"its pickle has more than {_LONGEST_PICKLE:,} bytes, and no BERT's has") from None
        raise
