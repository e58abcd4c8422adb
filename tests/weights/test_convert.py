"""Conversions between formats, their account, and the commands ``convert`` and ``info``."""

import hashlib
import json
import re
import shutil
import warnings
from contextlib import nullcontext
from dataclasses import replace

import h5py
import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from kbert import BertConfig, BertEncoder, BertForPreTraining, WordPieceTokenizer
from kbert.cli import main
from kbert.errors import InexactWarning, LabelNamesWarning, WeightsMismatchError, WeightsNotFoundError
from kbert.model import (
    BertForQuestionAnswering,
    BertForSequenceClassification,
)
from kbert.weights import (
    load_pretraining,
    save_multiple_choice,
    save_pretraining,
    save_sequence_classifier,
)
from kbert.weights.arrays import array_shapes
from kbert.weights.convert import TARGETS, convert
from kbert.weights.describe import describe
from kbert.weights.formats import FORMATS, read_arrays
from kbert.weights.huggingface import dense_slots, pretraining_slots
from kbert.weights.tensor_bundle import TensorBundle, write_bundle

pytestmark = pytest.mark.slow

TEXTS = ["The quick brown fox isn't here.", "No."]


@pytest.fixture(scope="module")
def tokenizer():
    return WordPieceTokenizer.train(TEXTS * 4, vocab_size=60)


@pytest.fixture(scope="module")
def model(toy_config):
    """A pre-training model of which no array holds its start value."""
    model = BertForPreTraining(toy_config, seed=1)
    rng = np.random.default_rng(0)
    for weight in model.weights:
        weight.assign(rng.normal(1.0 if weight.name == "gamma" else 0.0, 0.2, weight.shape).astype("float32"))
    return model


@pytest.fixture
def folder(model, tokenizer, tmp_path):
    """A Hugging Face folder of that model, to be changed."""
    save_pretraining(model, tmp_path / "source")
    tokenizer.save(tmp_path / "source")
    return tmp_path / "source"


def _same_arrays(first, second):
    first, second = read_arrays(first), read_arrays(second)
    return first.keys() == second.keys() and all(np.array_equal(first[name], second[name]) for name in first)


def _rewrite(folder, change):
    path = folder / "model.safetensors"
    arrays = {name: array.copy() for name, array in load_file(path).items()}
    arrays = change(arrays) or arrays
    save_file({name: np.ascontiguousarray(array) for name, array in arrays.items()}, path)


# === The table of arrays ===


def test_the_names_and_shapes_are_those_of_the_models(model, toy_config):
    slots = pretraining_slots(model)
    slots += dense_slots("classifier", BertForSequenceClassification(toy_config, 3).classifier)
    reads_mean = replace(toy_config, classifier_pooling="mean")
    slots += dense_slots("mean_classifier", BertForSequenceClassification(reads_mean, 3).classifier)
    slots += dense_slots("qa_outputs", BertForQuestionAnswering(toy_config).qa_outputs)
    expected = {s.name: tuple(s.variable.shape)[:: -1 if s.transposed else 1] for s in slots}
    assert array_shapes(toy_config, 3) == expected


def test_every_array_is_told_of_once(folder, tmp_path):
    rows = convert(folder, tmp_path / "new", "hf")
    arrays = [row for row in rows if row.shape is not None]
    written = load_file(tmp_path / "new" / "model.safetensors")
    assert [row.source for row in arrays] == list(load_file(folder / "model.safetensors"))
    assert {row.target: row.shape for row in arrays} == {name: array.shape for name, array in written.items()}
    assert {row.done for row in arrays} == {"copied"}


def test_a_key_that_utf_8_cannot_hold_is_kept(folder, tmp_path):
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "\ud800": "\udfff"}))
    convert(folder, tmp_path / "new", "hf")
    assert json.loads((tmp_path / "new" / "config.json").read_text())["\ud800"] == "\udfff"


