"""TensorFlow's checkpoints without TensorFlow: the same files in both directions, and errors for what is damaged."""

import random
import sys
import tracemalloc

import ml_dtypes
import numpy as np
import pytest

from kbert.errors import WeightsMismatchError, WeightsNotFoundError
from kbert.weights.crc32c import masked_crc32c
from kbert.weights.sorted_table import read_table, write_table, write_varint
from kbert.weights.tensor_bundle import TensorBundle, write_bundle


def _read(prefix):
    bundle = TensorBundle(prefix)
    return {name: bundle.read(name) for name in bundle.entries}


def _same(first, second):
    return set(first) == set(second) and all(
        first[name].dtype == second[name].dtype
        and first[name].shape == second[name].shape
        and first[name].tobytes() == second[name].tobytes()
        for name in first
    )


def _arrays():
    """Of every type that is read, in every number of dimensions, empty ones included, and many of them."""
    rng = np.random.default_rng(0)
    arrays = {
        "global_step": np.array(7, "int64"),
        "empty": np.zeros((0, 3), "float32"),
        "long": rng.normal(size=(300, 500)).astype("float32"),
        "bfloat16": rng.normal(size=(2, 3)).astype(ml_dtypes.bfloat16),
        **{f"float{bits}": rng.normal(size=(2, 1, 3)).astype(f"float{bits}") for bits in (16, 64)},
        **{f"int{bits}": rng.integers(-100, 100, 4).astype(f"int{bits}") for bits in (8, 16, 32, 64)},
        **{f"uint{bits}": rng.integers(0, 200, 4).astype(f"uint{bits}") for bits in (8, 16, 32, 64)},
    }
    # Names that share a beginning, of more than one restart of a block.
    return arrays | {f"layer_{i}/kernel": rng.normal(size=(2, 3)).astype("float32") for i in range(50)}


# === The same in TensorFlow ===


@pytest.fixture(scope="module")
def tensorflow():
    return pytest.importorskip("tensorflow", reason="to compare with TensorFlow, run: pip install tensorflow")


def _save(tensorflow, prefix, arrays, devices=1):
    """Write a checkpoint by the Saver that google-research/bert uses; on more devices than one, in as many files."""
    v1 = tensorflow.compat.v1
    config = v1.ConfigProto(device_count={"CPU": devices})
    with tensorflow.Graph().as_default(), v1.Session(config=config) as session:
        variables = []
        for i, (name, array) in enumerate(arrays.items()):
            with tensorflow.device(f"/cpu:{i % devices}"):
                variables.append(v1.get_variable(name, initializer=tensorflow.constant(array)))
        session.run(v1.global_variables_initializer())
        v1.train.Saver(variables, sharded=devices > 1).save(session, str(prefix), write_meta_graph=False)


def test_what_tensorflow_wrote_is_read_without_it(tensorflow, tmp_path, monkeypatch):
    arrays = _arrays()
    _save(tensorflow, tmp_path / "model.ckpt", arrays)
    monkeypatch.setitem(sys.modules, "tensorflow", None)  # importing it fails from here on
    assert _same(_read(tmp_path / "model.ckpt"), arrays)


def test_a_checkpoint_in_several_files_is_read(tensorflow, tmp_path):
    arrays = _arrays()
    _save(tensorflow, tmp_path / "model.ckpt", arrays, devices=3)
    assert len(list(tmp_path.glob("model.ckpt.data-*-of-00003"))) == 3
    assert _same(_read(tmp_path / "model.ckpt"), arrays)
    (tmp_path / "model.ckpt.data-00001-of-00003").unlink()
    with pytest.raises(WeightsNotFoundError, match="model.ckpt.data-00001-of-00003, which model.ckpt.index refers to"):
        TensorBundle(tmp_path / "model.ckpt")


def test_what_is_written_is_what_tensorflow_writes_byte_for_byte(tensorflow, tmp_path):
    arrays = _arrays()
    _save(tensorflow, tmp_path / "theirs.ckpt", arrays)
    write_bundle(tmp_path / "ours.ckpt", arrays)
    for ending in (".index", ".data-00000-of-00001"):
        ours, theirs = ((tmp_path / f"{name}.ckpt{ending}").read_bytes() for name in ("ours", "theirs"))
        assert ours == theirs


