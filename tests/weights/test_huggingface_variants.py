"""The forms that Hugging Face folders come in: every head, older names, halves and shards; configs that are wrong."""

import json
import shutil
import warnings

import keras
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from kbert import BertEncoder
from kbert.errors import NewWeightsWarning, WeightsMismatchError, WeightsNotFoundError
from kbert.model import BertForSequenceClassification
from kbert.weights import (
    load_multiple_choice,
    load_pretraining,
    load_question_answerer,
    load_sequence_classifier,
    load_token_classifier,
    models,
    save_pretraining,
    save_sequence_classifier,
)
from kbert.weights.folder import read_folder
from kbert.weights.formats import read_arrays

SAFETENSORS = "model.safetensors"


def _arrays(folder, change):
    """Change the arrays of a folder's file."""
    arrays = {name: array.copy() for name, array in load_file(folder / SAFETENSORS).items()}
    arrays = change(arrays)
    save_file({name: np.ascontiguousarray(array) for name, array in arrays.items()}, folder / SAFETENSORS)


def _config(folder, **values):
    """Change keys of a folder's config.json; None takes one out."""
    path = folder / "config.json"
    values = {**json.loads(path.read_text()), **values}
    path.write_text(json.dumps({key: value for key, value in values.items() if value is not None}))


def _numpy(tensor):
    return keras.ops.convert_to_numpy(tensor)


# === Every head, as transformers saves it ===


@pytest.fixture(scope="module")
def transformers():
    pytest.importorskip("torch", reason="to compare, run: pip install 'kbert-learn[parity]'")
    return pytest.importorskip("transformers", reason="to compare with it, run: pip install 'kbert-learn[parity]'")


@pytest.fixture(scope="module")
def make(transformers, toy_config):
    """A function that makes one of transformers' models, in which hardly a weight is 0 or 1."""
    import torch

    def make(head, **config):
        torch.manual_seed(0)
        values = {**toy_config.to_dict(), "initializer_range": 0.2, **config}
        model = getattr(transformers, f"BertFor{head}")(transformers.BertConfig(**values)).eval()
        with torch.no_grad():
            for weight in model.parameters():
                weight.add_(torch.randn_like(weight) * 0.1)
        return model

    return make


def _starts(inputs):
    return {**inputs, "first_positions": np.zeros((3, 1), "int32")}


# How each head's model is opened, and its logits: (3, ...), or (3, 12, ...) of every token.
HEADS = {
    "SequenceClassification": (load_sequence_classifier, lambda m, i: m(_starts(i))[:, 0]),
    "TokenClassification": (load_token_classifier, lambda m, i: m(i)),
    "QuestionAnswering": (load_question_answerer, lambda m, i: m(i)),
    "MultipleChoice": (load_multiple_choice, lambda m, i: m(_starts(i))[:, 0]),
    "MaskedLM": (
        lambda folder: load_pretraining(folder, nsp=False),
        lambda m, i: m({**i, "masked_positions": i["position_ids"]})["mlm_logits"],
    ),
    "NextSentencePrediction": (
        load_pretraining,
        lambda m, i: m({**_starts(i), "masked_positions": i["position_ids"]})["nsp_logits"][:, 0],
    ),
    "PreTraining": (
        load_pretraining,
        lambda m, i: m({**_starts(i), "masked_positions": i["position_ids"]})["mlm_logits"],
    ),
}


def _their_logits(model, inputs):
    import torch

    arrays = {"input_ids": "token_ids", "attention_mask": "text_ids", "token_type_ids": "segment_ids"}
    arrays = {theirs: torch.tensor(inputs[ours], dtype=torch.long) for theirs, ours in arrays.items()}
    if type(model).__name__ == "BertForMultipleChoice":
        arrays = {name: array[None] for name, array in arrays.items()}
    with torch.no_grad():
        outputs = model(**arrays)
    if "start_logits" in outputs:
        return np.stack([outputs.start_logits.numpy(), outputs.end_logits.numpy()], axis=-1)
    logits = (outputs.prediction_logits if "prediction_logits" in outputs else outputs.logits).numpy()
    return logits.T if type(model).__name__ == "BertForMultipleChoice" else logits


