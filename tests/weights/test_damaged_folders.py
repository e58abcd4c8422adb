"""Weights folders that are cut off, altered or made to mislead: kbert's own errors, soon and in little memory."""

import contextlib
import gc
import io
import json
import pickle
import re
import shutil
import struct
import time
import zipfile
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from kbert import BertConfig, BertEncoder
from kbert.errors import WeightsMismatchError, WeightsNotFoundError
from kbert.weights.folder import read_folder
from kbert.weights.formats import read_arrays
from kbert.weights.huggingface import encoder_slots, load_slots

REFUSED = (WeightsMismatchError, WeightsNotFoundError)
SAFETENSORS, INDEX = "model.safetensors", "model.safetensors.index.json"
SHARDS = ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors")
POOLER = "pooler.dense.bias"
PASSWORDS = "../../../../etc/passwd"


@pytest.fixture(scope="module")
def small():
    """An encoder of 1,000 numbers or so, all different."""
    shape = dict(vocab_size=7, hidden_size=4, num_hidden_layers=1, num_attention_heads=1, intermediate_size=8)
    encoder = BertEncoder(BertConfig(**shape, max_position_embeddings=5), seed=1)
    rng = np.random.default_rng(0)
    for weight in encoder.weights:
        weight.assign(rng.normal(size=weight.shape).astype("float32"))
    return encoder


@pytest.fixture
def folder(small, tmp_path):
    small.save_pretrained(tmp_path / "model")
    return tmp_path / "model"


@pytest.fixture
def sharded(folder):
    """The same in two shards."""
    arrays = load_file(folder / SAFETENSORS)
    (folder / SAFETENSORS).unlink()
    places = {name: SHARDS[i % 2] for i, name in enumerate(sorted(arrays))}
    for shard in SHARDS:
        save_file({name: array for name, array in arrays.items() if places[name] == shard}, folder / shard)
    (folder / INDEX).write_text(json.dumps({"metadata": {"total_size": 1}, "weight_map": places}))
    return folder


@contextlib.contextmanager
def frugal():
    """At most two seconds of computing, and 200 MB more than there were. No garbage of earlier tests is looked for."""
    peak = Path("/proc/self/clear_refs")
    if peak.exists():
        peak.write_text("5")  # forget the greatest use of memory so far
    before, start = _memory("VmRSS"), time.process_time()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
    assert time.process_time() - start < 2
    assert _memory("VmHWM") - before < 200_000_000


def _memory(key):
    status = Path("/proc/self/status")
    return 1024 * int(re.search(rf"{key}:\s*(\d+)", status.read_text()).group(1)) if status.exists() else 0


def _put(path, content):
    """Write over a file in its place, which is ten times as fast as anew."""
    with path.open("r+b") as file:
        file.write(content)
        file.truncate()


def _write(path, header, data=b"", length=None):
    header = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(header) if length is None else length) + header + data)


def _array(begin, end, *shape, dtype="F32"):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": [begin, end]}


def _same(first, second):
    same_names = first.keys() == second.keys()
    return same_names and all(a.dtype == second[k].dtype and np.array_equal(a, second[k]) for k, a in first.items())


# === Every place of a file ===


@pytest.mark.parametrize("name", [SAFETENSORS, "config.json"])
def test_every_truncation_is_refused(folder, name):
    content = (folder / name).read_bytes()
    for length in range(len(content) - (name == "config.json")):  # all but the last line break
        _put(folder / name, content[:length])
        with pytest.raises(REFUSED, match=re.escape(name)):
            read_folder(folder)
            BertConfig.from_folder(folder)


def test_every_truncation_of_an_index_is_refused(sharded):
    content = (sharded / INDEX).read_bytes()
    for length in range(len(content)):
        _put(sharded / INDEX, content[:length])
        with pytest.raises(WeightsMismatchError, match=re.escape(INDEX)):
            read_folder(sharded)


@pytest.mark.parametrize("zipped", [True, False])
def test_every_truncation_of_a_pytorch_file_is_refused(tmp_path, zipped):
    torch = pytest.importorskip("torch", reason="to read pytorch_model.bin, run: pip install torch")
    state = {"a": torch.arange(3.0), "b": torch.ones(2, 2).half()}
    torch.save(state, tmp_path / "pytorch_model.bin", _use_new_zipfile_serialization=zipped)
    content = (tmp_path / "pytorch_model.bin").read_bytes()
    for length in range(len(content)):
        _put(tmp_path / "pytorch_model.bin", content[:length])
        with pytest.raises(WeightsMismatchError, match="pytorch_model.bin cannot be read as plain weights"):
            read_folder(tmp_path)


