"""KerasHub itself: what it saves kbert reads, and what kbert writes it opens, with the same outputs."""

import json

import keras
import numpy as np
import pytest

from kbert import BertEncoder, WordPieceTokenizer
from kbert.errors import InexactWarning
from kbert.model import BertForPreTraining, BertForSequenceClassification
from kbert.weights import load_pretraining, load_sequence_classifier, save_pretraining, save_sequence_classifier
from kbert.weights.convert import convert

pytestmark = [pytest.mark.slow, pytest.mark.parity]

TEXTS = ["The quick brown fox isn't here.", "Crème brûlée, 3.50 €!", "中文 and ASCII", "a  b\tc\n(d) [e]"]
TOLERANCE = 2e-5


@pytest.fixture(scope="module")
def keras_hub():
    return pytest.importorskip("keras_hub", reason="to compare with it, run: pip install keras-hub")


@pytest.fixture(scope="module")
def backbone(keras_hub, toy_config):
    """One of KerasHub's of which no array holds its start value."""
    backbone = keras_hub.models.BertBackbone(
        vocabulary_size=100, num_layers=2, num_heads=4, hidden_dim=32, intermediate_dim=64, max_sequence_length=64
    )
    _randomise(backbone)
    return backbone


def _randomise(model):
    rng = np.random.default_rng(0)
    for weight in model.weights:
        weight.assign(rng.normal(1.0 if weight.name == "gamma" else 0.0, 0.2, weight.shape).astype("float32"))


def _theirs(inputs):
    return {"token_ids": inputs["token_ids"], "segment_ids": inputs["segment_ids"], "padding_mask": inputs["text_ids"]}


def _numpy(tensor):
    return np.array(keras.ops.convert_to_numpy(tensor))


def _assert_same_vectors(encoder, backbone, inputs):
    ours, theirs = encoder(inputs), backbone(_theirs(inputs))
    real = inputs["text_ids"].astype(bool)  # what padding becomes is not defined
    for name, chosen in (("sequence_output", real), ("pooled_output", slice(None))):
        expected = _numpy(theirs[name])[chosen]
        assert np.abs(expected).max() > 0.1
        np.testing.assert_allclose(_numpy(ours[name])[chosen], expected, rtol=0, atol=TOLERANCE)


def test_a_backbone_of_kerashub_gives_the_same_vectors(backbone, inputs, toy_config, tmp_path):
    backbone.save_to_preset(str(tmp_path))
    encoder = BertEncoder.from_pretrained(tmp_path)
    assert encoder.config == toy_config
    _assert_same_vectors(encoder, backbone, inputs)


def test_a_preset_of_kbert_gives_the_same_vectors(keras_hub, encoder, inputs, tmp_path):
    encoder.save_pretrained(tmp_path / "saved")
    convert(tmp_path / "saved", tmp_path / "preset", "kerashub")
    backbone = keras_hub.models.Backbone.from_preset(str(tmp_path / "preset"))
    assert isinstance(backbone, keras_hub.models.BertBackbone)
    _assert_same_vectors(encoder, backbone, inputs)


def test_bfloat16_and_shards_are_read(keras_hub, backbone, arrays_of, tmp_path):
    half = keras_hub.models.BertBackbone(**{**backbone.get_config(), "dtype": "bfloat16"})
    half.set_weights(backbone.get_weights())
    half.save_to_preset(str(tmp_path / "half"), max_shard_size=2e-5)
    assert (tmp_path / "half" / "model_00001.weights.h5").is_file()
    backbone.save_to_preset(str(tmp_path / "whole"))
    read = arrays_of(BertEncoder.from_pretrained(tmp_path / "half"))
    for array, original in zip(read, arrays_of(BertEncoder.from_pretrained(tmp_path / "whole")), strict=True):
        assert not np.array_equal(array, original)
        np.testing.assert_allclose(array, original, rtol=2**-8)


def test_a_text_classifier_of_kerashub_gives_the_same_logits(keras_hub, backbone, inputs, tmp_path):
    classifier = keras_hub.models.BertTextClassifier(backbone, 3, activation="softmax")
    _randomise(classifier)
    classifier.save_to_preset(str(tmp_path))
    logits = _numpy(load_sequence_classifier(tmp_path)({**inputs, "first_positions": np.zeros((3, 1), "int32")}))[:, 0]
    expected = _numpy(classifier(_theirs(inputs)))
    assert np.ptp(expected) > 0.1
    np.testing.assert_allclose(_numpy(keras.ops.softmax(logits)), expected, atol=TOLERANCE)