def _assert_parity(head, folder, theirs, inputs):
    load, logits = HEADS[head]
    expected, ours = _their_logits(theirs, inputs), _numpy(logits(load(folder), inputs))
    if expected.ndim == 3:  # of every token: those that are none attend to different things
        expected, ours = (array[inputs["text_ids"] == 1] for array in (expected, ours))
    assert np.ptp(expected) > 0.3
    np.testing.assert_allclose(ours, expected, rtol=0, atol=2e-5)


@pytest.mark.backend
@pytest.mark.parity
@pytest.mark.parametrize("head", HEADS)
def test_every_head_gives_the_logits_of_transformers(make, inputs, tmp_path, head):
    theirs = make(head, **{"num_labels": 3} if head.endswith("Classification") else {})
    theirs.save_pretrained(tmp_path)
    with warnings.catch_warnings():
        if head != "NextSentencePrediction":  # whose model here has the other head too
            warnings.simplefilter("error", NewWeightsWarning)
        _assert_parity(head, tmp_path, theirs, inputs)


def _older(arrays):
    names = {name: name.replace("LayerNorm.weight", "LayerNorm.gamma") for name in arrays}
    return {names[name].replace("LayerNorm.bias", "LayerNorm.beta"): array for name, array in arrays.items()}


def _renamed(change):
    return lambda folder, model: _arrays(folder, lambda arrays: {change(name): a for name, a in arrays.items()})


def _with_decoder(folder, model):
    words, bias = "bert.embeddings.word_embeddings.weight", "cls.predictions.bias"
    twins = {"cls.predictions.decoder.weight": words, "cls.predictions.decoder.bias": bias}
    _arrays(folder, lambda a: {**a, **{twin: a[name] for twin, name in twins.items()}})


def _pytorch(zipped):
    def save(folder, model):
        import torch

        (folder / SAFETENSORS).unlink()
        torch.save(model.state_dict(), folder / "pytorch_model.bin", _use_new_zipfile_serialization=zipped)

    return save


def _pytorch_shards(folder, model):
    import torch

    (folder / SAFETENSORS).unlink()
    state = model.state_dict()
    places = {name: f"pytorch_model-0000{i % 2 + 1}-of-00002.bin" for i, name in enumerate(state)}
    for file in set(places.values()):
        torch.save({name: state[name] for name in state if places[name] == file}, folder / file)
    (folder / "pytorch_model.bin.index.json").write_text(json.dumps({"weight_map": places}))


def _shards(folder, model):
    (folder / SAFETENSORS).unlink()
    model.save_pretrained(folder, max_shard_size="20KB")
    assert len(list(folder.glob("model-0000*-of-0000*.safetensors"))) > 2


FORMS = {
    "gamma and beta": lambda folder, model: _arrays(folder, _older),
    "no prefix": _renamed(lambda name: name.removeprefix("bert.")),
    "module. prefix": _renamed(lambda name: f"module.{name}"),
    "compiled": _renamed(lambda name: f"_orig_mod.{name}"),
    "decoder stored too": _with_decoder,
    "float64": lambda folder, model: _arrays(folder, lambda a: {name: x.astype("float64") for name, x in a.items()}),
    "shards": _shards,
    "PyTorch": _pytorch(zipped=True),
    "PyTorch, older": _pytorch(zipped=False),
    "PyTorch, shards": _pytorch_shards,
    "safetensors before PyTorch": lambda folder, model: (folder / "pytorch_model.bin").write_bytes(b"damaged"),
}


@pytest.mark.parity
@pytest.mark.parametrize("form", FORMS)
def test_every_form_gives_the_logits_of_transformers(make, inputs, tmp_path, form):
    theirs = make("PreTraining")
    theirs.save_pretrained(tmp_path)
    FORMS[form](tmp_path, theirs)
    _assert_parity("PreTraining", tmp_path, theirs, inputs)