def test_what_is_written_is_read_by_tensorflow(tensorflow, tmp_path):
    arrays = {**_arrays(), "transposed": np.arange(6.0).reshape(2, 3).T, "Ω/ü": np.ones(1, "float32")}
    write_bundle(tmp_path / "model.ckpt", arrays)
    reader = tensorflow.train.load_checkpoint(str(tmp_path / "model.ckpt"))
    assert _same({name: reader.get_tensor(name) for name in reader.get_variable_to_dtype_map()}, arrays)
    assert _same(_read(tmp_path / "model.ckpt"), arrays)


def test_arrays_of_any_byte_order_are_written_alike(tmp_path):
    arrays = _arrays()
    swapped = {name: array.astype(array.dtype.newbyteorder(">")) for name, array in arrays.items()}
    assert sum(swapped[name].dtype != array.dtype for name, array in arrays.items()) > 50
    write_bundle(tmp_path / "little", arrays)
    write_bundle(tmp_path / "big", swapped)
    for ending in ENDINGS:
        assert (tmp_path / f"big{ending}").read_bytes() == (tmp_path / f"little{ending}").read_bytes()


# === What is damaged ===


@pytest.fixture
def small(tmp_path):
    """A checkpoint of some hundred bytes, and its arrays."""
    rng = np.random.default_rng(0)
    arrays = {f"bert/layer_{i}/kernel": rng.normal(size=(2, 3)).astype("float32") for i in range(4)}
    arrays["global_step"] = np.array(5, "int64")
    write_bundle(tmp_path / "model.ckpt", arrays)
    return tmp_path / "model.ckpt", arrays


ENDINGS = (".index", ".data-00000-of-00001")


def _replace(file, data):
    """Change what an open file holds, which takes a tenth of the time of writing a new one."""
    file.seek(0)
    file.write(data)
    file.truncate()
    file.flush()


def _error_or_the_same(prefix, arrays):
    """Whether it is read as if nothing had happened."""
    try:
        read = _read(prefix)
    except (WeightsMismatchError, WeightsNotFoundError):
        return False
    assert _same(read, arrays)
    return True


@pytest.mark.parametrize("ending", ENDINGS)
def test_every_truncation_is_an_error_with_the_files_name(small, ending):
    prefix, _ = small
    path = prefix.with_name(prefix.name + ending)
    content = path.read_bytes()
    for kept in range(len(content)):
        path.write_bytes(content[:kept])
        with pytest.raises(WeightsMismatchError, match=rf"{path.name} \({kept:,} bytes\)"):
            _read(prefix)


@pytest.mark.parametrize("ending", ENDINGS)
def test_five_thousand_damaged_files_are_errors_or_read_as_they_were(small, ending):
    prefix, arrays = small
    path = prefix.with_name(prefix.name + ending)
    content = path.read_bytes()
    rng, read = random.Random(0), 0
    with open(path, "r+b") as file:
        for i in range(5000):
            data = bytearray(content)
            for _ in range(rng.choice([1, 1, 2, 8])):
                place = rng.randrange(len(data))
                if i % 3 == 0:
                    data[place] ^= 1 << rng.randrange(8)
                elif i % 3 == 1:
                    data[place] = rng.randrange(256)
                else:  # bytes are lost, and others come in
                    data[place : place + rng.randrange(9)] = rng.randbytes(rng.randrange(9))
            _replace(file, data)
            read += _error_or_the_same(prefix, arrays)
    # Only what is no part of it may change: the zeros in the footer, or a byte that became itself.
    assert read < 5000 / 4


