"""Names of KerasHub's presets, ``kerashub://``, which are downloaded from Kaggle."""

import shutil
import sys
from types import SimpleNamespace

import pytest

from kbert import BertEncoder, WordPieceTokenizer
from kbert.errors import WeightsNotFoundError
from kbert.hub import kaggle as presets_on_kaggle
from kbert.hub import resolve_folder
from kbert.weights.convert import convert

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def preset(encoder, tmp_path_factory):
    folder = tmp_path_factory.mktemp("presets")
    encoder.save_pretrained(folder / "saved")
    WordPieceTokenizer.train(["the quick brown fox"] * 5, vocab_size=60).save(folder / "saved")
    convert(folder / "saved", folder / "preset", "kerashub")
    return folder / "preset"


def _answer(status):
    """As kagglehub raises it (kagglehub.exceptions.KaggleApiHTTPError)."""
    error = OSError(f"{status} Client Error.")
    error.response = SimpleNamespace(status_code=status)
    return error


@pytest.fixture
def kaggle(monkeypatch, preset):
    """A Kaggle that has one preset; `.asked` is what was asked for."""
    monkeypatch.setattr(presets_on_kaggle, "PRESETS", {"bert_toy_en": "keras/bert/keras/bert_toy_en/3"})
    fake = SimpleNamespace(asked=[], error=None, errors={})

    def model_download(handle, path=None):
        fake.asked.append((handle, path))
        if error := fake.errors.get(path, fake.error):
            raise error
        if not (preset / path).is_file():
            raise _answer(404)
        return str(preset / path)

    monkeypatch.setitem(sys.modules, "kagglehub", SimpleNamespace(model_download=model_download))
    return fake


def test_a_name_is_downloaded_without_importing_kerashub(kaggle, preset, monkeypatch):
    monkeypatch.setitem(sys.modules, "keras_hub", None)  # to import it fails
    assert resolve_folder("kerashub://bert_toy_en") == preset
    files = {path for handle, path in kaggle.asked if handle == "keras/bert/keras/bert_toy_en/3"}
    assert {"config.json", "model.weights.h5", "tokenizer.json", "assets/tokenizer/vocabulary.txt"} <= files
    assert BertEncoder.from_pretrained("kerashub://owner/bert/keras/mine").config.hidden_size == 32
    assert kaggle.asked[-1][0] == "owner/bert/keras/mine"


def test_without_a_network_or_with_a_wrong_name_the_remedy_is_told(kaggle):
    with pytest.raises(WeightsNotFoundError, match="no BERT preset of that name. It has bert_toy_en"):
        resolve_folder("kerashub://bert_toy")
    with pytest.raises(WeightsNotFoundError, match="is no name of a preset"):
        resolve_folder("kerashub://owner/bert")
    with pytest.raises(ValueError, match="Leave revision out"):
        resolve_folder("kerashub://bert_toy_en", revision="2")
    kaggle.error = ConnectionError("Failed to resolve 'api.kaggle.com'")
    with pytest.raises(WeightsNotFoundError, match=r"'kerashub://bert_toy_en'.*api\.kaggle\.com.*Connect") as caught:
        resolve_folder("kerashub://bert_toy_en")
    assert "save_to_preset" in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "file, error",
    [
        ("model.weights.h5", _answer(500)),
        ("tokenizer.json", ConnectionError("reset by peer")),
        ("assets/tokenizer/vocabulary.txt", _answer(429)),
        ("task.json", _answer(403)),
        ("task.json", RuntimeError("the checksum is wrong")),
    ],
)
def test_a_file_that_did_not_arrive_is_not_taken_for_one_that_is_not_there(kaggle, file, error):
    kaggle.errors[file] = error
    with pytest.raises(WeightsNotFoundError, match=str(error)):
        resolve_folder("kerashub://bert_toy_en")


def test_without_kagglehub_the_pip_command_is_told(kaggle, monkeypatch):
    monkeypatch.setitem(sys.modules, "kagglehub", None)
    for name in ("bert_toy_en", "owner/bert/keras/mine"):
        with pytest.raises(WeightsNotFoundError, match=r"kagglehub is not installed.*pip install kagglehub"):
            resolve_folder(f"kerashub://{name}")


def test_the_names_are_those_of_kerashub():
    keras_hub = pytest.importorskip("keras_hub", reason="to compare with it, run: pip install keras-hub")
    theirs = {name: known["kaggle_handle"] for name, known in keras_hub.models.BertBackbone.presets.items()}
    assert {name: f"kaggle://{handle}" for name, handle in presets_on_kaggle.PRESETS.items()} == theirs


@pytest.mark.thorough
def test_what_kagglehub_has_in_its_cache_needs_no_network(preset, monkeypatch, tmp_path):
    pytest.importorskip("kagglehub", reason="to look into its cache, run: pip install 'kbert-learn[hub]'")
    handle = "owner/bert/keras/mine/1"
    monkeypatch.setenv("KAGGLEHUB_CACHE", str(tmp_path))
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:9")
    cached = shutil.copytree(preset, tmp_path / "models" / handle)
    for path in preset.rglob("*"):
        if path.is_file():
            marker = tmp_path / "models" / "owner/bert/keras/mine/.complete/1" / f"{path.relative_to(preset)}.complete"
            marker.parent.mkdir(parents=True, exist_ok=True)
            marker.touch()
    assert resolve_folder(f"kerashub://{handle}") == cached
