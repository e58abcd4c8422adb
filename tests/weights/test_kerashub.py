"""KerasHub presets, read and written without KerasHub: nothing is lost, and what is damaged or strange is refused.

What the installed KerasHub makes of them is in test_kerashub_parity.py.
"""

import json
import shutil
import sys
import warnings
from dataclasses import replace

import h5py
import numpy as np
import pytest
from safetensors.numpy import load_file

from kbert import BertClassifier, BertConfig, BertEncoder, BertForPreTraining, WordPieceTokenizer
from kbert.errors import InexactWarning, NewWeightsWarning, WeightsMismatchError, WeightsNotFoundError
from kbert.model import BertForSequenceClassification, BertForTokenClassification
from kbert.weights import load_sequence_classifier, save_sequence_classifier, save_token_classifier
from kbert.weights.convert import convert
from kbert.weights.formats import read_arrays

pytestmark = pytest.mark.slow

TEXTS = ["The quick brown fox isn't here.", "Crème brûlée, 3.50 €!", "中文 and ASCII", ""]


@pytest.fixture(scope="module")
def tokenizer():
    return WordPieceTokenizer.train(TEXTS * 3 + ["the quick brown fox"] * 5, vocab_size=90)


@pytest.fixture(scope="module")
def saved(encoder, tokenizer, tmp_path_factory):
    """The encoder and a tokenizer in a Hugging Face folder."""
    folder = tmp_path_factory.mktemp("saved")
    encoder.save_pretrained(folder)
    tokenizer.save(folder)
    return folder


@pytest.fixture(scope="module")
def preset(saved, tmp_path_factory):
    folder = tmp_path_factory.mktemp("presets") / "preset"
    convert(saved, folder, "kerashub")
    return folder


@pytest.fixture
def folder(preset, tmp_path):
    """A copy of the preset, to be damaged."""
    return shutil.copytree(preset, tmp_path / "copy")


def _change(path, **values):
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))


def _same(first, second):
    return all(np.array_equal(a, b) for a, b in zip(first, second, strict=True))


def _same_arrays(first, second):
    """Bit for bit, by their names in transformers."""
    first, second = read_arrays(first), read_arrays(second)
    names = {name for name in first if name != "embeddings.position_ids"}
    return names == set(second) and all(np.array_equal(first[name], second[name]) for name in names)


# === Nothing is lost ===


def test_a_preset_is_a_weights_folder_like_any_other(preset, encoder, tokenizer, arrays_of):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        again = BertEncoder.from_pretrained(preset)
    assert again.config == encoder.config and _same(arrays_of(again), arrays_of(encoder))
    read = WordPieceTokenizer.from_pretrained(preset)
    assert [read.encode(text).ids for text in TEXTS] == [tokenizer.encode(text).ids for text in TEXTS]


@pytest.mark.parametrize("name", ["minilm_folder", "bert_tiny_folder"])
def test_a_released_model_comes_back_bit_for_bit(name, request, tmp_path):
    source = request.getfixturevalue(name)
    with pytest.warns(InexactWarning, match="tanh form of GELU"):
        convert(source, tmp_path / "preset", "kerashub")
    convert(tmp_path / "preset", tmp_path / "back", "hf")
    assert _same_arrays(source, tmp_path / "back")
    before, after = (json.loads((place / "config.json").read_text()) for place in (source, tmp_path / "back"))
    assert {key: after[key] for key in before} == before
    first, second = map(WordPieceTokenizer.from_pretrained, (source, tmp_path / "back"))
    assert first.vocab == second.vocab and first.encode(TEXTS[1]).ids == second.encode(TEXTS[1]).ids