def _altered(content, rng):
    """The content with one to three bytes changed, put in, taken out, or repeated."""
    content = bytearray(content)
    for _ in range(rng.integers(1, 4)):
        place, byte = int(rng.integers(len(content))), int(rng.integers(256))
        match rng.integers(5):
            case 0:
                content[place] = byte
            case 1:
                content[place] ^= 1 << (byte % 8)
            case 2:
                content.insert(place, byte)
            case 3:
                del content[place]
            case 4:
                content[place:place] = content[place : place + byte % 16]
    return bytes(content)


def test_an_altered_header_is_refused_or_says_the_same(folder, small):
    path, rng = folder / SAFETENSORS, np.random.default_rng(0)
    content, slots, original = path.read_bytes(), encoder_slots(small), read_folder(folder)
    start = 8 + struct.unpack("<Q", content[:8])[0]
    refused = 0
    for _ in range(5000):
        _put(path, _altered(content[:start], rng) + content[start:])
        try:
            if _same(read_folder(folder), original):
                continue
            # Well-formed, but not what it was: what the model needs is missing, or has another shape or type.
            load_slots(slots, folder)
        except REFUSED:
            refused += 1
        else:
            pytest.fail(f"read as if nothing were wrong: {path.read_bytes()[:start]}")
    assert refused > 4000


def test_an_altered_index_is_refused_or_says_the_same(sharded, small):
    path, rng = sharded / INDEX, np.random.default_rng(1)
    content, original = path.read_bytes(), read_folder(sharded)
    refused = 0
    for _ in range(4000):
        _put(path, _altered(content, rng))
        try:
            assert _same(read_folder(sharded), original), path.read_bytes()
        except REFUSED:
            refused += 1
    assert refused > 3000


def test_altered_numbers_are_numbers_of_the_same_shapes(folder):
    path, rng = folder / SAFETENSORS, np.random.default_rng(2)
    content, original = path.read_bytes(), read_folder(folder)
    start = 8 + struct.unpack("<Q", content[:8])[0]
    for _ in range(1000):
        altered = bytearray(content)
        altered[rng.integers(start, len(content))] ^= 1 << rng.integers(8)
        _put(path, altered)
        arrays = read_folder(folder)
        assert {name: array.shape for name, array in arrays.items()} == {k: a.shape for k, a in original.items()}
        assert sum(int((array != original[name]).sum()) for name, array in arrays.items()) == 1


# === Files that claim what is not there ===


@pytest.mark.parametrize(
    "header, data, length",
    [
        pytest.param({"a": _array(0, 10**11, 25 * 10**9)}, bytes(8), None, id="100 GB in a small file"),
        pytest.param({"a": _array(0, 8, 2**62, 2**62)}, bytes(8), None, id="more numbers than can be counted"),
        pytest.param({"a": _array(0, 8, 3)}, bytes(8), None, id="more numbers than bytes"),
        pytest.param({"a": _array(0, 8, 2), "b": _array(0, 8, 2)}, bytes(8), None, id="two arrays in one place"),
        pytest.param({"a": _array(0, 8, 2), "b": _array(4, 12, 2)}, bytes(12), None, id="overlapping arrays"),
        pytest.param({"a": _array(8, 16, 2)}, bytes(16), None, id="bytes of no array"),
        pytest.param({"a": _array(8, 0, -2)}, bytes(8), None, id="negative"),
        pytest.param({"a": _array(0, 8, 2)}, bytes(9), None, id="one byte too many"),
        pytest.param({}, b"", 2**63, id="a header without end"),
        pytest.param({}, b"", 10**11, id="a header of 100 GB"),
        pytest.param(b"{" + b" " * 3_000_000 + b"}", b"", None, id="a header of 3 MB"),
        pytest.param(b'{"a":' * 100_000, b"", None, id="a deep header"),
        pytest.param({"a": _array(0, 8, 8, dtype="F8_E4M3")}, bytes(8), None, id="a quantised type"),
        pytest.param({"a": _array(0, 8, 8, dtype="F32x")}, bytes(8), None, id="an unknown type"),
    ],
)
def test_a_header_that_lies_is_refused(tmp_path, header, data, length):
    _write(tmp_path / SAFETENSORS, header, data, length)
    with frugal(), pytest.raises(WeightsMismatchError, match=SAFETENSORS):
        read_folder(tmp_path)