def test_what_a_folder_holds_besides_is_skipped_with_its_reason(folder, tmp_path):
    def change(arrays):
        words = arrays["bert.embeddings.word_embeddings.weight"]
        return {
            **arrays,
            "cls.predictions.decoder.weight": words.copy(),
            "bert.embeddings.position_ids": np.arange(64)[None],
        }

    _rewrite(folder, change)
    skipped = {row.source: row.done for row in convert(folder, tmp_path / "new", "hf") if "skipped" in row.done}
    assert skipped == {
        "cls.predictions.decoder.weight": "skipped: embeddings.word_embeddings.weight once more",
        "bert.embeddings.position_ids": "skipped: counts positions, no weight",
    }
    assert _same_arrays(tmp_path / "new", shutil.copytree(tmp_path / "new", tmp_path / "copy"))
    assert "cls.predictions.decoder.weight" not in load_file(tmp_path / "new" / "model.safetensors")


def test_a_file_may_have_the_arrays_of_the_decoder_alone(folder, tmp_path):
    kept = {"bert.embeddings.word_embeddings.weight": "cls.predictions.decoder.weight"}
    kept["cls.predictions.bias"] = "cls.predictions.decoder.bias"
    convert(folder, tmp_path / "before", "hf")
    _rewrite(folder, lambda arrays: {kept.get(name, name): array for name, array in arrays.items()})
    rows = convert(folder, tmp_path / "new", "hf")
    assert _same_arrays(tmp_path / "before", tmp_path / "new")
    assert kept.items() <= {row.target: row.source for row in rows}.items()


@pytest.mark.parametrize("to", TARGETS)
def test_there_and_back_is_bit_for_bit_also_of_half_precision(to, folder, tmp_path):
    if to == "kerashub":  # which has no next-sentence head
        _rewrite(folder, lambda a: {name: array for name, array in a.items() if "seq_relationship" not in name})
    _rewrite(folder, lambda a: {name: array.astype("float16") for name, array in a.items()})
    with pytest.warns() if to == "kerashub" else nullcontext():
        convert(folder, tmp_path / "there", to)
    convert(tmp_path / "there", tmp_path / "back", "hf")
    assert _same_arrays(folder, tmp_path / "back")
    assert load_file(tmp_path / "back" / "model.safetensors")["cls.predictions.bias"].dtype == "float32"
    before, after = WordPieceTokenizer.from_pretrained(folder), WordPieceTokenizer.from_pretrained(tmp_path / "back")
    assert [before.encode(text).ids for text in TEXTS] == [after.encode(text).ids for text in TEXTS]
    assert BertConfig.from_folder(folder) == BertConfig.from_folder(tmp_path / "back")


@pytest.mark.parametrize(
    "dtype, done",
    [
        ("float16", "float16 to float32"),
        (ml_dtypes.bfloat16, "bfloat16 to float32"),
        ("float64", "float64 rounded to float32"),
    ],
)
def test_another_type_is_told_of_whatever_the_format(dtype, done, folder, tmp_path):
    _rewrite(folder, lambda a: {name: array.astype(dtype) for name, array in a.items()})
    assert {row.done for row in convert(folder, tmp_path / "new", "hf") if row.shape} == {done}
    convert(folder, tmp_path / "google", "google")
    bundle = TensorBundle(tmp_path / "google" / "bert_model.ckpt")
    write_bundle(bundle.prefix, {name: bundle.read(name) for name in bundle.entries}, dtype)
    rows = convert(tmp_path / "google", tmp_path / "back", "hf")
    assert {row.done for row in rows if row.shape} == {done, f"{done}; transposed"}


def test_transformers_is_told_the_number_of_outputs_and_licences_are_kept(toy_config, tmp_path):
    BertForSequenceClassification(toy_config, 3).save(tmp_path / "model.keras")
    rows = convert(tmp_path / "model.keras", tmp_path / "new", "hf")
    assert any("a Keras file tells neither label names" in row.done for row in rows)
    values = json.loads((tmp_path / "new" / "config.json").read_text())
    assert values["architectures"] == ["BertForSequenceClassification"]
    assert values["label2id"] == {"LABEL_0": 0, "LABEL_1": 1, "LABEL_2": 2}
    files = ("LICENSE.txt", "LICENCE", "LICENSE-MODEL.md", "NOTICE")
    for name in files:
        (tmp_path / "new" / name).write_text("as you like")
        (tmp_path / name).write_text("beside the file")
    convert(tmp_path / "new", tmp_path / "newer", "hf")
    convert(tmp_path / "model.keras", tmp_path / "newest", "hf")
    for name in files:
        assert (tmp_path / "newer" / name).read_text() == "as you like"
        assert (tmp_path / "newest" / name).read_text() == "beside the file"


