"""Google's checkpoints: the names of its code, whole folders in both directions, and what is refused."""

import json
import shutil
import warnings

import keras
import ml_dtypes
import numpy as np
import pytest

from kbert import BertClassifier, BertConfig, BertEncoder, BertForPreTraining, BertPretrainer, WordPieceTokenizer
from kbert.config_json import read_config_json
from kbert.errors import KbertWarning, NewWeightsWarning, WeightsMismatchError, WeightsNotFoundError
from kbert.hub import resolve_folder
from kbert.weights import load_pretraining, load_question_answerer, load_sequence_classifier
from kbert.weights.arrays import canonical_name
from kbert.weights.folder import write_folder
from kbert.weights.formats import read_arrays
from kbert.weights.google import google_arrays, google_name, huggingface_name, write_google
from kbert.weights.huggingface import pretraining_slots
from kbert.weights.tensor_bundle import TensorBundle, write_bundle

# What `tf.trainable_variables()` gives after google-research/bert's modeling.BertModel of one layer and the two heads
# of run_pretraining.py, with a hidden size of 8, 16 in between, 11 pieces, 5 positions.
GRAPH = {
    "bert/embeddings/word_embeddings": (11, 8),
    "bert/embeddings/token_type_embeddings": (2, 8),
    "bert/embeddings/position_embeddings": (5, 8),
    "bert/embeddings/LayerNorm/beta": (8,),
    "bert/embeddings/LayerNorm/gamma": (8,),
    "bert/encoder/layer_0/attention/self/query/kernel": (8, 8),
    "bert/encoder/layer_0/attention/self/query/bias": (8,),
    "bert/encoder/layer_0/attention/self/key/kernel": (8, 8),
    "bert/encoder/layer_0/attention/self/key/bias": (8,),
    "bert/encoder/layer_0/attention/self/value/kernel": (8, 8),
    "bert/encoder/layer_0/attention/self/value/bias": (8,),
    "bert/encoder/layer_0/attention/output/dense/kernel": (8, 8),
    "bert/encoder/layer_0/attention/output/dense/bias": (8,),
    "bert/encoder/layer_0/attention/output/LayerNorm/beta": (8,),
    "bert/encoder/layer_0/attention/output/LayerNorm/gamma": (8,),
    "bert/encoder/layer_0/intermediate/dense/kernel": (8, 16),
    "bert/encoder/layer_0/intermediate/dense/bias": (16,),
    "bert/encoder/layer_0/output/dense/kernel": (16, 8),
    "bert/encoder/layer_0/output/dense/bias": (8,),
    "bert/encoder/layer_0/output/LayerNorm/beta": (8,),
    "bert/encoder/layer_0/output/LayerNorm/gamma": (8,),
    "bert/pooler/dense/kernel": (8, 8),
    "bert/pooler/dense/bias": (8,),
    "cls/predictions/transform/dense/kernel": (8, 8),
    "cls/predictions/transform/dense/bias": (8,),
    "cls/predictions/transform/LayerNorm/beta": (8,),
    "cls/predictions/transform/LayerNorm/gamma": (8,),
    "cls/predictions/output_bias": (11,),
    "cls/seq_relationship/output_weights": (2, 8),
    "cls/seq_relationship/output_bias": (2,),
}
CONFIG = BertConfig(
    vocab_size=11,
    hidden_size=8,
    num_hidden_layers=1,
    num_attention_heads=2,
    intermediate_size=16,
    max_position_embeddings=5,
)
# The bert_config.json of Google's releases: no model_type, no epsilon, and keys of their own.
RELEASED = {
    "attention_probs_dropout_prob": 0.1, "directionality": "bidi", "hidden_act": "gelu", "hidden_dropout_prob": 0.1,
    "hidden_size": 8, "initializer_range": 0.02, "intermediate_size": 16, "max_position_embeddings": 5,
    "num_attention_heads": 2, "num_hidden_layers": 1, "pooler_fc_size": 8, "type_vocab_size": 2, "vocab_size": 11,
}  # fmt: skip
VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b", "##b", "c", "##c", "good"]
QUERY = "bert/encoder/layer_0/attention/self/query/kernel"


@pytest.fixture(scope="module")
def arrays():
    rng = np.random.default_rng(0)
    return {name: rng.normal(0, 0.5, shape).astype("float32") for name, shape in GRAPH.items()}