@pytest.mark.parametrize("shape", [(0, 2**62, 2**62), (2**63, 0), (0, *[1] * 100)], ids=["large", "larger", "many"])
def test_an_array_of_nothing_with_a_shape_that_none_can_have_is_refused(tmp_path, shape):
    _write(tmp_path / SAFETENSORS, {"a": _array(0, 0, *shape)})
    with frugal(), pytest.raises(WeightsMismatchError, match=r"a in .*model.safetensors claims the shape \(\d+, "):
        read_folder(tmp_path)


def test_a_header_of_many_arrays_takes_little(tmp_path):
    header = {f"a{i}": _array(0, 0, 0) for i in range(15_000)}
    assert 900_000 < len(json.dumps(header)) < 1_000_000
    _write(tmp_path / SAFETENSORS, header)
    with frugal():
        assert len(read_folder(tmp_path)) == 15_000


@pytest.mark.parametrize(
    "values",
    [{"vocab_size": 10**10}, {"max_position_embeddings": 10**9}, {"type_vocab_size": 10**9}, {"hidden_size": 10**9}]
    + [{"intermediate_size": 10**10}, {"num_hidden_layers": 10**9}],
    ids=str,
)
def test_a_config_that_asks_for_more_than_there_is_is_refused(folder, values):
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, **values}))
    with frugal(), pytest.raises(WeightsMismatchError, match=r"config.json"):
        BertEncoder.from_pretrained(folder)


_JSON = {
    "deep": "[" * 200_000,
    "deep objects": '{"a":' * 100_000,
    "huge": '{"a": [' + "[]," * 2_000_000 + "[]]}",
    "a long number": '{"vocab_size": ' + "9" * 5000 + "}",
    "no object": "[1, 2]",
    "empty": "",
    "no text": "\ud800",
}


@pytest.mark.parametrize("text", _JSON.values(), ids=_JSON.keys())
@pytest.mark.parametrize("name", ["config.json", INDEX])
def test_json_beyond_measure_is_refused(sharded, name, text):
    (sharded / name).write_bytes(text.encode("utf-8", "surrogatepass"))
    with frugal(), pytest.raises(WeightsMismatchError, match=re.escape(name)):
        BertEncoder.from_pretrained(sharded)


# === Shards and their index ===


@pytest.mark.parametrize(
    "file",
    [PASSWORDS, "/etc/passwd", "..", "", "sub/x.safetensors", r"..\x.safetensors", "C:x.safetensors"]
    + [".safetensors", "x.bin", "x\0.safetensors", "x.safetensors/", None, 1, ["x.safetensors"]],
    ids=repr,
)
def test_an_index_that_points_elsewhere_is_refused(sharded, file):
    index = json.loads((sharded / INDEX).read_text())
    (sharded / "sub").mkdir()
    for elsewhere in (sharded / "sub" / "x.safetensors", sharded.parent / "x.safetensors", sharded / "x.bin"):
        shutil.copy(sharded / SHARDS[0], elsewhere)
    index["weight_map"][POOLER] = file
    (sharded / INDEX).write_text(json.dumps(index))
    with pytest.raises(WeightsMismatchError, match="is no name of a .safetensors file in the same folder"):
        read_folder(sharded)


def _index(folder, change):
    index = json.loads((folder / INDEX).read_text())
    change(index["weight_map"])
    (folder / INDEX).write_text(json.dumps(index))


def test_an_array_that_is_listed_twice_is_refused(sharded):
    text = (sharded / INDEX).read_text()
    (sharded / INDEX).write_text(text.replace('"weight_map": {', f'"weight_map": {{"{POOLER}": "{SHARDS[0]}", '))
    with pytest.raises(WeightsMismatchError, match=f"the key '{POOLER}' occurs twice"):
        read_folder(sharded)


def test_an_array_in_another_shard_than_listed_is_refused(sharded):
    places = json.loads((sharded / INDEX).read_text())["weight_map"]
    other = SHARDS[places[POOLER] == SHARDS[0]]
    _index(sharded, lambda places: places.update({POOLER: other}))
    with pytest.raises(WeightsMismatchError, match=POOLER):
        read_folder(sharded)


def test_an_array_in_two_shards_is_refused(sharded):
    places = json.loads((sharded / INDEX).read_text())["weight_map"]
    path = sharded / SHARDS[places[POOLER] == SHARDS[0]]
    save_file({**load_file(path), POOLER: np.ones(4, "float32")}, path)
    with pytest.raises(WeightsMismatchError, match=f"{path.name} holds {POOLER}, which not {INDEX} lists for it"):
        read_folder(sharded)


