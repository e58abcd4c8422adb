"""Weights folders: what is written is read again, older names are understood, and damage is an error with a name."""

import json
import os
import shutil
import stat
import struct
import warnings

import keras
import numpy as np
import pytest
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from kbert import BertConfig, BertEncoder
from kbert.errors import NewWeightsWarning, WeightsMismatchError, WeightsNotFoundError
from kbert.hub.weight_files import hugging_face_weights

QUERY = "encoder.layer.0.attention.self.query.weight"


@pytest.fixture(scope="module")
def saved(encoder, tmp_path_factory):
    folder = tmp_path_factory.mktemp("saved")
    encoder.save_pretrained(folder)
    return folder


@pytest.fixture
def folder(saved, tmp_path):
    """A copy of the saved folder, to be damaged."""
    return shutil.copytree(saved, tmp_path / "copy")


def _rewrite(folder, change):
    """Change the arrays of a folder's weights file."""
    path = folder / "model.safetensors"
    arrays = {name: array.copy() for name, array in load_file(path).items()}
    arrays = change(arrays) or arrays
    save_file({name: np.ascontiguousarray(array) for name, array in arrays.items()}, path)


def _set(folder, **values):
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))


def _same(first, second):
    return all(np.array_equal(a, b) for a, b in zip(first, second, strict=True))


# === What is read ===


def test_a_saved_encoder_is_read_again_bit_for_bit_and_without_a_warning(encoder, saved, arrays_of):
    with warnings.catch_warnings():
        warnings.simplefilter("error", NewWeightsWarning)
        again = BertEncoder.from_pretrained(saved)
    assert again.config == encoder.config
    assert _same(arrays_of(again), arrays_of(encoder))


def test_a_model_is_saved_in_the_home_folder(encoder, tmp_path, monkeypatch, arrays_of):
    for name in ("HOME", "USERPROFILE"):  # the second one on Windows
        monkeypatch.setenv(name, str(tmp_path))
    encoder.save_pretrained("~/bert")
    assert (tmp_path / "bert" / "config.json").is_file()
    assert _same(arrays_of(BertEncoder.from_pretrained("~/bert")), arrays_of(encoder))


def test_what_adapters_of_lora_add_is_saved(encoder, tmp_path, arrays_of):
    adapted = BertEncoder.from_config(encoder.get_config())
    layer = adapted.transformer_layers[0].attention.query
    layer.enable_lora(2)
    layer.lora_kernel_b.assign(np.full(layer.lora_kernel_b.shape, 0.5, "float32"))
    adapted.save_pretrained(tmp_path)
    kernel = BertEncoder.from_pretrained(tmp_path).transformer_layers[0].attention.query.kernel
    np.testing.assert_allclose(*map(keras.ops.convert_to_numpy, (kernel, layer.kernel)), atol=1e-6)


def test_float16_and_bfloat16_models_read_the_same_float32_file(encoder, saved, arrays_of):
    again = BertEncoder.from_pretrained(saved, dtype="mixed_bfloat16")
    assert again.pooler.compute_dtype == "bfloat16" and _same(arrays_of(again), arrays_of(encoder))


def test_the_file_holds_float32_under_the_names_of_transformers(saved, toy_config):
    arrays = load_file(saved / "model.safetensors")
    assert {array.dtype for array in arrays.values()} == {np.dtype("float32")}
    assert len(arrays) == 5 + 16 * toy_config.num_hidden_layers + 2
    assert arrays["encoder.layer.1.intermediate.dense.weight"].shape == (64, 32)  # (out, in), as PyTorch keeps it
    config = json.loads((saved / "config.json").read_text())
    assert (config["model_type"], config["architectures"]) == ("bert", ["BertModel"])


def _old_names(arrays):
    renamed = {}
    for name, array in arrays.items():
        if "LayerNorm" in name:
            name = name.replace(".weight", ".gamma").replace(".bias", ".beta")
        renamed[f"bert.{name}"] = array
    return renamed


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(_old_names, id="gamma, beta and a bert. prefix"),
        pytest.param(lambda a: {f"module.bert.{name}": array for name, array in a.items()}, id="module. prefix"),
        pytest.param(lambda a: {**a, "embeddings.position_ids": np.arange(64)[None]}, id="position_ids buffer"),
        pytest.param(
            lambda a: {
                **_old_names(a),
                "bert.embeddings.position_ids": np.arange(64)[None],
                "cls.predictions.bias": np.zeros(100, "float32"),
                "cls.seq_relationship.weight": np.zeros((2, 32), "float32"),
                "classifier.weight": np.zeros((3, 32), "float32"),
                "classifier.bias": np.zeros(3, "float32"),
                "qa_outputs.bias": np.zeros(2, "float32"),
            },
            id="heads of other tasks",
        ),
    ],
)
def test_other_forms_of_the_same_weights_are_read_alike(folder, encoder, arrays_of, change):
    _rewrite(folder, change)
    assert _same(arrays_of(BertEncoder.from_pretrained(folder)), arrays_of(encoder))