@pytest.mark.parametrize("to", TARGETS)
def test_names_that_are_not_those_of_the_outputs_are_told_of(toy_config, tmp_path, to):
    names = {0: "a", 1: "b", 2: "c"}
    model = BertForSequenceClassification(toy_config, 3)
    save_sequence_classifier(model, tmp_path / "source", names, "multi_label_classification")
    path = tmp_path / "source" / "config.json"
    values = json.loads(path.read_text())

    def converted(name, **changes):
        path.write_text(json.dumps({**values, **changes}))
        convert(tmp_path / "source", tmp_path / name, to)
        convert(tmp_path / name, tmp_path / f"{name} back", "hf")
        return json.loads((tmp_path / f"{name} back" / "config.json").read_text())

    file = {"hf": "config.json", "google": "bert_config.json", "kerashub": "config.json: kbert"}[to]
    (row,) = [row for row in convert(tmp_path / "source", tmp_path / "told", to) if row.source == "id2label"]
    assert (row.target, row.done) == (file, "a, b, c")
    backwards = {"2": "c", "0": "a", "1": "b"}
    back = converted("right", id2label=backwards, num_labels="2")
    assert list(back["id2label"].items()) == [("0", "a"), ("1", "b"), ("2", "c")] and "num_labels" not in back
    assert back["problem_type"] == "multi_label_classification"
    assert describe(tmp_path / "source")["labels"] == "a, b, c"
    with pytest.warns(LabelNamesWarning, match="2 names that are not those of 3 outputs: they become LABEL_0 to LAB"):
        back = converted("wrong", id2label={"0": "a", "1": "b"})
    assert list(back["id2label"].values()) == ["LABEL_0", "LABEL_1", "LABEL_2"]
    assert describe(tmp_path / "source")["labels"] == "3, without names: id2label has 2"


@pytest.mark.parametrize(
    "named, written",
    [
        (None, "BertForSequenceClassification"),
        (["BertForTokenClassification"], "BertForTokenClassification"),
        (["BertForMaskedLM"], "BertForSequenceClassification"),  # whose head is not there
        (["BertModel"], "BertForSequenceClassification"),  # which has no head
        (["MyBert", "BertForTokenClassification"], "BertForSequenceClassification"),
    ],
)
def test_a_classifier_is_one_of_texts_unless_the_config_says_otherwise(toy_config, tmp_path, named, written):
    model, path = BertForSequenceClassification(toy_config, 2), tmp_path / "source" / "config.json"
    save_sequence_classifier(model, tmp_path / "source", {0: "a", 1: "b"}, "single_label_classification")
    path.write_text(json.dumps({**json.loads(path.read_text()), "architectures": named}))
    (tmp_path / "source" / "kbert.json").write_text("{}")
    rows = convert(tmp_path / "source", tmp_path / "new", "hf")
    values = json.loads((tmp_path / "new" / "config.json").read_text())
    assert values["architectures"] == [written] and values["label2id"] == {"a": 0, "b": 1}
    assert values["dtype"] == "float32" and not (tmp_path / "new" / "kbert.json").exists()
    assert [row.done[:7] for row in rows if row.source == "kbert.json"] == ["skipped"]


def test_the_scores_of_options_have_no_names(toy_config, tmp_path):
    save_multiple_choice(BertForSequenceClassification(toy_config, 1), tmp_path / "source")
    path = tmp_path / "source" / "config.json"
    names = {
        "id2label": {"0": "LABEL_0", "1": "LABEL_1"},
        "label2id": {"LABEL_0": 0, "LABEL_1": 1},
    }  # transformers' own
    path.write_text(json.dumps({**json.loads(path.read_text()), **names}))
    with warnings.catch_warnings():
        warnings.simplefilter("error", LabelNamesWarning)
        convert(tmp_path / "source", tmp_path / "new", "hf")
    values = json.loads((tmp_path / "new" / "config.json").read_text())
    assert values["architectures"] == ["BertForMultipleChoice"] and not names.keys() & values.keys()