def test_the_exact_gelu_is_told_of_and_kept(encoder, tmp_path):
    config = BertConfig(**{**encoder.config.to_dict(), "hidden_act": "gelu", "layer_norm_eps": 1e-6})
    BertEncoder(config).save_pretrained(tmp_path / "saved")
    with pytest.warns(InexactWarning, match=r"4\.7e-4.*epsilon of 1e-12, and this model's 1e-06"):
        convert(tmp_path / "saved", tmp_path / "preset", "kerashub")
    assert BertConfig.from_folder(tmp_path / "preset") == config
    # Saved by KerasHub again, it is what KerasHub computed with.
    path = tmp_path / "preset" / "config.json"
    path.write_text(json.dumps({key: value for key, value in json.loads(path.read_text()).items() if key != "kbert"}))
    read = BertConfig.from_folder(tmp_path / "preset")
    assert (read.hidden_act, read.layer_norm_eps) == ("gelu_new", 1e-12)


def test_an_activation_that_kerashub_lacks_is_refused(encoder, tmp_path):
    BertEncoder(BertConfig(**{**encoder.config.to_dict(), "hidden_act": "relu"})).save_pretrained(tmp_path / "saved")
    with pytest.raises(WeightsMismatchError, match="'relu'.*Nothing was written"):
        convert(tmp_path / "saved", tmp_path / "preset", "kerashub")
    assert [path.name for path in tmp_path.iterdir()] == ["saved"]


def test_a_model_without_a_pooler_comes_back_without_one(encoder, saved, tmp_path):
    source = shutil.copytree(saved, tmp_path / "source")
    from safetensors.numpy import save_file

    arrays = load_file(source / "model.safetensors")
    save_file({name: a for name, a in arrays.items() if "pooler" not in name}, source / "model.safetensors")
    with pytest.warns(InexactWarning, match="no pooler"):
        rows = convert(source, tmp_path / "preset", "kerashub")
    assert [row.target for row in rows if row.done.startswith("zeros")] == [
        "layers/dense/vars/0",
        "layers/dense/vars/1",
    ]
    assert _same_arrays(source, tmp_path / "preset")
    with pytest.warns(NewWeightsWarning, match=r"pooler\.dense\.bias, pooler\.dense\.weight"):
        BertEncoder.from_pretrained(tmp_path / "preset")


def test_a_classifier_is_opened_with_its_labels(encoder, tokenizer, tmp_path):
    model = BertForSequenceClassification(encoder.config, 3, seed=3)
    model.classifier.bias.assign([0.5, -1.0, 2.0])
    labels = {0: "good", 1: "bad", 2: "so-so"}
    save_sequence_classifier(model, tmp_path / "saved", labels, "single_label_classification")
    tokenizer.save(tmp_path / "saved")
    convert(tmp_path / "saved", tmp_path / "preset", "kerashub")
    expected = BertClassifier.load(tmp_path / "saved")
    read = BertClassifier.load(tmp_path / "preset")
    assert list(read.classes_) == list(labels.values())
    np.testing.assert_array_equal(read.predict_proba(TEXTS[:2]), expected.predict_proba(TEXTS[:2]))
    # KerasHub knows no names, and has none of a head that it trained anew with other classes.
    _change(tmp_path / "preset" / "config.json", kbert={"id2label": {"0": "old", "1": "names"}})
    assert list(BertClassifier.load(tmp_path / "preset").classes_) == [0, 1, 2]


def test_kerashub_is_told_how_to_make_the_classifier(encoder, tokenizer, tmp_path):
    config = BertConfig(**{**encoder.config.to_dict(), "classifier_dropout": 0.3})
    model = BertForSequenceClassification(config, 3)
    save_sequence_classifier(model, tmp_path / "saved", dict(enumerate("abc")), "single_label_classification")
    tokenizer.save(tmp_path / "saved")
    convert(tmp_path / "saved", tmp_path / "preset", "kerashub")
    task, metadata = (json.loads((tmp_path / "preset" / f"{name}.json").read_text()) for name in ("task", "metadata"))
    values = task["config"]
    assert (values["num_classes"], values["activation"], values["dropout"]) == (3, "linear", 0.3)
    assert values["preprocessor"]["config"]["sequence_length"] == config.max_position_embeddings
    assert metadata["parameter_count"] == model.encoder.count_params()


