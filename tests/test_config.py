"""The architecture: sizes, parameter counts, and what is refused."""

import json
from dataclasses import fields

import numpy as np
import pytest

from kbert import BertConfig
from kbert.config_json import read_config_json
from kbert.errors import UnknownSizeError, WeightsMismatchError, WeightsNotFoundError
from kbert.learning_rates import default_learning_rate
from kbert.sizes import SIZES, named_size


def _parameters(c: BertConfig) -> int:
    D, F = c.hidden_size, c.intermediate_size
    norm = 2 * D
    embeddings = (c.vocab_size + c.max_position_embeddings + c.type_vocab_size) * D + norm
    layer = 4 * (D * D + D) + norm + (D * F + F) + (F * D + D) + norm
    pooler = D * D + D
    return embeddings + c.num_hidden_layers * layer + pooler


@pytest.mark.parametrize(
    "size, layers, hidden, heads, feed_forward",
    [
        ("tiny", 2, 128, 2, 512),
        ("mini", 4, 256, 4, 1024),
        ("small", 4, 512, 8, 2048),
        ("medium", 8, 512, 8, 2048),
        ("base", 12, 768, 12, 3072),
        ("base-cased", 12, 768, 12, 3072),
        ("large", 24, 1024, 16, 4096),
        ("large-cased", 24, 1024, 16, 4096),
        ("minilm-l6", 6, 384, 12, 1536),
    ],
)
def test_the_sizes_are_those_of_the_released_models(size, layers, hidden, heads, feed_forward):
    config = BertConfig.from_size(size)
    shape = (config.num_hidden_layers, config.hidden_size, config.num_attention_heads, config.intermediate_size)
    assert shape == (layers, hidden, heads, feed_forward)
    assert (config.max_position_embeddings, config.type_vocab_size) == (512, 2)
    assert (config.layer_norm_eps, config.initializer_range, config.hidden_act) == (1e-12, 0.02, "gelu")
    assert (config.hidden_dropout_prob, config.attention_probs_dropout_prob, config.head_dropout) == (0.1, 0.1, 0.1)


@pytest.mark.parametrize(
    "size, parameters",
    [("tiny", 4_385_920), ("base", 109_482_240), ("base-cased", 108_310_272), ("large", 335_141_888)],
)
def test_the_sizes_have_the_published_numbers_of_parameters(size, parameters):
    assert _parameters(BertConfig.from_size(size)) == parameters


@pytest.mark.parametrize("size, millions", [("mini", 11.2), ("small", 28.8), ("medium", 41.4)])
def test_the_small_sizes_have_the_published_numbers_of_parameters(size, millions):
    assert round(_parameters(BertConfig.from_size(size)) / 1e6, 1) == millions


def test_whole_numbers_of_numpy_are_taken_and_kept_as_int():
    config = BertConfig(hidden_size=np.int64(32), num_attention_heads=np.uint8(2))
    assert config == BertConfig(hidden_size=32, num_attention_heads=2)
    assert type(config.hidden_size) is int and json.loads(json.dumps(config.to_dict()))["hidden_size"] == 32
    with pytest.raises(ValueError, match="hidden_size must be a whole number"):
        BertConfig(hidden_size=np.bool_(True))


@pytest.mark.parametrize("name", ["hidden_dropout_prob", "classifier_dropout", "initializer_range", "layer_norm_eps"])
def test_other_numbers_of_numpy_are_kept_as_float(name):
    config = BertConfig(**{name: np.float32(0.5)})
    assert json.loads(json.dumps(config.to_dict()))[name] == 0.5


@pytest.mark.backend
def test_the_model_that_is_built_has_as_many_parameters():
    from kbert import BertEncoder

    assert BertEncoder(BertConfig.from_size("tiny")).count_params() == 4_385_920


@pytest.mark.parametrize("asked, near", [("bsae", "'base'"), ("Tiny", "'tiny'"), ("base_cased", "'base-cased'")])
def test_an_unknown_size_is_refused_with_the_nearest_names(asked, near):
    with pytest.raises(UnknownSizeError, match=f"Unknown size '{asked}'. Did you mean .*{near}"):
        BertConfig.from_size(asked)


@pytest.mark.parametrize("language", ["chinese", "german-cased", "multilingual-cased"])
def test_a_hub_name_of_another_language_is_not_taken_for_a_misspelt_size(language):
    name = f"bert-base-{language}"
    with pytest.raises(UnknownSizeError, match=f"Unknown size '{name}'. The sizes .* weights='{name}'"):
        BertConfig.from_size(name)


@pytest.mark.parametrize("asked", ["bert-base-uncasd", "bert_base_en_uncased"])
def test_a_misspelt_hub_name_of_a_size_keeps_its_casing(asked):
    with pytest.raises(UnknownSizeError, match=r"Did you mean 'bert-base-uncased'\?"):
        BertConfig.from_size(asked)


def test_a_size_like_none_of_them_is_refused_with_all_names():
    with pytest.raises(UnknownSizeError, match=", ".join(SIZES)):
        BertConfig.from_size("123456")


COUNTS = [field.name for field in fields(BertConfig) if isinstance(field.default, int)]


@pytest.mark.parametrize("name", COUNTS)
@pytest.mark.parametrize("value", [0, 1.5, True, "12", None])
def test_every_count_is_checked(name, value):
    assert {"vocab_size", "max_position_embeddings", "type_vocab_size"} <= set(COUNTS)
    with pytest.raises(ValueError, match=f"{name} must be a whole number of at least 1, got {value!r}"):
        BertConfig(**{name: value})


