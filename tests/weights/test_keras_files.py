"""Keras's own files, ``.keras`` and ``.weights.h5``, as a source of ``convert``."""

import json
import zipfile

import keras
import numpy as np
import pytest

from kbert import BertEncoder, BertForPreTraining
from kbert.errors import WeightsMismatchError, WeightsNotFoundError
from kbert.model import (
    BertForFeatures,
    BertForQuestionAnswering,
    BertForSequenceClassification,
    BertForTokenClassification,
)
from kbert.model.encoder import INPUT_NAMES
from kbert.weights import (
    load_pretraining,
    save_encoder,
    save_pretraining,
    save_question_answerer,
    save_sequence_classifier,
    save_token_classifier,
)
from kbert.weights.convert import convert
from kbert.weights.formats import read_arrays

pytestmark = pytest.mark.slow


def _saved_by_keras(kind, config):
    return {
        "encoder": lambda: BertEncoder(config, seed=3),
        "features": lambda: BertForFeatures(config, seed=3),
        "first layer": lambda: BertForFeatures(config, "second_to_last", None, seed=3),
        "pretraining": lambda: BertForPreTraining(config, seed=3),
        "masked LM": lambda: BertForPreTraining(config, nsp=False, seed=3),
        "classifier": lambda: BertForSequenceClassification(config, 3, seed=3),
        "tagger": lambda: BertForTokenClassification(config, 3, seed=3),
        "answers": lambda: BertForQuestionAnswering(config, seed=3),
    }[kind]()


def _saved_by_kbert(kind, model, folder):
    """What the ``save_*`` of a model writes."""
    names = dict(enumerate("abc"))
    {
        "encoder": lambda: save_encoder(model, folder),
        "features": lambda: save_encoder(model.encoder, folder),
        "first layer": lambda: save_encoder(model.encoder, folder),
        "pretraining": lambda: save_pretraining(model, folder),
        "masked LM": lambda: save_pretraining(model, folder),
        "classifier": lambda: save_sequence_classifier(model, folder, names, "single_label_classification"),
        "tagger": lambda: save_token_classifier(model, folder, names),
        "answers": lambda: save_question_answerer(model, folder),
    }[kind]()
    return read_arrays(folder)


@pytest.mark.backend
@pytest.mark.parametrize(
    "kind", ["encoder", "features", "first layer", "pretraining", "masked LM", "classifier", "tagger", "answers"]
)
def test_a_model_that_keras_saved_comes_out_bit_for_bit(kind, toy_config, arrays_of, tmp_path):
    model = _saved_by_keras(kind, toy_config)
    model.save(tmp_path / "model.keras")
    convert(tmp_path / "model.keras", tmp_path / "new", "hf")
    again = keras.saving.load_model(tmp_path / "model.keras")  # which checks that the file is what Keras reads
    for read, original in zip(arrays_of(again), arrays_of(model), strict=True):
        np.testing.assert_array_equal(read, original)
    arrays, expected = read_arrays(tmp_path / "new"), _saved_by_kbert(kind, model, tmp_path / "expected")
    # kbert leaves out the pooler of two models, which make no use of it.
    save_encoder(model if kind == "encoder" else model.encoder, tmp_path / "encoder")
    expected = read_arrays(tmp_path / "encoder") | expected
    assert arrays.keys() == expected.keys()
    for name, array in arrays.items():
        np.testing.assert_array_equal(array, expected[name], name)


@pytest.mark.parametrize("name", ["minilm_folder", "bert_tiny_folder"])
def test_released_weights_come_back_from_keras_bit_for_bit(name, request, tmp_path):
    source = request.getfixturevalue(name)
    if name == "minilm_folder":
        BertEncoder.from_pretrained(source).save(tmp_path / "model.keras")
    else:
        with pytest.warns(match="no pooler"):
            load_pretraining(source).save(tmp_path / "model.keras")
    convert(tmp_path / "model.keras", tmp_path / "back", "hf")
    first, second = read_arrays(source), read_arrays(tmp_path / "back")
    names = {name for name in first if name != "embeddings.position_ids"}
    assert names <= set(second) and all(np.array_equal(first[name], second[name]) for name in names)


def test_weights_alone_want_a_config_beside_them(toy_config, tmp_path):
    model = BertForPreTraining(toy_config, seed=3)
    model.save_weights(tmp_path / "model.weights.h5")
    with pytest.raises(WeightsNotFoundError, match="Put the config.json of the model beside it"):
        convert(tmp_path / "model.weights.h5", tmp_path / "new", "hf")
    values = {**model.config.to_dict(), "architectures": ["BertForPreTraining"]}
    (tmp_path / "config.json").write_text(json.dumps(values))
    convert(tmp_path / "model.weights.h5", tmp_path / "new", "hf")
    save_pretraining(model, tmp_path / "expected")
    arrays, expected = read_arrays(tmp_path / "new"), read_arrays(tmp_path / "expected")
    assert arrays.keys() == expected.keys() and all(np.array_equal(arrays[name], expected[name]) for name in arrays)
    (tmp_path / "config.json").write_text(json.dumps({**values, "architectures": ["BertModel"]}))
    with pytest.raises(WeightsMismatchError, match="lacks layers/bert_embeddings/vars/0"):
        convert(tmp_path / "model.weights.h5", tmp_path / "newer", "hf")