def test_the_encoder_alone_takes_nothing_of_a_classifiers_config(folder, tmp_path):
    _rewrite(folder, lambda arrays: {name: array for name, array in arrays.items() if not name.startswith("cls.")})
    path = folder / "config.json"
    labels = {"id2label": {"0": "a"}, "label2id": {"a": 0}, "problem_type": "regression", "num_labels": 1}
    half = {"torch_dtype": "float16", "dtype": "float16"}
    more = {"architectures": ["BertForSequenceClassification"], **half, "my_own": [1]}
    path.write_text(json.dumps({**json.loads(path.read_text()), **labels, **more}))
    convert(folder, tmp_path / "new", "hf")
    values = json.loads((tmp_path / "new" / "config.json").read_text())
    assert values["architectures"] == ["BertModel"] and not {*labels, "torch_dtype"} & values.keys()
    assert values["dtype"] == "float32" and values["my_own"] == [1]
    assert "embeddings.LayerNorm.weight" in load_file(tmp_path / "new" / "model.safetensors")


def test_a_vocabulary_that_is_longer_than_the_table_is_refused(folder, tmp_path):
    WordPieceTokenizer.train([" ".join(f"w{i}" for i in range(99))], 300, min_frequency=1).save(folder)
    with pytest.raises(WeightsMismatchError, match="The tokenizer belongs to another model"):
        convert(folder, tmp_path / "new", "hf")


def test_a_tokenizer_that_googles_code_has_not_is_told_of_and_kept(folder, tmp_path):
    spec = json.loads((folder / "tokenizer.json").read_text())
    (folder / "tokenizer.json").write_text(json.dumps({**spec, "pre_tokenizer": {"type": "WhitespaceSplit"}}))
    with pytest.warns(InexactWarning, match="vocab.txt alone, does not split texts as this .*rules are not BERT's own"):
        rows = convert(folder, tmp_path / "google", "google")
    assert "Google's code does not do the same" in rows[-1].done
    before, after = (WordPieceTokenizer.from_pretrained(place) for place in (folder, tmp_path / "google"))
    assert before.encode("isn't").ids == after.encode("isn't").ids


@pytest.mark.parametrize(
    "piece, other, fault",
    [("[MASK]", "<mask>", "special tokens are not"), ("fox", "fox\u2003", "cannot be written a piece a line")],
)
@pytest.mark.parametrize("to", ["google", "kerashub"])
def test_a_vocabulary_that_vocab_txt_alone_does_not_tell_is_told_of(folder, tmp_path, to, piece, other, fault):
    for name in ("tokenizer.json", "tokenizer_config.json"):
        text = (folder / name).read_text(encoding="utf-8")
        (folder / name).write_text(text.replace(f'"{piece}"', f'"{other}"'), encoding="utf-8")
    with pytest.warns(InexactWarning, match=fault):
        convert(folder, tmp_path / "new", to)
    assert (tmp_path / "new" / "tokenizer.json").exists() == (to == "google")


def test_arrays_of_a_head_that_bert_does_not_have_are_skipped_with_the_reason(folder, tmp_path):
    _rewrite(folder, lambda arrays: {**arrays, "classifier.dense.weight": np.zeros((32, 32), "f4")})
    rows = convert(folder, tmp_path / "new", "hf")
    (row,) = [row for row in rows if row.source == "classifier.dense.weight"]
    assert (row.target, row.done) == ("", "skipped: of a head that BERT does not have")
    assert describe(folder)["parts"] == describe(tmp_path / "new")["parts"]


def test_a_classifier_of_means_that_the_config_does_not_name_is_left_out(toy_config, tmp_path):
    model = BertForSequenceClassification(replace(toy_config, classifier_pooling="mean"), 2)
    save_sequence_classifier(model, tmp_path / "source", {0: "a", 1: "b"}, "single_label_classification")
    path = tmp_path / "source" / "config.json"
    values = json.loads(path.read_text())
    path.write_text(json.dumps({name: value for name, value in values.items() if name != "classifier_pooling"}))
    convert(tmp_path / "source", tmp_path / "new", "hf")
    assert json.loads((tmp_path / "new" / "config.json").read_text())["architectures"] == ["BertModel"]