def test_float16_arrays_are_read(folder, encoder, arrays_of):
    _rewrite(folder, lambda a: {name: array.astype("float16") for name, array in a.items()})
    for read, original in zip(arrays_of(BertEncoder.from_pretrained(folder)), arrays_of(encoder), strict=True):
        np.testing.assert_array_equal(read, original.astype("float16").astype("float32"))


def test_bfloat16_arrays_are_read(folder, encoder, arrays_of):
    torch = pytest.importorskip("torch", reason="to write bfloat16 arrays, run: pip install torch")
    from safetensors.torch import load_file, save_file

    arrays = {name: array.to(torch.bfloat16) for name, array in load_file(folder / "model.safetensors").items()}
    save_file(arrays, folder / "model.safetensors")
    for read, original in zip(arrays_of(BertEncoder.from_pretrained(folder)), arrays_of(encoder), strict=True):
        np.testing.assert_array_equal(read, torch.tensor(original).to(torch.bfloat16).float().numpy())


def test_a_missing_pooler_starts_at_random_and_is_named_in_a_warning(folder, encoder, arrays_of):
    _rewrite(folder, lambda a: {name: array for name, array in a.items() if not name.startswith("pooler.")})
    with pytest.warns(NewWeightsWarning, match=r"pooler.dense.bias, pooler.dense.weight") as caught:
        first = BertEncoder.from_pretrained(folder, seed=1)
    assert len(caught) == 1
    assert _same(arrays_of(first)[:-2], arrays_of(encoder)[:-2])
    kernel, bias = (np.asarray(array) for array in arrays_of(first.pooler))
    assert 0.015 < kernel.std() < 0.02 and not bias.any()
    with pytest.warns(NewWeightsWarning):
        other = BertEncoder.from_pretrained(folder, seed=2)
    assert not np.array_equal(arrays_of(other.pooler)[0], kernel)