def test_a_masked_lm_that_kerashub_trained_is_said_to_differ(encoder, tmp_path):
    BertForPreTraining(encoder.config, nsp=False).save_pretrained(tmp_path / "saved")
    with pytest.warns(InexactWarning, match="masked-LM head of KerasHub computes the exact form"):
        convert(tmp_path / "saved", tmp_path / "preset", "kerashub")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        arrays = read_arrays(tmp_path / "preset")
    path = tmp_path / "preset" / "config.json"
    path.write_text(json.dumps({key: value for key, value in json.loads(path.read_text()).items() if key != "kbert"}))
    with pytest.warns(InexactWarning, match="was trained with the exact form of GELU .* logits differ a little"):
        assert read_arrays(tmp_path / "preset").keys() == arrays.keys()


def test_a_head_that_kerashub_lacks_is_skipped_by_name(encoder, tmp_path):
    save_token_classifier(BertForTokenClassification(encoder.config, 2), tmp_path / "saved", {0: "O", 1: "B-X"})
    with pytest.warns(InexactWarning):
        rows = convert(tmp_path / "saved", tmp_path / "preset", "kerashub")
    skipped = {row.source: row.done for row in rows if row.done.startswith("skipped") and row.shape}
    assert skipped.keys() == {"classifier.weight", "classifier.bias"}
    assert set(skipped.values()) == {"skipped: KerasHub has no classifier of tokens or options"}
    assert [row.done for row in rows if row.source == "id2label"] == [
        "skipped: names of the outputs of a classifier that is skipped"
    ]
    convert(tmp_path / "preset", tmp_path / "back", "hf")
    assert "id2label" not in json.loads((tmp_path / "back" / "config.json").read_text())
    with pytest.raises(WeightsMismatchError, match=r"lacks classifier\."):
        load_sequence_classifier(tmp_path / "preset")


@pytest.fixture
def labelled(encoder, tmp_path):
    """A preset with a classifier whose outputs have names."""
    model = BertForSequenceClassification(encoder.config, 2, seed=3)
    save_sequence_classifier(model, tmp_path / "saved", {0: "good", 1: "bad"}, "single_label_classification")
    convert(tmp_path / "saved", tmp_path / "labelled", "kerashub")
    return tmp_path / "labelled"


def _change_task(folder, **values):
    path = folder / "task.json"
    _change(path, config={**json.loads(path.read_text())["config"], **values})


def test_a_classifier_with_a_sigmoid_gives_any_number_of_labels(labelled, tokenizer, tmp_path):
    tokenizer.save(labelled.parent / "saved")
    tokenizer.save(labelled)
    one = BertClassifier.load(labelled.parent / "saved").predict_proba(TEXTS[:2])
    _change_task(labelled, activation="sigmoid")
    several = BertClassifier.load(labelled).predict_proba(TEXTS[:2])
    # Softmax and sigmoid of the same two logits.
    logits = np.log(several / (1 - several))
    np.testing.assert_allclose(logits[:, 0] - logits[:, 1], np.log(one[:, 0] / one[:, 1]), atol=1e-4)
    convert(labelled, tmp_path / "new", "hf")
    assert json.loads((tmp_path / "new" / "config.json").read_text())["problem_type"] == "multi_label_classification"


@pytest.mark.parametrize("values", [{"activation": "tanh"}, {"activation": {"config": "relu"}}])
def test_a_head_that_is_skipped_is_not_claimed(labelled, tmp_path, values):
    _change_task(labelled, **values)
    rows = convert(labelled, tmp_path / "new", "hf")
    assert {row.source for row in rows if "the activation" in row.done} == {
        "task.weights.h5: layers/dense/vars/0",
        "task.weights.h5: layers/dense/vars/1",
    }
    config = json.loads((tmp_path / "new" / "config.json").read_text())
    assert config["architectures"] == ["BertModel"]
    assert not {"id2label", "label2id", "num_labels", "problem_type"} & config.keys()


def test_odd_label_names_in_a_preset_are_refused(labelled, tmp_path):
    _change(labelled / "config.json", kbert={"id2label": 5})
    with pytest.raises(WeightsMismatchError, match="id2label .* is no JSON object"):
        convert(labelled, tmp_path / "new", "hf")