def test_a_classifier_of_kbert_is_a_text_classifier_of_kerashub(keras_hub, encoder, inputs, tmp_path):
    model = BertForSequenceClassification(encoder.config, 3)
    _randomise(model)
    names = dict(enumerate("abc"))
    save_sequence_classifier(model, tmp_path / "saved", names, "single_label_classification")
    WordPieceTokenizer.train(TEXTS * 3, vocab_size=90).save(tmp_path / "saved")
    convert(tmp_path / "saved", tmp_path / "preset", "kerashub")
    classifier = keras_hub.models.TextClassifier.from_preset(str(tmp_path / "preset"))
    expected = _numpy(model({**inputs, "first_positions": np.zeros((3, 1), "int32")}))[:, 0]
    np.testing.assert_allclose(_numpy(classifier(_theirs(inputs))), expected, atol=TOLERANCE)
    assert classifier.predict(TEXTS, verbose=0).shape == (4, 3)  # with the tokenizer of the preset


def _masked_lm_logits(masked_lm, inputs, positions):
    return _numpy(masked_lm({**_theirs(inputs), "mask_positions": positions}))


def test_a_masked_lm_goes_both_ways_with_a_word_on_the_difference(keras_hub, backbone, inputs, tmp_path):
    positions = np.array([[1, 2], [3, 4], [5, 6]], "int32")
    masked_lm = keras_hub.models.BertMaskedLM(backbone)
    _randomise(masked_lm)
    masked_lm.save_to_preset(str(tmp_path / "theirs"))
    with pytest.warns(InexactWarning, match="masked-LM head"):
        model = load_pretraining(tmp_path / "theirs", nsp=False)
    logits = _numpy(model({**inputs, "masked_positions": positions})["mlm_logits"])
    expected = _masked_lm_logits(masked_lm, inputs, positions)
    assert np.ptp(expected) > 5
    np.testing.assert_allclose(logits, expected, atol=0.01)
    save_pretraining(model, tmp_path / "saved")
    with pytest.warns(InexactWarning, match="masked-LM head"):
        convert(tmp_path / "saved", tmp_path / "ours", "kerashub")
    again = keras_hub.models.MaskedLM.from_preset(str(tmp_path / "ours"), preprocessor=None)
    np.testing.assert_array_equal(_masked_lm_logits(again, inputs, positions), expected)


@pytest.mark.parametrize("lowercase", [True, False])
def test_tokenizers_give_the_same_ids(keras_hub, encoder, lowercase, tmp_path):
    trained = WordPieceTokenizer.train(TEXTS * 3, vocab_size=90, lowercase=lowercase)
    encoder.save_pretrained(tmp_path / "saved")
    trained.save(tmp_path / "saved")
    convert(tmp_path / "saved", tmp_path / "preset", "kerashub")
    theirs = keras_hub.models.Tokenizer.from_preset(str(tmp_path / "preset"))
    assert [_numpy(theirs(text)).tolist() for text in TEXTS] == [trained.encode(text).ids[1:-1] for text in TEXTS]
    # And back, through what KerasHub saves.
    theirs.save_to_preset(str(tmp_path / "again"))
    (tmp_path / "again" / "config.json").write_text(json.dumps({}))
    again = WordPieceTokenizer.from_pretrained(tmp_path / "again")
    assert [again.encode(text).ids for text in TEXTS] == [trained.encode(text).ids for text in TEXTS]


@pytest.mark.thorough
def test_released_weights_have_the_same_vectors(keras_hub, minilm_folder, tmp_path):
    """But for the form of GELU, which is KerasHub's in both here."""
    config = json.loads((minilm_folder / "config.json").read_text())
    for file in ("model.safetensors", "vocab.txt", "tokenizer.json", "tokenizer_config.json"):
        (tmp_path / file).symlink_to(minilm_folder / file)
    (tmp_path / "config.json").write_text(json.dumps({**config, "hidden_act": "gelu_new"}))
    convert(tmp_path, tmp_path / "preset", "kerashub")
    backbone = keras_hub.models.BertBackbone.from_preset(str(tmp_path / "preset"))
    encoder = BertEncoder.from_pretrained(tmp_path)
    _assert_same_vectors(encoder, backbone, WordPieceTokenizer.from_pretrained(tmp_path)(TEXTS, max_length=24))


def test_pre_training_heads_that_kerashub_lacks_are_left_out(toy_config, tmp_path):
    save_pretraining(BertForPreTraining(toy_config), tmp_path / "saved")
    with pytest.warns(InexactWarning):
        rows = convert(tmp_path / "saved", tmp_path / "preset", "kerashub")
    skipped = {row.source for row in rows if row.done == "skipped: KerasHub has no next-sentence head"}
    assert skipped == {"cls.seq_relationship.weight", "cls.seq_relationship.bias"}
