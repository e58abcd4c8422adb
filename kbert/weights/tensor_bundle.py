"""TensorFlow's checkpoints (version 2 of the format), read and written without TensorFlow.

A checkpoint with the prefix ``model.ckpt`` consists of an index, ``model.ckpt.index``, and of one or more data files,
``model.ckpt.data-00000-of-00001`` and so on. The index is a sorted table with the type, shape, data file, offset and
checksum of each array; the data files hold the bytes of the arrays. The format is defined in
github.com/tensorflow/tensorflow: tensorflow/core/util/tensor_bundle/tensor_bundle.h and
tensorflow/core/protobuf/tensor_bundle.proto.
"""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import ml_dtypes
import numpy as np

from kbert.errors import WeightsMismatchError, WeightsNotFoundError
from kbert.weights.crc32c import masked_crc32c
from kbert.weights.sorted_table import read_table, read_varint, write_table, write_varint

# The numbers of the types of arrays (tensorflow/core/framework/types.proto).
_DTYPES = {
    1: np.dtype("float32"),
    2: np.dtype("float64"),
    3: np.dtype("int32"),
    4: np.dtype("uint8"),
    5: np.dtype("int16"),
    6: np.dtype("int8"),
    9: np.dtype("int64"),
    14: np.dtype(ml_dtypes.bfloat16),
    17: np.dtype("uint16"),
    19: np.dtype("float16"),
    22: np.dtype("uint32"),
    23: np.dtype("uint64"),
}
_NUMBERS = {dtype: number for number, dtype in _DTYPES.items()}
_UNREAD = {7: "text", 8: "complex64", 10: "bool", 18: "complex128", 20: "resource", 21: "variant"}

# Limits on what an index may claim. That of BERT-large with the variables of an optimizer has 60 kB.
_LARGEST_INDEX = 1 << 20
_MOST_DIMENSIONS = 16
_LONGEST_NAME = 1000
_HEADER = b""  # the key of the entry about the checkpoint as a whole
_REMEDY = "It is truncated or damaged: copy or download it again."


class Entry(NamedTuple):
    """What the index says about one array.

    Attributes
    ----------
    dtype : int
        TensorFlow's number of the type.
    shape : tuple of int
    shard : int
        The number of the data file, from 0.
    offset, size : int
        Where in the data file its bytes begin, and how many there are.
    checksum : int
        The masked CRC-32C of its bytes.
    """

    dtype: int
    shape: tuple[int, ...]
    shard: int
    offset: int
    size: int
    checksum: int