def test_nan_in_both_of_two_tied_arrays_is_called_that(folder, tmp_path):
    broken = np.full(100, np.nan, "f4")
    both = {"cls.predictions.bias": broken, "cls.predictions.decoder.bias": broken.copy()}
    _rewrite(folder, lambda arrays: arrays | both)
    with pytest.raises(WeightsMismatchError, match="NaN or infinite"):
        convert(folder, tmp_path / "new", "hf")


def test_a_text_in_place_of_a_source_is_no_name(tmp_path):
    with pytest.raises(WeightsNotFoundError, match="too long for a folder or a hub name"):
        convert("x" * 5000, tmp_path / "new", "hf")


# === Nothing half-done ===


@pytest.mark.parametrize(
    "change, message",
    [
        (
            lambda a: {n: x for n, x in a.items() if "layer.1.output.dense.bias" not in n},
            "lacks .*layer.1.output.dense",
        ),
        (lambda a: {n: x for n, x in a.items() if n != "cls.predictions.bias"}, "lacks cls.predictions.bias"),
        (lambda a: {**a, "adapter.weight": np.zeros(3, "f4")}, "adapter.weight"),
        (lambda a: {**a, "bert.pooler.dense.bias": np.zeros(31, "f4")}, r"pooler.dense.bias .*\(31,\).*\(32,\)"),
        (lambda a: {**a, "bert.pooler.dense.bias": np.full(32, np.inf, "f4")}, "pooler.dense.bias .*infinite"),
        (lambda a: {**a, "bert.pooler.dense.bias": np.zeros(32, "i1")}, "pooler.dense.bias .*int8.*quantised"),
        (lambda a: {**a, "bert.pooler.dense.bias": np.full(32, 1e300)}, "pooler.dense.bias .*no room"),
        (lambda a: {**a, "pooler.dense.bias": np.zeros(32, "f4")}, "pooler.dense.bias twice"),
        (lambda a: {**a, "cls.predictions.decoder.bias": np.ones(100, "f4")}, "decoder.bias and .* differ"),
    ],
)
def test_what_does_not_fit_is_refused_and_nothing_is_written(folder, tmp_path, change, message):
    _rewrite(folder, change)
    with pytest.raises(WeightsMismatchError, match=message):
        convert(folder, tmp_path / "a" / "b" / "new", "hf")
    assert [path.name for path in tmp_path.iterdir()] == ["source"]


@pytest.mark.parametrize(
    "values, message",
    [
        ({"id2label": ["good", "bad"]}, "id2label .* is no JSON object"),
        ({"architectures": "BertForPreTraining"}, "architectures .* is 'BertForPreTraining', .*list"),
        ({"architectures": [1]}, "architectures .*list"),
    ],
)
def test_an_odd_config_is_refused_before_anything_is_written(folder, tmp_path, values, message):
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))
    with pytest.raises(WeightsMismatchError, match=message):
        convert(folder, tmp_path / "new", "hf")
    with pytest.raises(WeightsMismatchError, match=message):
        describe(folder)
    assert [path.name for path in tmp_path.iterdir()] == ["source"]


def test_a_format_that_there_is_not_is_refused_with_those_that_there_are(folder, tmp_path):
    with pytest.raises(ValueError, match="one of kerashub, google, hf, got 'onnx'"):
        convert(folder, tmp_path / "new", "onnx")
    with pytest.raises(ValueError, match="got 'keras'"):
        convert(folder, tmp_path / "new", "keras")


def test_a_source_may_be_a_name(folder, tmp_path, monkeypatch):
    convert(folder, tmp_path / "base", "google")
    monkeypatch.chdir(tmp_path)
    convert("base", "new", "hf")  # a folder called like a size, with a bert_config.json
    assert _same_arrays(folder, tmp_path / "new")
    assert describe("base")["format"] == "Google TensorFlow checkpoint"
    with pytest.raises(WeightsNotFoundError, match="no such folder"):
        convert("./nowhere", tmp_path / "newer", "hf")