def _release(folder, arrays, prefix="bert_model.ckpt"):
    """A folder as Google's archives hold it."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "bert_config.json").write_text(json.dumps(RELEASED))
    (folder / "vocab.txt").write_text("\n".join(VOCABULARY) + "\n")
    write_bundle(folder / prefix, arrays)
    return folder


@pytest.fixture
def folder(arrays, tmp_path):
    return _release(tmp_path / "uncased_L-1_H-8_A-2", arrays)


def _values(variable):
    return keras.ops.convert_to_numpy(variable.value)


def _canonical(arrays):
    return {canonical_name(name): array for name, array in arrays.items()}


def _same(first, second):
    return set(first) == set(second) and all(
        first[name].dtype == second[name].dtype and np.array_equal(first[name], second[name]) for name in first
    )


# === Names ===


def test_every_variable_of_googles_graph_has_one_name_in_transformers_and_that_leads_back():
    theirs = {name: huggingface_name(name) for name in GRAPH}
    assert {google: google_name(name) for google, name in theirs.items()} == {name: name for name in GRAPH}
    model = BertForPreTraining(CONFIG)
    assert {canonical_name(name) for name in theirs.values()} == {slot.name for slot in pretraining_slots(model)}


@pytest.mark.parametrize(
    "name",
    [
        "bert/encoder/layer_0/attention/self/query/weight", "bert/encoder/layer_#/output/dense/bias",
        "bert/encoder/layer_00/output/dense/bias", "bert/encoder/layer_0/layer_1/output/dense/bias", "", "adam_m",
        "bert/embeddings/word_embeddings/", "/bert/embeddings/word_embeddings", "Bert/pooler/dense/bias",
        "bert/pooler/dense/kernel/adam_m/adam_m", "new/variable/adam_v", "../../etc/passwd",
    ],
)  # fmt: skip
def test_a_name_that_is_nearly_one_is_none(name):
    with pytest.raises(KeyError):
        huggingface_name(name)


# === Reading ===


def test_each_array_goes_where_the_model_uses_it(folder, arrays):
    model = load_pretraining(folder)
    kernel = model.encoder.transformer_layers[0].attention.query.kernel
    np.testing.assert_array_equal(_values(kernel), arrays[QUERY])  # (in, out), as in Keras
    read = read_arrays(folder)
    assert len(read) == len(GRAPH)
    np.testing.assert_array_equal(read["encoder.layer.0.attention.self.query.weight"], arrays[QUERY].T)
    for google, theirs in [
        ("bert/embeddings/word_embeddings", "embeddings.word_embeddings.weight"),
        ("bert/embeddings/token_type_embeddings", "embeddings.token_type_embeddings.weight"),
        ("bert/encoder/layer_0/output/LayerNorm/gamma", "encoder.layer.0.output.LayerNorm.weight"),
        ("bert/encoder/layer_0/output/LayerNorm/beta", "encoder.layer.0.output.LayerNorm.bias"),
        ("cls/predictions/output_bias", "cls.predictions.bias"),
        ("cls/seq_relationship/output_weights", "cls.seq_relationship.weight"),
    ]:
        np.testing.assert_array_equal(read[theirs], arrays[google])


def test_what_tensorflow_saved_in_training_is_read_without_the_optimizers_arrays(arrays, folder):
    v1 = pytest.importorskip("tensorflow", reason="to write a checkpoint, run: pip install tensorflow").compat.v1
    for path in folder.glob("bert_model.ckpt*"):
        path.unlink()
    slots = {f"{name}/{slot}": array * 2 for name, array in arrays.items() for slot in ("adam_m", "adam_v")}
    with v1.Graph().as_default(), v1.Session() as session:
        variables = [v1.get_variable(name, initializer=v1.constant(array)) for name, array in (arrays | slots).items()]
        variables.append(v1.train.get_or_create_global_step())
        session.run(v1.global_variables_initializer())
        v1.train.Saver(variables).save(session, str(folder / "model.ckpt"), global_step=variables[-1])
    read = list(google_arrays(folder))
    skipped = {array.source for array in read if array.name is None}
    assert skipped == {"global_step", *slots} and all(
        array.note.startswith("skipped") for array in read if not array.name
    )
    assert {array.source: array.note for array in read if array.name} == {
        name: "transposed" if name.endswith("/kernel") else "copied" for name in GRAPH
    }
    with warnings.catch_warnings():
        warnings.simplefilter("error", NewWeightsWarning)
        model = load_pretraining(folder)
    np.testing.assert_array_equal(_values(model.mlm_head.bias), arrays["cls/predictions/output_bias"])


@pytest.mark.parametrize("slot", ["Adam", "Adam_1", "lamb_m", "lamb_v"])
def test_the_arrays_of_other_optimizers_are_skipped_too(folder, arrays, slot):
    more = {f"{QUERY}/{slot}": arrays[QUERY], "beta1_power": np.array(0.9), "beta2_power": np.array(0.999)}
    write_bundle(folder / "bert_model.ckpt", arrays | more)
    assert len(read_arrays(folder)) == len(GRAPH)


@pytest.mark.parametrize("dtype", ["float16", ml_dtypes.bfloat16])
def test_half_precision_is_read_exactly(folder, arrays, dtype):
    write_bundle(folder / "bert_model.ckpt", {name: array.astype(dtype) for name, array in arrays.items()})
    read = read_arrays(folder)
    assert {array.dtype for array in read.values()} == {np.dtype("float32")}
    bias = arrays["cls/predictions/output_bias"].astype(dtype).astype("float32")
    np.testing.assert_array_equal(read["cls.predictions.bias"], bias)


@pytest.mark.slow
def test_googles_folder_is_all_that_the_estimators_need(folder):
    assert BertConfig.from_folder(folder) == CONFIG
    assert BertEncoder.from_pretrained(folder).config == CONFIG
    with warnings.catch_warnings():
        warnings.simplefilter("error", NewWeightsWarning)
        filled = BertPretrainer(weights=folder).fill_mask("a [MASK]", top_k=2)
    assert set(filled["token"]) <= set(VOCABULARY)
    classifier = BertClassifier(weights=folder, epochs=1, max_length=5, random_state=0, early_stopping=False)
    classifier.fit(["good", "abc", "good a", "b"], ["x", "y", "x", "y"])
    assert set(classifier.predict(["good", "b"])) <= {"x", "y"}


@pytest.mark.parametrize(
    "piece, lowercase", [("good", True), ("Good", False), ("##B", False), ("ℝ", True), ("é", True)]
)
def test_a_vocabulary_alone_says_whether_the_model_is_cased(folder, piece, lowercase):
    (folder / "vocab.txt").write_text("\n".join([*VOCABULARY[:-1], piece]) + "\n", encoding="utf-8")
    assert WordPieceTokenizer.from_pretrained(folder).lowercase is lowercase


def test_the_prefix_of_the_checkpoint_stands_for_its_folder_as_in_googles_scripts(folder):
    for name in (folder / "bert_model.ckpt", str(folder / "bert_model.ckpt")):
        assert resolve_folder(name) == folder
    with pytest.raises(WeightsNotFoundError, match="no such folder"):
        resolve_folder(str(folder / "bert_model.ckpt-100"))
    (folder / "model.safetensors").touch()
    with pytest.raises(WeightsNotFoundError, match="also holds model.safetensors"):
        resolve_folder(folder / "bert_model.ckpt")


# === Writing ===


@pytest.mark.parametrize("name", ["minilm_folder", "bert_tiny_folder"])
def test_released_weights_go_to_google_and_back_bit_for_bit(name, request, tmp_path):
    source = request.getfixturevalue(name)
    config, arrays = read_config_json(source), read_arrays(source)
    written = write_google(tmp_path / "google", config, arrays)
    assert {array.source for array in written} == set(TensorBundle(tmp_path / "google" / "bert_model.ckpt").entries)
    assert sorted(path.name for path in (tmp_path / "google").iterdir()) == [
        "bert_config.json",
        "bert_model.ckpt.data-00000-of-00001",
        "bert_model.ckpt.index",
    ]
    write_folder(tmp_path / "again", read_config_json(tmp_path / "google"), read_arrays(tmp_path / "google"))
    weights = {name: array for name, array in _canonical(arrays).items() if name != "embeddings.position_ids"}
    assert _same(_canonical(read_arrays(tmp_path / "again")), weights)
    assert read_config_json(tmp_path / "again") == config


def test_a_checkpoint_of_googles_comes_back_byte_for_byte(folder, tmp_path):
    write_google(tmp_path / "again", read_config_json(folder), read_arrays(folder))
    for path in folder.glob("bert_model.ckpt.*"):
        assert (tmp_path / "again" / path.name).read_bytes() == path.read_bytes()
    assert read_config_json(tmp_path / "again") == RELEASED


@pytest.mark.parametrize("head", ["classifier", "qa_outputs"])
def test_the_heads_of_fine_tuned_models_go_there_and_back(arrays, folder, tmp_path, head):
    rng = np.random.default_rng(1)
    head_arrays = {f"{head}.weight": rng.normal(size=(2, 8)).astype("float32"), f"{head}.bias": np.ones(2, "float32")}
    encoder = {name: array for name, array in read_arrays(folder).items() if not name.startswith("cls.")}
    write_google(tmp_path, CONFIG, encoder | head_arrays)
    stored = TensorBundle(tmp_path / "bert_model.ckpt")
    name = "output_weights" if head == "classifier" else "cls/squad/output_weights"
    np.testing.assert_array_equal(stored.read(name), head_arrays[f"{head}.weight"])  # as run_*.py multiplies with it
    assert _same(read_arrays(tmp_path), encoder | head_arrays)
    model = load_sequence_classifier(tmp_path) if head == "classifier" else load_question_answerer(tmp_path)
    kernel = getattr(model, head).kernel
    np.testing.assert_array_equal(_values(kernel), head_arrays[f"{head}.weight"].T)


def test_a_classifier_of_means_is_left_out_and_told_of(folder, tmp_path):
    theirs = read_arrays(folder)
    head = {"mean_classifier.weight": np.ones((2, 8), "float32"), "mean_classifier.bias": np.ones(2, "float32")}
    written = write_google(tmp_path, CONFIG, theirs | head)
    assert _same(read_arrays(tmp_path), theirs) and len(written) == len(theirs) + 2
    assert [(row.source, row.name) for row in written[-2:]] == [("", name) for name in head]
    assert all("reads the first token alone" in row.note for row in written[-2:])


def test_older_names_and_a_tied_output_matrix_are_written_once(arrays, folder, tmp_path):
    theirs = read_arrays(folder)
    words = theirs["embeddings.word_embeddings.weight"]
    more = {"cls.predictions.decoder.weight": words, "bert.embeddings.position_ids": np.arange(5)[None]}
    older = {
        name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): array
        for name, array in theirs.items()
    }
    write_google(tmp_path, CONFIG, older | more)
    assert _same(read_arrays(tmp_path), theirs)
    with pytest.raises(WeightsMismatchError, match="decoder.weight .*differ"):
        write_google(tmp_path, CONFIG, theirs | {"cls.predictions.decoder.weight": words + 1})
    with pytest.raises(WeightsMismatchError, match="31 arrays .*with and without bert."):
        write_google(tmp_path, CONFIG, theirs | {"bert.embeddings.word_embeddings.weight": words + 1})


def test_only_weights_in_the_hugging_face_layout_are_read_in_place_of_a_checkpoint(folder, arrays):
    (folder / "adapter.safetensors").write_bytes(b"")
    (folder / "pytorch_model_quantized.bin").write_bytes(b"")
    assert len(read_arrays(folder)) == len(GRAPH)
    assert resolve_folder(folder / "bert_model.ckpt") == folder
    for name in ("model.safetensors.index.json", "pytorch_model.bin"):
        (folder / name).write_text("{}")
        with pytest.raises((WeightsMismatchError, WeightsNotFoundError), match=name):
            read_arrays(folder)
        with pytest.raises(WeightsNotFoundError, match=f"also holds .*{name}"):
            resolve_folder(folder / "bert_model.ckpt")
        (folder / name).unlink()


def test_an_array_that_google_has_no_variable_for_is_refused_and_nothing_is_written(folder, tmp_path):
    with pytest.raises(WeightsMismatchError, match="no variable for adapter.weight"):
        write_google(tmp_path / "new", CONFIG, read_arrays(folder) | {"adapter.weight": np.ones(2, "float32")})
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    "values, message",
    [({"layer_norm_eps": 1e-6}, "epsilon fixed at 1e-12"), ({"hidden_act": "gelu_new"}, "no activation 'gelu_new'")],
)
def test_what_googles_code_would_compute_otherwise_is_said_and_kept(folder, tmp_path, values, message):
    config = BertConfig(**{**CONFIG.to_dict(), **values})
    with pytest.warns(KbertWarning, match=message):
        write_google(tmp_path, config, read_arrays(folder))
    assert BertConfig.from_folder(tmp_path) == config


# === What is refused ===


def test_several_checkpoints_are_named_and_none_is_taken(folder, arrays):
    write_bundle(folder / "model.ckpt-1000", arrays)
    for path in (folder, folder / "model.ckpt-1000"):
        with pytest.raises(WeightsNotFoundError, match="bert_model.ckpt, model.ckpt-1000. Keep one"):
            BertEncoder.from_pretrained(path)
    for path in folder.glob("bert_model.ckpt.*"):
        path.unlink()
    assert len(read_arrays(folder)) == len(GRAPH)


def _object_graph(arrays):
    return {
        "_CHECKPOINTABLE_OBJECT_GRAPH": np.zeros(1, "uint8"),
        "model/layer-0/kernel/.ATTRIBUTES/VARIABLE_VALUE": arrays[QUERY],
    }


@pytest.mark.parametrize(
    "change, message",
    [
        (lambda a: {name: a[name] for name in a if name != QUERY}, "lacks encoder.layer.0.attention.self.query.weight"),
        (lambda a: {**a, QUERY: a[QUERY][:4]}, "query.weight .*shape"),
        (lambda a: {**a, QUERY: a[QUERY] * np.float32(np.nan)}, "query.weight .*NaN"),
        (lambda a: {**a, QUERY: a[QUERY].astype("int32")}, f"{QUERY} .*int32.*floating point"),
        (lambda a: {**a, QUERY.replace("_0", "_1"): a[QUERY]}, "holds encoder.layer.1.attention.self.query.weight"),
        (lambda a: {**a, "../../etc/passwd": a[QUERY], "my/adapter": a[QUERY]}, "holds ../../etc/passwd, my/adapter"),
        (lambda a: {f"{name}/x": array for name, array in a.items()}, "and 25 more, which no BERT"),
        (_object_graph, "TensorFlow 2 .*model/layer-0/kernel.*Take the original release"),
    ],
    ids=["missing", "shape", "NaN", "integers", "a layer more", "unknown names", "all unknown", "TensorFlow 2"],
)
def test_a_checkpoint_that_is_not_the_models_is_refused_by_name(folder, arrays, change, message):
    write_bundle(folder / "bert_model.ckpt", change(arrays))
    with pytest.raises(WeightsMismatchError, match=message):
        load_pretraining(folder)


def test_a_keras_checkpoint_that_tensorflow_2_wrote_is_refused(folder):
    tensorflow = pytest.importorskip("tensorflow", reason="to write a checkpoint, run: pip install tensorflow")
    for path in folder.glob("bert_model.ckpt*"):
        path.unlink()
    tensorflow.train.Checkpoint(kernel=tensorflow.Variable([1.0])).write(str(folder / "bert_model.ckpt"))
    with pytest.raises(WeightsMismatchError, match="TensorFlow 2 .*kernel/.ATTRIBUTES/VARIABLE_VALUE"):
        read_arrays(folder)


@pytest.mark.parametrize(
    "missing, message",
    [
        ("bert_config.json", "no config.json"),
        ("bert_model.ckpt.index", "no model.safetensors .*bert_model.ckpt.index"),
        ("bert_model.ckpt.data-00000-of-00001", "bert_model.ckpt.data-00000-of-00001, which"),
        ("vocab.txt", "vocab.txt"),
    ],
)
def test_a_missing_file_is_named(folder, missing, message):
    (folder / missing).unlink()
    with pytest.raises(WeightsNotFoundError, match=message):
        BertEncoder.from_pretrained(folder)
        WordPieceTokenizer.from_pretrained(folder)


def test_a_config_json_beside_googles_comes_first(folder, tmp_path):
    other = shutil.copytree(folder, tmp_path / "other")
    (other / "config.json").write_text(json.dumps({**RELEASED, "layer_norm_eps": 1e-6}))
    assert BertConfig.from_folder(other).layer_norm_eps == 1e-6
    assert BertConfig.from_folder(folder).layer_norm_eps == 1e-12