class TensorBundle:
    """A checkpoint, whose arrays are read one at a time.

    Parameters
    ----------
    prefix : str or Path
        The path without ``.index``, as TensorFlow takes it.

    Attributes
    ----------
    entries : dict of str to Entry
        By the names of the arrays.

    Raises
    ------
    WeightsNotFoundError
        If the index or a data file is missing.
    WeightsMismatchError
        If the index is damaged, or does not fit the data files.
    """

    def __init__(self, prefix: str | Path):
        self.prefix = Path(prefix)
        self.path = self.prefix.with_name(self.prefix.name + ".index")
        try:
            header, self.entries = _parsed(read_table(self._index()))
            self._shards = _number_of_shards(header)
            self._check_offsets()
        except WeightsMismatchError:
            raise
        except NotImplementedError as error:
            raise WeightsMismatchError(
                f"{self.path}: {error}, which kbert does not read. Open the checkpoint with TensorFlow and save it "
                "again."
            ) from None
        except ValueError as error:
            size = self.path.stat().st_size
            raise WeightsMismatchError(
                f"{self.path} ({size:,} bytes) cannot be read as the index of a TensorFlow checkpoint: {error}. "
                + _REMEDY
            ) from None

    def read(self, name: str) -> np.ndarray:
        """Read one array, and check its checksum.

        Raises
        ------
        WeightsMismatchError
            If the data is damaged, or the array is of a type that kbert does not read.
        """
        entry = self.entries[name]
        if entry.dtype not in _DTYPES:
            kind = _UNREAD.get(entry.dtype, "unknown")
            known = ", ".join(str(dtype) for dtype in _DTYPES.values())
            raise WeightsMismatchError(
                f"{name} in {self.prefix} is of TensorFlow's type {entry.dtype} ({kind}); kbert reads {known}."
            )
        path = self._data(entry.shard)
        try:
            data = np.fromfile(path, "uint8", entry.size, offset=entry.offset)
            array: np.ndarray = data.view(_DTYPES[entry.dtype]).reshape(entry.shape)
        except PermissionError:
            raise
        except (OSError, ValueError) as error:
            raise WeightsMismatchError(f"{path}: {name} cannot be read ({error}). {_REMEDY}") from None
        if masked_crc32c(data) != entry.checksum:
            raise WeightsMismatchError(
                f"{path}: the checksum of {name} is wrong. The file is damaged, or belongs to another index: "
                "copy or download both again."
            )
        return array

    def _index(self) -> bytes:
        if not self.path.is_file():
            raise WeightsNotFoundError(f"There is no {self.path}, the index of a TensorFlow checkpoint.")
        size = self.path.stat().st_size
        if size > _LARGEST_INDEX:
            raise ValueError(f"that of a BERT has no more than {_LARGEST_INDEX:,} bytes")
        return self.path.read_bytes()

    def _data(self, shard: int) -> Path:
        return self.prefix.with_name(f"{self.prefix.name}.data-{shard:05d}-of-{self._shards:05d}")

    def _check_offsets(self) -> None:
        """Check that all arrays lie within their data files, and that none overlaps another."""
        free: dict[int, tuple[int, int]] = {}  # by data file: the offset after the last array, and the file's length
        extents = ((entry.shard, entry.offset, entry.size, name) for name, entry in self.entries.items())
        for shard, offset, size, name in sorted(extents):
            path = self._data(shard)
            if shard not in free:
                if shard >= self._shards:
                    raise ValueError(f"{name} is said to be in file {shard + 1} of {self._shards}")
                if not path.is_file():
                    raise WeightsNotFoundError(
                        f"There is no {path}, which {self.path.name} refers to. Copy or download it too."
                    )
                free[shard] = 0, path.stat().st_size
            start, length = free[shard]
            if offset + size > length:
                raise WeightsMismatchError(
                    f"{path} ({length:,} bytes) ends before {name}, {size:,} bytes from {offset:,} on. {_REMEDY}"
                )
            if offset < start:
                raise ValueError(f"{name} lies over another array")
            free[shard] = offset + size, length


def write_bundle(prefix: str | Path, arrays: dict[str, np.ndarray], dtype: str | None = None) -> None:
    """Write a checkpoint that ``tf.train.load_checkpoint(prefix)`` opens.

    Parameters
    ----------
    prefix : str or Path
        In a folder that exists. The index is written last, so that an incomplete checkpoint has none.
    arrays : dict of str to ndarray
        Of whole numbers or floating point, which may be bfloat16.
    dtype : str, optional
        The type that all arrays are written in; None keeps that of each array.

    Raises
    ------
    TypeError
        If an array is of a type that the format, or kbert, does not have.
    """
    prefix = Path(prefix)
    for name, array in arrays.items():
        if array.dtype.newbyteorder("=") not in _NUMBERS:
            raise TypeError(f"{name} is of {array.dtype}, which kbert does not write into a checkpoint.")
    index = prefix.with_name(prefix.name + ".index")
    index.unlink(missing_ok=True)
    # The header: one data file, and version 1 of the format.
    table = {_HEADER: _field(1, 1) + _field(3, _field(1, 1))}
    offset = 0
    with open(prefix.with_name(prefix.name + ".data-00000-of-00001"), "wb") as file:
        for name, array in sorted(arrays.items()):
            array = array.astype(dtype or array.dtype.newbyteorder("<"), order="C", copy=False)
            data = array.reshape(-1).view("uint8")
            file.write(data.data)
            shape = b"".join(_field(2, _field(1, size)) for size in array.shape)
            checksum = masked_crc32c(data).to_bytes(4, "little")
            entry = _field(1, _NUMBERS[array.dtype]) + _field(2, shape) + _field(4, offset) + _field(5, len(data))
            table[name.encode()] = entry + write_varint(6 << 3 | 5) + checksum
            offset += len(data)
    index.write_bytes(write_table(table))