@pytest.mark.parametrize("to", TARGETS)
def test_a_config_of_more_layers_than_there_are_takes_no_memory(folder, tmp_path, to):
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "num_hidden_layers": 10**12}))
    with pytest.raises(WeightsMismatchError, match="asks for 1000000000000 layers"):
        convert(folder, tmp_path / "new", to)


def test_a_folder_that_holds_something_is_left_as_it_is(folder, tmp_path, monkeypatch):
    target = tmp_path / "new"
    target.mkdir()
    (target / "mine").write_text("kept")
    with pytest.raises(FileExistsError, match="is left as it is"):
        convert(folder, target, "hf")
    assert [path.name for path in target.iterdir()] == ["mine"]
    (target / "mine").unlink()
    # Filled, not replaced: a shell may stand in it.
    before = target.stat().st_ino
    monkeypatch.chdir(target)
    convert(folder, ".", "hf")
    assert target.stat().st_ino == before and not [path for path in target.iterdir() if path.name.startswith(".")]
    assert load_pretraining(target).config.hidden_size == 32


def test_a_write_that_fails_leaves_nothing(folder, tmp_path, monkeypatch):
    def fails(folder, *_):
        (folder / "half").write_text("a half")
        raise OSError("no space left on device")

    monkeypatch.setitem(FORMATS, "hf", FORMATS["hf"]._replace(write=fails))
    with pytest.raises(OSError, match="no space"):
        convert(folder, tmp_path / "new", "hf")
    assert [path.name for path in tmp_path.iterdir()] == ["source"]


# === The commands ===


def _run(capsys, *argv):
    capsys.readouterr()
    status = main([str(word) for word in argv])
    return status, capsys.readouterr()


def test_the_table_is_printed(folder, tmp_path, capsys):
    status, printed = _run(capsys, "convert", folder, tmp_path / "preset", "--to", "kerashub")
    assert status == 0 and printed.err.startswith("kbert: warning: Not the same in KerasHub")
    lines = printed.out.splitlines()
    assert re.split(r"  +", lines[0]) == ["source", "target", "shape", "what was done"]
    with h5py.File(tmp_path / "preset" / "model.weights.h5") as file:
        for name in ("query", "output.dense"):
            row = next(line for line in lines if re.match(rf"bert\S+layer\.1\.attention\S+{name}\.weight", line))
            _, target, shape, done = re.split(r"  +", row)
            assert shape == "32 x 32" and file[target].shape in ((32, 4, 8), (4, 8, 32))
            assert done.startswith("transposed, heads apart")
    assert any(re.match(r"cls\.seq_relationship\.weight +- .*skipped: KerasHub has no next-sentence", x) for x in lines)
    assert lines[-1] == f"44 arrays written, 2 skipped; the weights are in {tmp_path / 'preset'}"
    assert main(["convert", str(tmp_path / "preset"), str(tmp_path / "back"), "--to", "hf", "--quiet"]) == 0
    assert load_pretraining(tmp_path / "back", nsp=False).config == BertConfig.from_folder(folder)


def test_info_tells_what_is_there(toy_config, tokenizer, tmp_path, capsys):
    classifier = BertForSequenceClassification(toy_config, 2)
    save_sequence_classifier(classifier, tmp_path / "model", {0: "fox", 1: "no"}, "single_label_classification")
    assert describe(tmp_path / "model")["vocabulary"] == "100 rows of the table, and no tokenizer"
    tokenizer.save(tmp_path / "model")
    assert describe(tmp_path / "model")["vocabulary"] == f"{tokenizer.vocab_size} pieces, 100 rows of the table"
    status, printed = _run(capsys, "info", tmp_path / "model")
    facts = dict(re.split(r"  +", line, maxsplit=1) for line in printed.out.splitlines())
    assert status == 0 and facts["format"] == "Hugging Face" and facts["labels"] == "fox, no"
    assert facts["parameters"] == f"{classifier.count_params():,}"
    assert facts["parts"] == "encoder, pooler, classifier" and facts["casing"] == "uncased"
    content = (tmp_path / "model" / "model.safetensors").read_bytes()
    assert facts["sha256"] == f"{hashlib.sha256(content).hexdigest()} model.safetensors"
    assert facts["licence"] == "no licence file"
    (tmp_path / "model" / "LICENSE").write_text("as you like")
    assert main(["convert", str(tmp_path / "model"), str(tmp_path / "preset"), "--to", "kerashub"]) == 0
    status, printed = _run(capsys, "info", tmp_path / "preset")
    again = dict(re.split(r"  +", line, maxsplit=1) for line in printed.out.splitlines())
    assert again["format"] == "KerasHub preset" and again["licence"] == "LICENSE"
    assert re.findall(r"\S+\.h5", describe(tmp_path / "preset")["sha256"]) == ["model.weights.h5", "task.weights.h5"]
    assert {key: again[key] for key in ("parameters", "parts", "labels", "casing")} == {
        key: facts[key] for key in ("parameters", "parts", "labels", "casing")
    }