def test_every_changed_bit_of_the_data_is_found(small):
    prefix, _ = small
    path = prefix.with_name(prefix.name + ENDINGS[1])
    content = path.read_bytes()
    with open(path, "r+b") as file:
        for bit in range(8 * len(content)):
            data = bytearray(content)
            data[bit // 8] ^= 1 << bit % 8
            _replace(file, data)
            with pytest.raises(WeightsMismatchError, match="checksum of .* is wrong"):
                _read(prefix)


def test_the_data_of_another_checkpoint_is_found(small):
    prefix, arrays = small
    index = prefix.with_name(prefix.name + ".index")
    before = index.read_bytes()
    write_bundle(prefix, {name: array + 1 for name, array in arrays.items()})
    index.write_bytes(before)
    with pytest.raises(WeightsMismatchError, match="belongs to another index"):
        _read(prefix)


# === What is well-formed, and lies ===


def _message(*fields):
    """Fields of a Protocol Buffers message: pairs of a number and its value."""
    data = b""
    for number, value in fields:
        if isinstance(value, bytes):
            data += write_varint(number << 3 | 2) + write_varint(len(value)) + value
        else:
            data += write_varint(number << 3) + write_varint(value)
    return data


HEADER = _message((1, 1), (3, _message((1, 1))))


def _entry(shape=(2, 3), size=24, offset=0, dtype=1, shard=0, data=bytes(24), more=b""):
    dims = _message(*((2, _message((1, length))) for length in shape))
    checksum = write_varint(6 << 3 | 5) + masked_crc32c(data).to_bytes(4, "little")
    return _message((1, dtype), (2, dims), (3, shard), (4, offset), (5, size)) + checksum + more


def _long_keys():
    """Entries of a few bytes that repeat 100 kB of the key before them."""
    first = b"\0" + write_varint(100_000) + write_varint(0) + b"a" * 100_000
    more = b"".join(write_varint(100_000 + i) + b"\1\0b" for i in range(20_000))
    return _with_block(first + more)


def _one_block_many_times():
    """An index that names a large block without entries again and again."""
    block = _closed(bytes(4 * 50_000) + (50_000).to_bytes(4, "little"))
    handle = write_varint(0) + write_varint(len(block) - 5)
    return _with_index(block, [(i.to_bytes(2, "big"), handle) for i in range(10_000)])


def _closed(block, compression=b"\0"):
    return block + compression + masked_crc32c(block + compression).to_bytes(4, "little")


def _entries(entries):
    block = b"".join(b"\0" + write_varint(len(key)) + write_varint(len(value)) + key + value for key, value in entries)
    return block + bytes(4) + (1).to_bytes(4, "little")


def _with_index(block, handles):
    empty, index = _closed(_entries([])), _closed(_entries(handles))
    places = [(len(block), len(empty) - 5), (len(block) + len(empty), len(index) - 5)]
    footer = b"".join(write_varint(number) for place in places for number in place).ljust(40, b"\0")
    return block + empty + index + footer + write_table({b"": b""})[-8:]


def _with_block(entries, compression=b"\0"):
    block = _closed(entries + bytes(4) + (1).to_bytes(4, "little"), compression)
    return _with_index(block, [(b"z", write_varint(0) + write_varint(len(block) - 5))])


def _table(**entries):
    return write_table({b"": HEADER, **{name.encode(): entry for name, entry in entries.items()}})


LIES = {
    "100 GB in a file of 24 bytes": (
        _table(a=_entry((5, 5 * 10**9), 10**11)),
        r"data-00000-of-00001 \(24 bytes\) ends",
    ),
    "a size that is not the shape's": (_table(a=_entry((2, 2))), "shape \\(2, 2\\).*24 bytes"),
    "nothing, in a shape beyond all memory": (_table(a=_entry((0, 2**62, 2**62), 0)), "a cannot be read"),
    "beyond the end": (_table(a=_entry(offset=1)), "ends before a"),
    "so far beyond the end that numbers overflow": (_table(a=_entry(offset=2**63)), "ends before a"),
    "one array over another": (_table(a=_entry(), b=_entry((1, 3), 12, 4)), "b lies over another array"),
    "a negative length": (_table(a=_entry((2**64 - 2, 2**64 - 3))), "shape"),
    "a thousand dimensions": (_table(a=_entry((1,) * 1000 + (6,))), "a shape that no array can have"),
    "a file beyond the last": (_table(a=_entry(shard=1)), "file 2 of 1"),
    "text where there should be a number": (_table(a=_message((1, b"float"))), "wrong type"),
    "an entry that ends in the middle": (_table(a=_entry()[:-1]), "ends within a field"),
    "an entry without an end": (_table(a=b"\xff" * 30), "64 bits"),
    "no header": (write_table({b"a": _entry()}), "lacks the header"),
    "no files": (write_table({b"": b""}), "names 0 files"),
    "far too many files": (write_table({b"": _message((1, 10**9))}), "names 1000000000 files"),
    "big-endian": (write_table({b"": HEADER + _message((2, 1))}), "big-endian.*save it again"),
    "a later version": (write_table({b"": _message((1, 1), (3, _message((2, 9))))}), "later version"),
    "a variable in slices": (_table(a=_entry(more=_message((7, b"")))), "slices .partitioned variables"),
    "Snappy": (_with_block(b"", b"\1"), "compressed .Snappy"),
    "keys out of order": (_with_block(b"\0\1\0b\0\1\0a"), "not in order"),
    "a key twice": (_with_block(b"\0\1\0a\0\1\0a"), "not in order"),
    "a key that shares more than there is": (_with_block(b"\5\1\0a"), "longer than the block"),
    "short entries of long keys": (_long_keys(), "keys are longer"),
    "one large block 10,000 times": (_one_block_many_times(), "blocks overlap"),
    "a name of 5,000 letters": (_table(**{"a" * 5000: _entry()}), "name of more than"),
    "an index of 2 MB": (_table(a=_entry(), b=bytes(2 << 20)), "no more than"),
}


@pytest.mark.parametrize("lie", LIES)
def test_an_index_that_lies_is_refused_before_memory_is_taken(tmp_path, lie):
    index, message = LIES[lie]
    prefix = tmp_path / "model.ckpt"
    prefix.with_name("model.ckpt.index").write_bytes(index)
    prefix.with_name("model.ckpt.data-00000-of-00001").write_bytes(bytes(24))
    tracemalloc.start()
    try:
        with pytest.raises(WeightsMismatchError, match=message):
            _read(prefix)
        assert tracemalloc.get_traced_memory()[1] < 50e6
    finally:
        tracemalloc.stop()


def test_what_the_lies_are_made_of_is_read_when_it_tells_the_truth(tmp_path):
    (tmp_path / "model.ckpt.index").write_bytes(_table(a=_entry()))
    (tmp_path / "model.ckpt.data-00000-of-00001").write_bytes(bytes(24))
    assert _same(_read(tmp_path / "model.ckpt"), {"a": np.zeros((2, 3), "float32")})
    assert read_table(_with_block(b"\0\1\0a\0\1\0b")) == {b"a": b"", b"b": b""}


@pytest.mark.parametrize("number, kind", [(7, "7 .text"), (10, "10 .bool"), (8, "8 .complex64"), (99, "99 .unknown")])
def test_an_array_of_another_type_is_refused_by_name_and_type(tmp_path, number, kind):
    (tmp_path / "model.ckpt.index").write_bytes(_table(a=_entry(dtype=number), b=_entry((0,), 0, data=b"")))
    (tmp_path / "model.ckpt.data-00000-of-00001").write_bytes(bytes(24))
    bundle = TensorBundle(tmp_path / "model.ckpt")
    with pytest.raises(WeightsMismatchError, match=f"^a in .*type {kind}.*float32, .*bfloat16"):
        bundle.read("a")
    assert bundle.read("b").shape == (0,)  # the others can be read


def test_a_missing_index_is_named(tmp_path):
    with pytest.raises(WeightsNotFoundError, match="no .*model.ckpt.index"):
        TensorBundle(tmp_path / "model.ckpt")


def test_an_array_that_cannot_be_written_is_refused_and_nothing_is_written(tmp_path):
    with pytest.raises(TypeError, match="'?b'? is of <U1"):
        write_bundle(tmp_path / "model.ckpt", {"a": np.zeros(2), "b": np.array(["x"])})
    assert not list(tmp_path.iterdir())