@pytest.mark.parametrize(
    "values, named",
    [
        ({"hidden_size": 30, "num_attention_heads": 4}, "hidden_size .30. must be a multiple"),
        ({"num_hidden_layers": 0}, "num_hidden_layers"),
        ({"vocab_size": 10.0}, "vocab_size"),
        ({"intermediate_size": True}, "intermediate_size"),
        ({"hidden_dropout_prob": 1.0}, "hidden_dropout_prob"),
        ({"classifier_dropout": -0.1}, "classifier_dropout"),
        ({"hidden_act": "swish"}, "hidden_act.*gelu_new.*'swish'"),
    ],
)
def test_a_value_out_of_range_is_named(values, named):
    with pytest.raises(ValueError, match=named):
        BertConfig(**values)


BASE = BertConfig().to_dict()


@pytest.mark.parametrize(
    "values, message",
    [
        ({**BASE, "model_type": "roberta"}, "'roberta'"),
        ({**BASE, "position_embedding_type": "relative_key"}, "'relative_key'"),
        ({**BASE, "is_decoder": True}, "decoder"),
        ({**BASE, "add_cross_attention": True}, "decoder"),
        ({"hidden_size": 768}, "lacks vocab_size, num_hidden_layers"),
        ({**BASE, "hidden_act": "silu"}, "not usable.*'silu'"),
        ({**BASE, "hidden_size": "768"}, "not usable.*hidden_size"),
        ({**BASE, "hidden_dropout_prob": None}, "not usable"),
    ],
)
def test_a_config_json_of_another_model_is_refused(values, message):
    with pytest.raises(WeightsMismatchError, match=message):
        BertConfig.from_dict(values)


def test_keys_that_are_not_the_architecture_are_passed_over():
    values = {**BASE, "model_type": "bert", "pad_token_id": 0, "transformers_version": "4", "hidden_size": 384}
    assert BertConfig.from_dict(values) == BertConfig(hidden_size=384)


def test_the_bert_config_json_of_the_first_release_is_enough():
    old = {"attention_probs_dropout_prob": 0.1, "hidden_act": "gelu", "hidden_dropout_prob": 0.1, "hidden_size": 768}
    old |= {"initializer_range": 0.02, "intermediate_size": 3072, "max_position_embeddings": 512}
    old |= {"num_attention_heads": 12, "num_hidden_layers": 12, "type_vocab_size": 2, "vocab_size": 30522}
    assert BertConfig.from_dict(old) == BertConfig.from_size("base")


@pytest.mark.parametrize("content", ["{", "[1, 2]"])
def test_a_config_json_that_is_no_json_object_is_refused(tmp_path, content):
    (tmp_path / "config.json").write_text(content)
    with pytest.raises(WeightsMismatchError, match="config.json"):
        BertConfig.from_folder(tmp_path)


def test_a_config_json_may_have_many_labels(tmp_path):
    """30,000 paths of a taxonomy: config.json has each twice."""
    labels = {str(i): f"shop/category/of the number/{i:050d}" for i in range(30_000)}
    values = {"id2label": labels, "label2id": {label: int(i) for i, label in labels.items()}}
    (tmp_path / "config.json").write_text(json.dumps(values))
    assert (tmp_path / "config.json").stat().st_size > 4_000_000
    assert read_config_json(tmp_path)["id2label"] == labels


def test_a_folder_without_config_json_is_refused(tmp_path):
    with pytest.raises(WeightsNotFoundError, match="no config.json"):
        BertConfig.from_folder(tmp_path)


def test_a_config_survives_json(tmp_path):
    config = BertConfig.from_size("minilm-l6").with_dropout(0.2)
    (tmp_path / "config.json").write_text(json.dumps(config.to_dict()))
    assert BertConfig.from_folder(tmp_path) == config


def test_one_dropout_rate_goes_to_hidden_states_attention_and_classifier():
    config = BertConfig(classifier_dropout=0.3)
    changed = config.with_dropout(0.0)
    rates = (changed.hidden_dropout_prob, changed.attention_probs_dropout_prob, changed.head_dropout)
    assert rates == (0.0, 0.0, 0.0)
    assert config.with_dropout(None) == config and config.head_dropout == 0.3


def test_wide_models_get_a_small_learning_rate():
    assert {size: default_learning_rate(BertConfig.from_size(size)) for size in SIZES} == {
        **{"tiny": 1e-4, "mini": 1e-4, "small": 5e-5, "medium": 5e-5, "minilm-l6": 5e-5},
        **{"base": 3e-5, "base-cased": 3e-5, "large": 2e-5, "large-cased": 2e-5},
    }


@pytest.mark.parametrize("name", ["distilbert-base-uncased", "FacebookAI/roberta-base", "microsoft/deberta-v3-small"])
def test_a_model_that_is_no_bert_is_told_as_that(name):
    with pytest.raises(UnknownSizeError, match="is no BERT, and kbert reads no other models"):
        named_size(name)


@pytest.mark.parametrize(
    "name, size",
    [
        ("bert-base-uncased", "base"),
        ("google-bert/bert-base-uncased", "base"),
        ("bert-large-cased", "large-cased"),
        ("google/bert_uncased_L-2_H-128_A-2", "tiny"),
        ("sentence-transformers/all-MiniLM-L6-v2", "minilm-l6"),
        ("all-MiniLM-L6-v2", "minilm-l6"),
        ("all-minilm-l6-v2", "minilm-l6"),
        *((known.hub_name, size) for size, known in SIZES.items()),
    ],
)
def test_the_hub_name_of_a_size_is_that_size(name, size):
    assert named_size(name) is SIZES[size]
    assert BertConfig.from_size(name) == BertConfig.from_size(size)


def test_a_hub_name_of_no_size_belongs_in_weights():
    with pytest.raises(UnknownSizeError, match="for a folder or a hub name write weights='user/my-bert'"):
        named_size("user/my-bert")