def test_a_head_that_is_not_among_the_arrays_is_not_claimed(labelled, tmp_path):
    from safetensors.numpy import save_file

    source = labelled.parent / "saved"
    arrays = load_file(source / "model.safetensors")
    save_file({name: a for name, a in arrays.items() if "classifier" not in name}, source / "model.safetensors")
    convert(source, tmp_path / "new", "hf")
    config = json.loads((tmp_path / "new" / "config.json").read_text())
    assert config["architectures"] == ["BertModel"] and "id2label" not in config


@pytest.mark.parametrize("lowercase, accents", [(False, None), (True, False), (True, None)])
def test_casing_and_accents_travel(encoder, lowercase, accents, tmp_path):
    tokenizer = WordPieceTokenizer.train(TEXTS * 3, vocab_size=90, lowercase=lowercase, strip_accents=accents)
    encoder.save_pretrained(tmp_path / "saved")
    tokenizer.save(tmp_path / "saved")
    convert(tmp_path / "saved", tmp_path / "preset", "kerashub")
    settings = json.loads((tmp_path / "preset" / "tokenizer.json").read_text())["config"]
    assert (settings["lowercase"], settings["strip_accents"]) == (lowercase, lowercase and accents is None)
    read = WordPieceTokenizer.from_pretrained(tmp_path / "preset")
    assert [read.encode(text).ids for text in TEXTS] == [tokenizer.encode(text).ids for text in TEXTS]


def test_a_tokenizer_that_kerashub_cannot_have_is_left_out(saved, tmp_path):
    source = shutil.copytree(saved, tmp_path / "source")
    spec = json.loads((source / "tokenizer.json").read_text())
    (source / "tokenizer.json").write_text(json.dumps({**spec, "pre_tokenizer": {"type": "WhitespaceSplit"}}))
    with pytest.warns(InexactWarning, match="its rules are not BERT's own"):
        convert(source, tmp_path / "preset", "kerashub")
    assert not (tmp_path / "preset" / "tokenizer.json").exists()
    assert BertEncoder.from_pretrained(tmp_path / "preset").config.hidden_size == 32


# === What is damaged or strange is refused ===


def _edited(change):
    """A change to the h5 file of a folder."""

    def edit(folder):
        with h5py.File(folder / "model.weights.h5", "r+") as file:
            change(file)

    return edit


QUERY = "layers/transformer_encoder_1/_self_attention_layer/query_dense/vars/0"
BIAS = "layers/dense/vars/1"


def _replaced(path, **dataset):
    def change(file):
        del file[path]
        file.create_dataset(path, **dataset)

    return _edited(change)


def _external(folder):
    (folder / "elsewhere").write_bytes(b"\0" * 128)
    name = str(folder / "elsewhere")
    _replaced(BIAS, shape=(32,), dtype="f4", external=[(name, 0, 128)])(folder)


def _linked(folder):
    shutil.copy(folder / "model.weights.h5", folder / "other.h5")

    def change(file):
        del file[BIAS]
        file[BIAS] = h5py.ExternalLink("other.h5", BIAS)

    _edited(change)(folder)


@pytest.mark.parametrize(
    "damage, message",
    [
        (_edited(lambda file: file.pop(QUERY)), f"lacks {QUERY} .*layer.1.attention.self.query.weight"),
        (_replaced(QUERY, data=np.zeros((32, 8, 4), "f4")), r"query_dense.*\(32, 8, 4\), .*asks for \(32, 4, 8\)"),
        (_replaced(BIAS, data=np.full(32, np.nan, "f4")), "pooler.dense.bias in .*NaN"),
        (_replaced(BIAS, data=np.zeros(32, "i1")), "holds int8.*quantised"),
        (_replaced(BIAS, shape=(32,), dtype="f4", chunks=(32,)), "does not hold as much"),
        (_replaced(BIAS, shape=(10**6, 10**6), dtype="f4", chunks=(1000, 1000)), "does not hold as much"),
        (_external, "does not hold as much"),
        (_linked, f"lacks {BIAS}"),
        (_edited(lambda file: file.create_dataset("layers/adapter/vars/0", data=np.zeros(2, "f4"))), "layers/adapter"),
    ],
)  # fmt: skip
def test_weights_that_do_not_fit_are_refused_by_name(folder, damage, message):
    damage(folder)
    with pytest.raises(WeightsMismatchError, match=message):
        BertEncoder.from_pretrained(folder)