def test_an_array_that_is_listed_and_absent_is_refused(sharded):
    _index(sharded, lambda places: places.update({"extra": SHARDS[0]}))
    with pytest.raises(WeightsMismatchError, match=f"{SHARDS[0]} lacks extra, which {INDEX} lists for it"):
        read_folder(sharded)


def test_an_array_that_is_there_and_not_listed_is_refused(sharded):
    _index(sharded, lambda places: places.pop(POOLER))
    with pytest.raises(WeightsMismatchError, match=f"holds {POOLER}, which not {INDEX} lists"):
        read_folder(sharded)


def test_a_shard_that_is_not_there_is_named(sharded):
    (sharded / SHARDS[1]).unlink()
    with pytest.raises(WeightsNotFoundError, match=f"lists 2 files, and the folder lacks {SHARDS[1]}"):
        read_folder(sharded)


@pytest.mark.parametrize("text", ["{}", '{"weight_map": {}}', '{"weight_map": []}', '{"weight_map": null}'])
def test_an_index_of_nothing_is_refused(sharded, text):
    (sharded / INDEX).write_text(text)
    with pytest.raises(WeightsMismatchError, match="has no weight_map"):
        read_folder(sharded)


# === PyTorch's own format ===


@pytest.fixture
def torch():
    return pytest.importorskip("torch", reason="to read pytorch_model.bin, run: pip install torch")


def _save(torch, folder, state, **options):
    torch.save(state, folder / "pytorch_model.bin", **options)


def test_a_view_that_repeats_one_number_is_refused(torch, tmp_path):
    _save(torch, tmp_path, {"a": torch.ones(1, dtype=torch.float16).expand(10**5, 10**5)})
    with frugal(), pytest.raises(WeightsMismatchError, match=r"'a' claims the shape \(100000, 100000\)"):
        read_folder(tmp_path)


def test_a_compressed_file_is_refused(torch, tmp_path):
    _save(torch, tmp_path, {"a": torch.zeros(25_000_000)})
    path = tmp_path / "pytorch_model.bin"
    with zipfile.ZipFile(path) as plain, zipfile.ZipFile(tmp_path / "small", "w", zipfile.ZIP_DEFLATED) as small:
        for entry in plain.namelist():
            small.writestr(entry, plain.read(entry))
    (tmp_path / "small").replace(path)
    assert path.stat().st_size < 1_000_000
    with frugal(), pytest.raises(WeightsMismatchError, match="claim more bytes than the file has"):
        read_folder(tmp_path)


def test_an_older_file_that_claims_100_gb_is_refused(torch, tmp_path):
    _save(torch, tmp_path, {"a": torch.arange(77.0)}, _use_new_zipfile_serialization=False)
    content = (tmp_path / "pytorch_model.bin").read_bytes()
    few, many = (pickle.dumps(number, 2)[2:-1] for number in (77, 25 * 10**9))
    assert content.count(few) > 1
    (tmp_path / "pytorch_model.bin").write_bytes(content.replace(few, many))
    with frugal(), pytest.raises(WeightsMismatchError, match="cannot be read as plain weights"):
        read_folder(tmp_path)


def test_a_pickle_of_a_late_protocol_is_called_that(torch, tmp_path):
    (tmp_path / "config.json").write_text("{}")
    torch.save({"a": torch.zeros(2)}, tmp_path / "pytorch_model.bin", pickle_protocol=4)
    with pytest.warns(UserWarning, match="pickle protocol 4"), pytest.raises(WeightsMismatchError, match="operand 149"):
        read_arrays(tmp_path)


def _put_pickle(torch, folder, content, zipped):
    """A file in PyTorch's format whose list of arrays is another pickle."""
    path = folder / "pytorch_model.bin"
    _save(torch, folder, {"a": torch.zeros(2)}, _use_new_zipfile_serialization=zipped)
    if not zipped:
        with path.open("rb") as file:
            for _ in range(3):
                pickle.load(file)
            start = file.tell()
        path.write_bytes(path.read_bytes()[:start] + content + pickle.dumps([], 2))
        return
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(folder / "new", "w") as new:
        for entry in old.namelist():
            new.writestr(entry, content if entry.endswith("data.pkl") else old.read(entry))
    (folder / "new").replace(path)