@pytest.mark.parity
@pytest.mark.parametrize("kind", ["safetensors", "zip", "older"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_halves_give_the_logits_of_the_same_numbers_in_float32(make, inputs, tmp_path, dtype, kind):
    import torch

    theirs = make("SequenceClassification").to(getattr(torch, dtype))
    theirs.save_pretrained(tmp_path)
    if kind != "safetensors":
        _pytorch(kind == "zip")(tmp_path, theirs)
    assert {str(array.dtype) for array in read_folder(tmp_path).values()} == {dtype}
    assert {str(array.dtype) for array in read_arrays(tmp_path).values()} == {"float32"}
    _assert_parity("SequenceClassification", tmp_path, theirs.float(), inputs)


# === Halves, written ===


@pytest.mark.parametrize("dtype, digits", [("float16", 11), ("bfloat16", 8), ("float32", 24)])
def test_what_is_saved_in_halves_is_the_nearest_number(encoder, tmp_path, dtype, digits):
    encoder.save_pretrained(tmp_path / "first", dtype=dtype)
    encoder.save_pretrained(tmp_path / "exact")
    narrow, exact = read_arrays(tmp_path / "first"), read_arrays(tmp_path / "exact")
    for name, array in exact.items():
        # Half a unit in the last of the format's binary digits; below 2**-14 float16 has fewer.
        off = np.abs(narrow[name] - array)
        assert (off <= np.maximum(np.abs(array) * 2.0**-digits, 2.0**-25)).all(), name
    assert json.loads((tmp_path / "first" / "config.json").read_text())["dtype"] == dtype
    # The second time nothing is left to round.
    BertEncoder.from_pretrained(tmp_path / "first").save_pretrained(tmp_path / "second", dtype=dtype)
    first, second = ((tmp_path / name / SAFETENSORS).read_bytes() for name in ("first", "second"))
    assert first == second


@pytest.mark.parity
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_transformers_opens_what_is_saved_in_halves(transformers, encoder, tmp_path, dtype):
    encoder.save_pretrained(tmp_path, dtype=dtype)
    theirs = transformers.BertModel.from_pretrained(tmp_path, dtype="auto")
    assert str(theirs.dtype) == f"torch.{dtype}"
    ours = read_arrays(tmp_path)
    for name, tensor in theirs.state_dict().items():
        np.testing.assert_array_equal(tensor.float().numpy(), ours[name])


def test_a_type_that_cannot_hold_the_weights_is_refused_before_anything_is_written(encoder, tmp_path, arrays_of):
    wide = BertEncoder(encoder.config)
    wide.pooler.dense.bias.assign(np.full(32, 7e4, "float32"))
    with pytest.raises(ValueError, match=r"pooler.dense.bias has values beyond those of float16"):
        wide.save_pretrained(tmp_path / "new", dtype="float16")
    with pytest.raises(ValueError, match="dtype must be 'float32', 'float16' or 'bfloat16', got 'int8'"):
        wide.save_pretrained(tmp_path / "new", dtype="int8")
    assert not (tmp_path / "new").exists()


# === What the arrays say, and what config.json says ===


@pytest.fixture(scope="module")
def classifier(toy_config):
    return BertForSequenceClassification(toy_config, num_labels=3, seed=1)


@pytest.fixture
def folder(classifier, tmp_path):
    save_sequence_classifier(classifier, tmp_path / "model", dict(enumerate("xyz")), "single_label_classification")
    return tmp_path / "model"


@pytest.mark.parametrize(
    "values",
    [
        {"id2label": {"0": "x", "1": "y"}},
        {"id2label": {str(i): "xyzw"[i] for i in range(4)}},
        {"id2label": None, "label2id": None},
        {"id2label": None, "num_labels": 7},
        {"id2label": ["x", "y"]},
        {"classifier_pooling": "mean"},  # transformers keeps it beside a head that reads [CLS]
    ],
    ids=str,
)
def test_the_head_is_that_of_the_arrays(folder, classifier, inputs, values):
    _config(folder, **values)
    again = load_sequence_classifier(folder)
    np.testing.assert_array_equal(_numpy(again(_starts(inputs))), _numpy(classifier(_starts(inputs))))


@pytest.mark.parametrize("values", [{"model_type": None}, {"model_type": None, "architectures": None}], ids=str)
def test_older_configs_that_do_not_say_bert_are_read(folder, values):
    _config(folder, **values)
    assert load_sequence_classifier(folder).num_labels == 3


@pytest.mark.parametrize("named", ["model_type", "architectures"])
@pytest.mark.parametrize("family", ["Roberta", "DistilBert", "Albert", "XLMRoberta", "Electra"])
def test_other_families_are_refused_by_name(folder, family, named):
    architecture, kind = f"{family}ForSequenceClassification", family.lower()
    _config(folder, architectures=[architecture], model_type=kind if named == "model_type" else None)
    name = kind if named == "model_type" else architecture
    with pytest.raises(WeightsMismatchError, match=f"describes a model of type '{name}'; kbert reads BERT models only"):
        load_sequence_classifier(folder)


@pytest.mark.parametrize("key, value", [("layer_norm_eps", "x"), ("initializer_range", -1), ("layer_norm_eps", "NaN")])
def test_numbers_that_are_none_are_refused(folder, key, value):
    _config(folder, **{key: float(value) if value == "NaN" else value})
    with pytest.raises(WeightsMismatchError, match=f"{key} must be a number of at least 0"):
        load_sequence_classifier(folder)


def test_a_folder_without_the_head_says_so(folder):
    _arrays(folder, lambda arrays: {name: a for name, a in arrays.items() if not name.startswith("classifier")})
    for load in (load_sequence_classifier, load_token_classifier, load_multiple_choice):
        with pytest.raises(WeightsMismatchError, match="have no head for this task: the file lacks classifier.bias"):
            load(folder)
    with pytest.raises(WeightsMismatchError, match="the file lacks qa_outputs.bias"):
        load_question_answerer(folder)


def test_a_head_of_more_outputs_than_its_matrix_has_is_refused_before_it_is_built(folder, monkeypatch):
    _arrays(folder, lambda arrays: {**arrays, "classifier.bias": np.zeros(10**6, "float32")})
    monkeypatch.setattr(models, "BertForSequenceClassification", None)
    monkeypatch.setattr(models, "BertForTokenClassification", None)
    for load in (load_sequence_classifier, load_token_classifier, load_multiple_choice):
        with pytest.raises(WeightsMismatchError, match="have no head for this task.*odd shapes"):
            load(folder)


def test_half_a_head_is_refused(folder):
    _arrays(folder, lambda arrays: {name: a for name, a in arrays.items() if name != "classifier.weight"})
    with pytest.raises(WeightsMismatchError, match="lacks classifier.weight"):
        load_sequence_classifier(folder)


def test_a_head_of_several_outputs_is_none_for_multiple_choice(folder):
    with pytest.raises(WeightsMismatchError, match="has 3 outputs, and one for multiple choice has a single one"):
        load_multiple_choice(folder)


def test_one_array_under_two_names_is_refused(folder):
    name = "bert.pooler.dense.bias"
    _arrays(folder, lambda arrays: {**arrays, name.removeprefix("bert."): arrays[name] + 1})
    with pytest.raises(WeightsMismatchError, match="holds pooler.dense.bias twice"):
        load_sequence_classifier(folder)


def test_whole_numbers_are_refused_as_quantised(folder):
    name = "bert.pooler.dense.weight"
    _arrays(folder, lambda arrays: {**arrays, name: (arrays[name] * 100).astype("int8")})
    with pytest.raises(WeightsMismatchError, match=r"pooler.dense.weight .* holds int8, .*quantised"):
        load_sequence_classifier(folder)


def test_an_untied_decoder_is_refused(toy_config, tmp_path):
    from kbert import BertForPreTraining

    save_pretraining(BertForPreTraining(toy_config, nsp=False), tmp_path)
    _with_decoder(tmp_path, None)
    load_pretraining(tmp_path, nsp=False)
    _arrays(tmp_path, lambda a: {**a, "cls.predictions.decoder.weight": a["cls.predictions.decoder.weight"] + 1})
    with pytest.raises(WeightsMismatchError, match="decoder.weight and embeddings.word_embeddings.weight .* differ"):
        load_pretraining(tmp_path, nsp=False)


def test_pytorchs_format_without_pytorch_says_how_to_convert(folder, monkeypatch):
    shutil.move(folder / SAFETENSORS, folder / "pytorch_model.bin")
    monkeypatch.setitem(__import__("sys").modules, "torch", None)
    with pytest.raises(WeightsNotFoundError, match=r"pip install torch.*save the model as model.safetensors"):
        read_folder(folder)