def test_a_config_of_more_layers_than_there_are_takes_no_memory(folder):
    config = json.loads((folder / "config.json").read_text())["config"]
    _change(folder / "config.json", config={**config, "num_layers": 10**12})
    with pytest.raises(WeightsMismatchError, match="asks for 1000000000000 layers"):
        read_arrays(folder)


def test_a_truncated_file_is_refused_with_its_name(folder):
    path = folder / "model.weights.h5"
    content = path.read_bytes()
    for kept in [*range(0, 4096, 97), *range(4096, len(content), len(content) // 40), len(content) - 1]:
        path.write_bytes(content[:kept])
        with pytest.raises(WeightsMismatchError, match="model.weights.h5"):
            read_arrays(folder)


def test_a_file_of_the_preset_leads_to_its_folder(folder, tmp_path):
    with pytest.raises(WeightsNotFoundError, match="is a file of a KerasHub preset. Give the folder"):
        convert(folder / "model.weights.h5", tmp_path / "new", "hf")


def test_groups_within_groups_are_refused(folder):
    with h5py.File(folder / "model.weights.h5", "r+") as file:
        group = file
        for _ in range(2000):
            group = group.create_group("g")
    with pytest.raises(WeightsMismatchError, match="more groups than a model has"):
        read_arrays(folder)


@pytest.mark.thorough
def test_altered_bytes_give_no_other_error(folder):
    """HDF5 has no checksums: an altered number is a number, but whatever lies around the arrays is checked."""
    path = folder / "model.weights.h5"
    content, rng = path.read_bytes(), np.random.default_rng(0)
    shapes = {name: array.shape for name, array in read_arrays(folder).items()}
    refused = 0
    for _ in range(300):
        altered = bytearray(content)
        for place in rng.integers(len(content), size=3):
            altered[place] = rng.integers(256)
        path.write_bytes(altered)
        try:
            assert {name: array.shape for name, array in read_arrays(folder).items()} == shapes
        except WeightsMismatchError:
            refused += 1
    assert refused > 30


@pytest.mark.parametrize("file", ["config.json", "tokenizer.json", "task.json"])
def test_no_class_that_a_file_names_is_imported(folder, file, tmp_path, monkeypatch):
    (tmp_path / "evil_module.py").write_text("raise SystemExit('imported')")
    monkeypatch.syspath_prepend(str(tmp_path))
    evil = {"module": "evil_module", "class_name": "Evil", "config": {}, "registered_name": "evil_module>Evil"}
    (folder / file).write_text(json.dumps(evil))
    with pytest.raises(WeightsMismatchError, match=f"{file} describes 'evil_module>Evil'"):
        BertEncoder.from_pretrained(folder)
        WordPieceTokenizer.from_pretrained(folder)
    assert "evil_module" not in sys.modules


@pytest.mark.parametrize(
    "file, values, message",
    [
        ("config.json", {"registered_name": "keras_hub>GPT2Backbone"}, "describes a GPT2Backbone"),
        ("config.json", {"config": {"num_layers": 2}}, "lacks vocab_size"),
        ("config.json", {"config": "BertBackbone"}, "describes"),
        ("config.json", {"kbert": [1]}, "'kbert' is no JSON object"),
    ],
)
def test_a_config_of_something_else_is_refused(folder, file, values, message):
    _change(folder / file, **values)
    with pytest.raises(WeightsMismatchError, match=message):
        BertEncoder.from_pretrained(folder)


@pytest.mark.parametrize("values", [{"lowercase": "yes"}, {"split": False}, {"suffix_indicator": "@@"}])
def test_a_tokenizer_of_another_kind_is_refused(folder, values):
    path = folder / "tokenizer.json"
    _change(path, config={**json.loads(path.read_text())["config"], **values})
    with pytest.raises(WeightsMismatchError, match="not as BERT's tokenizer has it"):
        WordPieceTokenizer.from_pretrained(folder)


def test_a_missing_file_is_named(folder):
    (folder / "assets" / "tokenizer" / "vocabulary.txt").unlink()
    with pytest.raises(WeightsNotFoundError, match="vocabulary.txt"):
        WordPieceTokenizer.from_pretrained(folder)
    (folder / "model.weights.h5").unlink()
    with pytest.raises(WeightsNotFoundError, match="model.weights.h5"):
        BertEncoder.from_pretrained(folder)


def _shard(folder):
    """Two files in the place of one, as KerasHub writes a preset of more than 10 GB."""
    weight_map = {}
    with h5py.File(folder / "model.weights.h5") as file:
        for number, inside in enumerate((lambda name: "transformer" in name, lambda name: "transformer" not in name)):
            shard = f"model_0000{number}.weights.h5"
            with h5py.File(folder / shard, "w") as part:
                for name in filter(inside, file["layers"]):
                    file.copy(f"layers/{name}", part.require_group("layers"))
                    weight_map[f"/layers/{name}/vars"] = [shard]
    (folder / "model.weights.h5").unlink()
    (folder / "model.weights.json").write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
    return weight_map


def test_shards_are_read_and_a_missing_one_is_named(folder, encoder, arrays_of):
    _shard(folder)
    assert _same(arrays_of(BertEncoder.from_pretrained(folder)), arrays_of(encoder))
    (folder / "model_00001.weights.h5").unlink()
    with pytest.raises(WeightsNotFoundError, match=r"model_00001\.weights\.h5"):
        BertEncoder.from_pretrained(folder)


def test_an_array_in_two_shards_is_refused(folder):
    shards = {**_shard(folder), "/layers/more/vars": "model_00002.weights.h5"}
    shutil.copy(folder / "model_00000.weights.h5", folder / "model_00002.weights.h5")
    _change(folder / "model.weights.json", weight_map=shards)
    with pytest.raises(WeightsMismatchError, match="model_00002.weights.h5 holds layers/.*, which another file of"):
        read_arrays(folder)


@pytest.mark.parametrize("name", ["../other/x.weights.h5", "/etc/x.weights.h5", "..\\x.weights.h5", "passwd", 3])
def test_a_shard_elsewhere_is_refused(folder, name):
    _change(folder / "model.weights.json", weight_map={**_shard(folder), "/layers/more/vars": name})
    with pytest.raises(WeightsMismatchError, match="names .* as a file of weights"):
        BertEncoder.from_pretrained(folder)


def test_a_head_without_its_weights_is_an_error(folder):
    values = {"num_classes": 2, "activation": "linear"}
    task = {"class_name": "BertTextClassifier", "registered_name": "keras_hub>BertTextClassifier", "config": values}
    (folder / "task.json").write_text(json.dumps(task))
    with pytest.raises(WeightsNotFoundError, match=r"task\.weights\.h5 .* BertTextClassifier"):
        BertEncoder.from_pretrained(folder)
    (folder / "task.json").write_text(json.dumps({**task, "config": {**values, "num_classes": -1}}))
    with pytest.raises(WeightsMismatchError, match="num_classes is -1"):
        BertEncoder.from_pretrained(folder)


def test_a_head_that_kerashub_has_no_place_for_is_told(tmp_path, tokenizer, encoder):
    model = BertForSequenceClassification(replace(encoder.config, classifier_pooling="mean"), 2)
    save_sequence_classifier(model, tmp_path / "saved", {0: "a", 1: "b"}, "single_label_classification")
    tokenizer.save(tmp_path / "saved")
    with pytest.warns(InexactWarning, match='the classifier is left out, since it reads the mean .*pooling="cls"'):
        rows = convert(tmp_path / "saved", tmp_path / "preset", "kerashub")
    assert any(row.done.startswith("skipped: KerasHub's classifier reads the first token") for row in rows)