@pytest.mark.parametrize("labels", [{}, {"num_labels": 3}, {"id2label": {"0": "a", "1": "b", "2": "c"}}], ids=str)
def test_the_outputs_of_weights_alone_are_counted_where_the_config_does_not_tell(labels, toy_config, tmp_path):
    model = BertForSequenceClassification(toy_config, 3, seed=3)
    model.save_weights(tmp_path / "model.weights.h5")
    values = {**toy_config.to_dict(), "architectures": ["BertForSequenceClassification"], **labels}
    (tmp_path / "config.json").write_text(json.dumps(values))
    convert(tmp_path / "model.weights.h5", tmp_path / "new", "hf")
    assert read_arrays(tmp_path / "new")["classifier.weight"].shape == (3, 32)
    names = json.loads((tmp_path / "new" / "config.json").read_text())["id2label"]
    assert names == labels.get("id2label", {str(i): f"LABEL_{i}" for i in range(3)})


def test_a_compiled_model_has_its_optimizer_skipped(toy_config, tmp_path):
    model = BertEncoder(toy_config)
    model.compile(optimizer="adam", loss="mse")
    model.optimizer.build(model.trainable_variables)
    model.save(tmp_path / "model.keras")
    rows = convert(tmp_path / "model.keras", tmp_path / "new", "hf")
    skipped = [row.source for row in rows if row.done.startswith("skipped: the optimizer's")]
    assert skipped and all(source.startswith("optimizer/") for source in skipped)


def _archive(path, change):
    """Write a .keras file anew with changed members."""
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    change(members)
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)


def test_no_class_of_a_keras_file_is_imported(toy_config, tmp_path, monkeypatch):
    (tmp_path / "evil_module.py").write_text("raise SystemExit('imported')")
    monkeypatch.syspath_prepend(str(tmp_path))
    path = tmp_path / "model.keras"
    BertEncoder(toy_config).save(path)

    def change(members):
        evil = {"module": "evil_module", "class_name": "Evil", "registered_name": "evil_module>Evil"}
        members["config.json"] = json.dumps({**json.loads(members["config.json"]), **evil})

    _archive(path, change)
    with pytest.raises(WeightsMismatchError, match="holds a Evil, which is no model of kbert"):
        convert(path, tmp_path / "new", "hf")


def test_another_model_with_the_encoder_inside_is_told_what_to_do(toy_config, tmp_path):
    encoder = BertEncoder(toy_config)
    inputs = {name: keras.Input((None,), dtype="int32", name=name) for name in INPUT_NAMES}
    outputs = keras.layers.Dense(2)(encoder(inputs)["pooled_output"])
    keras.Model(inputs, outputs).save(tmp_path / "model.keras")
    with pytest.raises(WeightsMismatchError, match="call save_pretrained on it"):
        convert(tmp_path / "model.keras", tmp_path / "new", "hf")


def test_a_truncated_keras_file_is_refused(toy_config, tmp_path):
    path = tmp_path / "model.keras"
    BertEncoder(toy_config).save(path)
    content = path.read_bytes()
    for kept in range(0, len(content), len(content) // 50):
        path.write_bytes(content[:kept])
        with pytest.raises(WeightsMismatchError, match="model.keras"):
            read_arrays(path)
    path.write_bytes(content)

    def cut(members):
        members["model.weights.h5"] = members["model.weights.h5"][: len(members["model.weights.h5"]) // 2]

    _archive(path, cut)
    with pytest.raises(WeightsMismatchError, match="model.keras"):
        read_arrays(path)


@pytest.mark.parametrize(
    "content, message",
    [
        ("[" * 10**5 + "]" * 10**5, "nested too deeply"),
        ("[1]", "does not hold a JSON object"),
        ('{"config": {}}' + " " * 5_000_000, "5,000,014 bytes"),
        ('{"config":', "not valid JSON"),
    ],
)
def test_an_odd_config_in_a_keras_file_is_refused(toy_config, tmp_path, content, message):
    path = tmp_path / "model.keras"
    BertEncoder(toy_config).save(path)
    _archive(path, lambda members: members.update({"config.json": content}))
    with pytest.raises(WeightsMismatchError, match=f"(?s)config.json in .*model.keras.*{message}"):
        convert(path, tmp_path / "new", "hf")


def test_a_config_of_fewer_layers_than_the_file_has_is_refused(toy_config, tmp_path):
    path = tmp_path / "model.keras"
    BertEncoder(toy_config).save(path)

    def change(members):
        values = json.loads(members["config.json"])
        values["config"]["config"]["num_hidden_layers"] = 1
        members["config.json"] = json.dumps(values)

    _archive(path, change)
    with pytest.raises(WeightsMismatchError, match="transformer_layer_1"):
        read_arrays(path)