def test_a_pytorch_file_is_read_where_there_is_no_safetensors(folder, encoder, arrays_of):
    torch = pytest.importorskip("torch", reason="to read pytorch_model.bin, run: pip install torch")
    arrays = load_file(folder / "model.safetensors")
    torch.save({name: torch.tensor(array) for name, array in arrays.items()}, folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    assert _same(arrays_of(BertEncoder.from_pretrained(folder)), arrays_of(encoder))


def test_of_several_forms_of_the_weights_that_which_transformers_reads_comes_first(tmp_path):
    names = ["model.safetensors", "model.safetensors.index.json", "pytorch_model.bin", "pytorch_model.bin.index.json"]
    for name in names[::-1]:
        (tmp_path / name).touch()
        assert hugging_face_weights(tmp_path)[0] == tmp_path / name
    assert [path.name for path in hugging_face_weights(tmp_path)] == names


def test_a_pytorch_file_that_would_run_code_is_refused_unrun(folder, tmp_path):
    torch = pytest.importorskip("torch", reason="to read pytorch_model.bin, run: pip install torch")

    class Evil:
        def __reduce__(self):
            return (tmp_path / "ran").touch, ()

    (folder / "model.safetensors").unlink()
    torch.save({"embeddings.word_embeddings.weight": Evil()}, folder / "pytorch_model.bin")
    with pytest.raises(WeightsMismatchError, match="pytorch_model.bin cannot be read as plain weights"):
        BertEncoder.from_pretrained(folder)
    assert not (tmp_path / "ran").exists()


# === What is refused ===


def _without(name):
    return lambda arrays: {key: array for key, array in arrays.items() if key != name}


def _nan(arrays):
    arrays["encoder.layer.1.output.dense.bias"][3] = np.nan


def _infinite(arrays):
    arrays[QUERY][0, 0] = -np.inf


@pytest.mark.parametrize(
    "change, message",
    [
        (_without(QUERY), f"lacks {QUERY}"),
        (_without("embeddings.LayerNorm.bias"), "lacks embeddings.LayerNorm.bias"),
        (lambda a: {**a, "encoder.layer.2.output.dense.bias": np.zeros(32)}, "holds encoder.layer.2.output.dense.bias"),
        (lambda a: {**a, "adapter.weight": np.zeros(3)}, "holds adapter.weight"),
        (lambda a: {**a, QUERY: a[QUERY][:, :16]}, f"{QUERY} .*shape"),
        (lambda a: {**a, "embeddings.word_embeddings.weight": np.zeros((90, 32))}, "word_embeddings.weight .*90"),
        (lambda a: {**a, "encoder.layer.0.intermediate.dense.weight": np.zeros((32, 64))}, "intermediate.*shape"),
        (_nan, "encoder.layer.1.output.dense.bias .*NaN"),
        (_infinite, f"{QUERY} .*infinite"),
    ],
)
def test_weights_that_do_not_fit_are_refused_by_name(folder, change, message):
    _rewrite(folder, change)
    with pytest.raises(WeightsMismatchError, match=message):
        BertEncoder.from_pretrained(folder)


def test_a_config_of_fewer_layers_than_the_file_has_is_refused(folder):
    _set(folder, num_hidden_layers=1)
    with pytest.raises(WeightsMismatchError, match=r"holds encoder\.layer\.1\..* and 11 more"):
        BertEncoder.from_pretrained(folder)


def test_a_model_of_another_type_is_refused(folder):
    _set(folder, model_type="distilbert")
    with pytest.raises(WeightsMismatchError, match="'distilbert'"):
        BertEncoder.from_pretrained(folder)


@pytest.mark.parametrize(
    "place", ["nothing", "in the length", "after the length", "in the header", "in the arrays", "last byte"]
)
def test_a_truncated_file_is_refused_with_its_name(folder, place):
    path = folder / "model.safetensors"
    content = path.read_bytes()
    header = struct.unpack("<Q", content[:8])[0]
    kept = {
        "nothing": 0,
        "in the length": 4,
        "after the length": 8,
        "in the header": 8 + header // 2,
        "in the arrays": (8 + header + len(content)) // 2,
        "last byte": len(content) - 1,
    }[place]
    path.write_bytes(content[:kept])
    with pytest.raises(WeightsMismatchError, match=rf"model.safetensors \({kept:,} bytes\).*truncated or damaged"):
        BertEncoder.from_pretrained(folder)


def test_a_damaged_header_is_refused_with_the_files_name(folder):
    path = folder / "model.safetensors"
    content = bytearray(path.read_bytes())
    content[8:40] = b"\xff" * 32
    path.write_bytes(content)
    with pytest.raises(WeightsMismatchError, match="model.safetensors"):
        BertEncoder.from_pretrained(folder)


@pytest.mark.parametrize("name, message", [("config.json", "config.json"), ("model.safetensors", "model.safetensors")])
def test_a_missing_file_is_named(folder, name, message):
    (folder / name).unlink()
    with pytest.raises(WeightsNotFoundError, match=message):
        BertEncoder.from_pretrained(folder)


def test_a_folder_is_made_with_its_parents_and_written_again_over_itself(encoder, arrays_of, tmp_path):
    folder = tmp_path / "a" / "b"
    BertEncoder(BertConfig(**{**encoder.config.to_dict(), "num_hidden_layers": 1})).save_pretrained(folder)
    encoder.save_pretrained(folder)
    assert _same(arrays_of(BertEncoder.from_pretrained(folder)), arrays_of(encoder))
    assert sorted(path.name for path in folder.iterdir()) == ["config.json", "model.safetensors"]


@pytest.mark.skipif(os.name == "nt", reason="Windows has no permissions by mode")
def test_files_get_the_permissions_that_the_umask_leaves_or_keep_theirs(encoder, tmp_path):
    path, before = tmp_path / "model" / "model.safetensors", os.umask(0o027)
    try:
        encoder.save_pretrained(tmp_path / "model")
        assert stat.S_IMODE(path.stat().st_mode) == 0o640
        path.chmod(0o666)
        encoder.save_pretrained(tmp_path / "model")
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o666


def test_a_write_that_fails_leaves_no_empty_file(encoder, tmp_path, monkeypatch):
    def fail(*args):
        raise SafetensorError("No space left on device")

    monkeypatch.setattr("safetensors.numpy.save_file", fail)
    with pytest.raises(OSError, match="cannot be written"):
        encoder.save_pretrained(tmp_path / "model")
    assert not (tmp_path / "model" / "model.safetensors").exists()
