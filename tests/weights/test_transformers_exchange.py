"""What kbert saves opens in transformers with the same outputs, and the other way round."""

import keras
import numpy as np
import pytest

from kbert import BertEncoder
from kbert.model import BertForSequenceClassification
from kbert.weights import load_sequence_classifier, save_sequence_classifier

torch = pytest.importorskip("torch", reason="to compare, run: pip install 'kbert-learn[parity]'")
transformers = pytest.importorskip("transformers", reason="to compare with it, run: pip install 'kbert-learn[parity]'")

pytestmark = [pytest.mark.backend, pytest.mark.parity]

LABELS = {0: "bad", 1: "good", 2: "über"}


def _theirs(model, inputs):
    """The outputs of a model of transformers for BertEncoder's inputs."""
    arrays = (torch.tensor(inputs[name], dtype=torch.long) for name in ("token_ids", "text_ids", "segment_ids"))
    with torch.no_grad():
        return model.eval()(*arrays)


def _logits(model, inputs):
    starts = np.zeros((len(inputs["token_ids"]), 1), "int32")
    return keras.ops.convert_to_numpy(model({**inputs, "first_positions": starts}))[:, 0]


def _their_config(config):
    return transformers.BertConfig(**config.to_dict(), id2label=LABELS, label2id={v: k for k, v in LABELS.items()})


def test_a_saved_encoder_opens_in_transformers_with_the_same_outputs(encoder, inputs, tmp_path):
    encoder.save_pretrained(tmp_path)
    model, report = transformers.AutoModel.from_pretrained(tmp_path, output_loading_info=True)
    assert not report["missing_keys"] and not report["unexpected_keys"] and not report["mismatched_keys"]
    theirs, ours = _theirs(model, inputs), encoder(inputs)
    sequence = keras.ops.convert_to_numpy(ours["sequence_output"])
    real = inputs["text_ids"] == 1
    assert np.abs(sequence - theirs.last_hidden_state.numpy())[real].max() < 1e-4
    assert np.abs(keras.ops.convert_to_numpy(ours["pooled_output"]) - theirs.pooler_output.numpy()).max() < 1e-4


def test_an_encoder_that_transformers_saved_opens_with_the_same_outputs(toy_config, inputs, tmp_path):
    torch.manual_seed(0)
    model = transformers.BertModel(_their_config(toy_config))
    model.save_pretrained(tmp_path)
    encoder = BertEncoder.from_pretrained(tmp_path)
    assert encoder.config == toy_config
    difference = keras.ops.convert_to_numpy(encoder(inputs)["pooled_output"]) - _theirs(model, inputs)[1].numpy()
    assert np.abs(difference).max() < 1e-4


def test_a_saved_classifier_opens_in_transformers_with_its_logits_and_label_names(toy_config, inputs, tmp_path):
    model = BertForSequenceClassification(toy_config, num_labels=3, seed=1)
    model.classifier.kernel.assign(np.random.default_rng(0).normal(size=(32, 3)))
    model.classifier.bias.assign([1.0, 2.0, 3.0])
    save_sequence_classifier(model, tmp_path, LABELS, "single_label_classification")
    theirs, report = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path, output_loading_info=True)
    assert not report["missing_keys"] and not report["unexpected_keys"]
    assert theirs.config.id2label == LABELS
    assert theirs.config.label2id == {"bad": 0, "good": 1, "über": 2}
    assert np.abs(_logits(model, inputs) - _theirs(theirs, inputs).logits.numpy()).max() < 1e-4
    again = load_sequence_classifier(tmp_path)
    np.testing.assert_array_equal(_logits(again, inputs), _logits(model, inputs))


@pytest.mark.parametrize("n_labels", [2, 3])
def test_a_classifier_that_transformers_saved_opens_with_its_logits(toy_config, inputs, tmp_path, n_labels):
    torch.manual_seed(0)
    config = _their_config(toy_config) if n_labels == 3 else transformers.BertConfig(**toy_config.to_dict())
    theirs = transformers.BertForSequenceClassification(config)
    torch.nn.init.normal_(theirs.classifier.weight)
    theirs.save_pretrained(tmp_path)
    ours = load_sequence_classifier(tmp_path)
    assert ours.num_labels == n_labels
    assert np.abs(_logits(ours, inputs) - _theirs(theirs, inputs).logits.numpy()).max() < 1e-4


def test_the_encoder_of_a_classifier_that_transformers_saved_is_read_without_its_head(toy_config, inputs, tmp_path):
    torch.manual_seed(0)
    theirs = transformers.BertForSequenceClassification(_their_config(toy_config))
    theirs.save_pretrained(tmp_path)
    pooled = keras.ops.convert_to_numpy(BertEncoder.from_pretrained(tmp_path)(inputs)["pooled_output"])
    assert np.abs(pooled - _theirs(theirs.bert, inputs).pooler_output.numpy()).max() < 1e-4