def test_errors_of_the_commands_are_one_line(folder, tmp_path, capsys):
    for argv, message in (
        (["convert", folder], "convert needs TARGET and --to"),
        (["convert", folder, tmp_path / "new", "--to", "onnx"], "--to: invalid choice: 'onnx'"),
        (["convert", tmp_path / "nowhere", tmp_path / "new", "--to", "hf"], "There is no such folder"),
        (["info", tmp_path], "There is no config.json"),
    ):
        status, printed = _run(capsys, *argv)
        assert status == 2 and message in printed.err and printed.err.count("\n") == 1
    model = tmp_path / "model.keras"
    model.write_bytes(b"no archive")
    assert "cannot be read" in _run(capsys, "info", model)[1].err
    with pytest.raises(WeightsNotFoundError, match=r"kbert convert .*model\.keras FOLDER --to hf"):
        BertEncoder.from_pretrained(str(model))
    assert not (tmp_path / "new").exists()


HOSTILE = "\x1b[2J\x1b]0;title\x07fox\x9b\u202eevil\r\nkbert: all is well"
STEERING = re.compile("[\0-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e]")


def test_names_from_files_do_not_steer_the_terminal(toy_config, tokenizer, tmp_path, capsys):
    classifier = BertForSequenceClassification(toy_config, 2)
    save_sequence_classifier(classifier, tmp_path / "model", {0: HOSTILE, 1: "n\u00f3"}, "single_label_classification")
    tokenizer.save(tmp_path / "model")
    (tmp_path / "model" / f"LICENSE{HOSTILE}").touch()
    shown = r"\x1b[2J\x1b]0;title\x07fox\x9b\u202eevil\r\nkbert: all is well"
    status, printed = _run(capsys, "info", tmp_path / "model")
    text = " ".join(printed.out.split())
    assert status == 0 and f"labels {shown}, n\u00f3 " in text and f"LICENSE{shown}" in text
    status, printed = _run(capsys, "convert", tmp_path / "model", tmp_path / f"to{HOSTILE}", "--to", "hf")
    assert status == 0 and shown in printed.out and printed.out.endswith(f"to{shown}\n")
    assert not STEERING.search(text + printed.out + printed.err)

    _rewrite(tmp_path / "model", lambda arrays: {**arrays, HOSTILE: arrays["classifier.bias"]})
    status, printed = _run(capsys, "info", tmp_path / "model")
    assert status == 2 and not STEERING.search(printed.err) and printed.err.count("\n") == 1
    assert r"\x1b[2J" in printed.err


def test_warnings_of_the_commands_do_not_steer_the_terminal(toy_config, tokenizer, tmp_path, capsys):
    classifier = BertForSequenceClassification(toy_config, 2)
    source = tmp_path / "model\x1b[2J"
    save_sequence_classifier(classifier, source, {0: "a", 1: "b"}, "single_label_classification")
    config = json.loads((source / "config.json").read_text())
    (source / "config.json").write_text(json.dumps({**config, "id2label": {"0": "a"}}))
    tokenizer.save(source)
    status, printed = _run(capsys, "convert", source, tmp_path / "new", "--to", "hf")
    assert status == 0 and r"kbert: warning: id2label in the config of" in printed.err
    assert r"model\x1b[2J" in printed.err and not STEERING.search(printed.out + printed.err)