@pytest.mark.parametrize("zipped", [True, False])
@pytest.mark.parametrize(
    "content, message",
    [
        (b"\x80\x02" + b"]" * 3_000_000 + b".", "steps"),
        (b"\x80\x02" + b"]" * 500_000 + b".", "its pickle has more than 200,000 steps"),
        (
            b"\x80\x02X" + (3_000_000).to_bytes(4, "little") + b"a" * 3_000_000 + b".",
            "its pickle has more than 1,000,0",
        ),
    ],
    ids=["3 MB of brackets", "many brackets", "a long text"],
)
def test_a_pickle_longer_than_a_models_is_not_read(torch, tmp_path, monkeypatch, content, message, zipped):
    _put_pickle(torch, tmp_path, content, zipped)
    monkeypatch.setattr(torch, "load", None)
    with frugal(), pytest.raises(WeightsMismatchError, match=message):
        read_folder(tmp_path)


@pytest.mark.parametrize("zipped", [True, False])
@pytest.mark.parametrize("kept_twice", [True, False])
def test_a_key_that_takes_years_is_refused(torch, tmp_path, zipped, kept_twice):
    # A dict whose key is a tuple of a tuple twice, and so on.
    content = b"\x80\x02}()q\x00"
    for i in range(60):
        content += b"h%ch%c\x86" % (i, i) + b"q\xff" * kept_twice + b"q%c" % (i + 1)
    _put_pickle(torch, tmp_path, content + b"K\x01u.", zipped)
    with frugal(), pytest.raises(WeightsMismatchError, match="its pickle uses a tuple twice"):
        read_folder(tmp_path)


@pytest.mark.parametrize("zipped", [True, False])
def test_a_file_of_as_many_arrays_as_a_large_bert_has_is_read(torch, tmp_path, zipped):
    state = {f"bert.encoder.layer.{i}.attention.self.query.weight": torch.zeros(1) for i in range(2000)}
    _save(torch, tmp_path, state, _use_new_zipfile_serialization=zipped)
    assert len(read_folder(tmp_path)) == 2000


def test_a_pickle_with_a_zip_file_behind_it_is_checked(torch, tmp_path, monkeypatch):
    _save(torch, tmp_path, {"a": torch.zeros(2)})
    path = tmp_path / "pytorch_model.bin"
    path.write_bytes(b"\x80\x02" + b"]" * 500_000 + b"." + path.read_bytes())
    monkeypatch.setattr(torch, "load", None)
    with pytest.raises(WeightsMismatchError, match="its pickle has more than 200,000 steps"):
        read_folder(tmp_path)


def test_a_pickle_is_checked_whatever_the_case_of_its_name(torch, tmp_path, monkeypatch):
    path = tmp_path / "pytorch_model.bin"

    def capitals():
        path.write_bytes(path.read_bytes().replace(b"data.pkl", b"DATA.PKL"))

    _save(torch, tmp_path, {"a": torch.ones(2)})
    capitals()
    np.testing.assert_array_equal(read_folder(tmp_path)["a"], [1, 1])
    _put_pickle(torch, tmp_path, b"\x80\x02" + b"]" * 500_000 + b".", zipped=True)
    capitals()
    monkeypatch.setattr(torch, "load", None)
    with pytest.raises(WeightsMismatchError, match="its pickle has more than 200,000 steps"):
        read_folder(tmp_path)


@pytest.mark.parametrize(
    "state",
    [[1, 2], {"state_dict": {"a": 1}}, {"a": 1.0}, {1: 2}, {"a": "text"}, None],
    ids=repr,
)
def test_what_is_not_an_array_is_refused(torch, tmp_path, state):
    _save(torch, tmp_path, state)
    with pytest.raises(WeightsMismatchError, match="cannot be read as plain weights"):
        read_folder(tmp_path)


def test_a_pickle_that_is_none_of_pytorchs_is_refused_unrun(torch, tmp_path):
    class Evil:
        def __reduce__(self):
            return (tmp_path / "ran").touch, ()

    (tmp_path / "pytorch_model.bin").write_bytes(pickle.dumps({"a": Evil()}))
    with pytest.raises(WeightsMismatchError, match="cannot be read as plain weights"):
        read_folder(tmp_path)
    stream = io.BytesIO()
    torch.save({"a": Evil()}, stream, _use_new_zipfile_serialization=False)
    (tmp_path / "pytorch_model.bin").write_bytes(stream.getvalue())
    with pytest.raises(WeightsMismatchError, match="cannot be read as plain weights"):
        read_folder(tmp_path)
    assert not (tmp_path / "ran").exists()