# === The entries of the index, which are Protocol Buffers messages ===


# The fields of a message by their numbers: a number, or the bytes of a string or another message.
Fields = dict[int, int | bytes]


def _parsed(table: dict[bytes, bytes]) -> tuple[Fields, dict[str, Entry]]:
    """Return the fields of the header, and the entries by name."""
    if _HEADER not in table:
        raise ValueError("it lacks the header of a checkpoint")
    header = dict(_fields(table.pop(_HEADER)))
    if any(len(name) > _LONGEST_NAME for name in table):
        raise ValueError(f"an array has a name of more than {_LONGEST_NAME:,} bytes")
    return header, {name.decode("utf-8", "backslashreplace"): _entry(value) for name, value in table.items()}


def _number_of_shards(header: Fields) -> int:
    shards, version = header.get(1, 0), dict(_fields(_message(header.get(3, b""))))
    if header.get(2, 0):
        raise NotImplementedError("it was written on a big-endian machine")
    if version.get(2, 0) not in (0, 1):
        raise NotImplementedError("it asks for a later version of the format than 1")
    if not isinstance(shards, int) or not 1 <= shards <= 99999:
        raise ValueError(f"it names {shards!r} files of data")
    return shards


def _entry(data: bytes) -> Entry:
    # The fields of BundleEntryProto: 1 dtype, 2 shape, 3 shard, 4 offset, 5 size, 6 checksum, 7 slices.
    numbers, shape = dict.fromkeys((1, 3, 4, 5, 6), 0), b""
    for number, value in _fields(data):
        if number == 7:
            raise NotImplementedError("it holds arrays in slices (partitioned variables)")
        if number == 2 and isinstance(value, bytes):
            shape = value
        elif number in numbers and isinstance(value, int):
            numbers[number] = value
        elif number == 2 or number in numbers:
            raise ValueError("an entry has fields of the wrong type")
    sizes: list[int] = []
    for number, value in _fields(shape):
        if number == 2:
            size = dict(_fields(_message(value))).get(1, 0)
            if not isinstance(size, int) or len(sizes) == _MOST_DIMENSIONS:
                raise ValueError("an array has a shape that no array can have")
            sizes.append(size)
    entry = Entry(numbers[1], tuple(sizes), numbers[3], numbers[4], numbers[5], numbers[6])
    dtype = _DTYPES.get(entry.dtype)
    if dtype is not None and math.prod(sizes) * dtype.itemsize != entry.size:
        raise ValueError(f"an array of shape {entry.shape} and type {dtype} is said to have {entry.size:,} bytes")
    return entry


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield the number and the value of each field of a message."""
    position = 0
    while position < len(data):
        key, position = read_varint(data, position)
        number, kind = key >> 3, key & 7
        if kind == 0:
            value, position = read_varint(data, position)
            yield number, value
            continue
        if kind not in (1, 2, 5):
            raise ValueError("a message has a field of a kind that there is not")
        length, position = read_varint(data, position) if kind == 2 else ({1: 8, 5: 4}[kind], position)
        if position + length > len(data):
            raise ValueError("a message ends within a field")
        content = data[position : position + length]
        position += length
        yield number, content if kind == 2 else int.from_bytes(content, "little")


def _message(value: int | bytes) -> bytes:
    if not isinstance(value, bytes):
        raise ValueError("a number stands where a message should")
    return value


def _field(number: int, value: int | bytes) -> bytes:
    """Encode a number or a message as a field. A number of 0 is left out, as in TensorFlow."""
    if isinstance(value, bytes):
        return write_varint(number << 3 | 2) + write_varint(len(value)) + value
    return write_varint(number << 3) + write_varint(value) if value else b""
