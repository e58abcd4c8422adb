"""Downloads from a hub on this machine, each in a process of its own, which reads the environment's settings anew."""

import errno
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import huggingface_hub
import pytest
from loopback_hub import NAME, LoopbackHub

from kbert.errors import WeightsNotFoundError
from kbert.hub import hugging_face

CODE = """
import sys
from kbert.errors import KbertError
from kbert.hub import resolve_folder
try:
    print("folder", resolve_folder(sys.argv[1], *sys.argv[2:]))
except KbertError as error:
    print(type(error).__name__, error)
"""
OLDEST = huggingface_hub.__version__.startswith("0.30.")
# Of more than one part, in which huggingface_hub writes what it gets.
LARGE = bytes(range(256)) * (16 << 12)


@pytest.fixture
def hub():
    """A hub whose repository has more than kbert reads."""
    weights = {"model.safetensors": b"weights", "pytorch_model.bin": b"the same", "tf_model.h5": b"and again"}
    others = {
        "config.json": b"{}",
        "vocab.txt": b"[PAD]\n",
        "tokenizer_config.json": b'{"do_lower_case": true}',
        "README.md": b"#",
    }
    with LoopbackHub(weights | others).serving() as hub:
        yield hub


@pytest.fixture
def start(hub, tmp_path):
    """A function that starts a process which asks for the model, and for one of its revisions."""

    def start(*revision, code=CODE, **environment):
        settings = re.compile("HF_.*|.*_proxy", re.IGNORECASE)
        outer = {name: value for name, value in os.environ.items() if not settings.fullmatch(name)}
        own = {"HF_ENDPOINT": hub.address, "HF_HOME": str(tmp_path / "home")}
        return subprocess.Popen(
            [sys.executable, "-c", code, NAME, *revision],
            env={**outer, **own, **environment},
            cwd=Path(__file__).parents[2],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    return start


@pytest.fixture
def ask(start):
    """A function that gives what such a process prints: the folder, or an error."""

    def ask(*revision, **environment):
        output, errors = start(*revision, **environment).communicate(timeout=60)
        assert output, errors
        return Path(output.removeprefix("folder ").strip()) if output.startswith("folder ") else output

    return ask


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_what_is_needed_is_fetched_once_and_nothing_else(hub, ask):
    folder = ask()
    assert names(folder) == ["config.json", "model.safetensors", "tokenizer_config.json", "vocab.txt"]
    assert sorted(hub.fetched()) == names(folder)
    hub.requests.clear()
    assert ask() == folder and hub.requests == []


def test_importing_asks_for_nothing(hub, start):
    start(code="import kbert, kbert.hub; kbert.WordPieceTokenizer, kbert.BertConfig").communicate(timeout=60)
    assert hub.requests == []


def test_a_revision_is_what_is_asked_for(hub, ask):
    assert isinstance(ask("v2"), Path)
    asked = [path for _, path, _ in hub.requests if path.startswith(f"/api/models/{NAME}")]
    if OLDEST:  # which asks for the rest by the commit that this revision stands for
        asked = [path for path in asked if not path.endswith(f"/revision/{hub.head}")]
    assert asked and all("/revision/v2" in path or "/tree/" in path for path in asked)


def test_all_shards_are_fetched_and_nothing_else(hub, ask):
    shards = [f"model-0000{i}-of-00003.safetensors" for i in (1, 2, 3)]
    index = "model.safetensors.index.json"
    del hub.files["model.safetensors"]
    hub.files |= {shard: shard.encode() for shard in shards}
    hub.files[index] = json.dumps({"weight_map": {f"array{i}": shard for i, shard in enumerate(shards)}}).encode()
    hub.files |= {f"other-{shards[0]}": b"of another", "model.fp16-00001-of-00003.safetensors": b"of another"}
    assert names(ask()) == sorted([*shards, index, "config.json", "tokenizer_config.json", "vocab.txt"])


def test_a_repository_that_lacks_a_shard_is_refused(hub, ask):
    del hub.files["model.safetensors"]
    hub.files["model.safetensors.index.json"] = b'{"weight_map": {"a": "model-00001-of-00001.safetensors"}}'
    assert "is not complete: the shards of its weights are not those that their index lists" in ask()


def test_a_connection_that_breaks_goes_on_where_it_was(hub, ask):
    hub.files["model.safetensors"] = LARGE
    hub.cut["model.safetensors"] = len(LARGE) - 1000
    found = ask()
    if OLDEST:  # which goes on in the next call
        assert isinstance(found, str)
        found = ask()
    assert (found / "model.safetensors").read_bytes() == LARGE
    starts = [part for method, path, part in hub.requests if method == "GET" and path.endswith("/model.safetensors")]
    assert len(starts) == 2 and starts[0] is None and int(starts[1].removeprefix("bytes=").rstrip("-")) > 0


def test_a_download_that_was_killed_is_not_taken_for_complete(hub, start, ask):
    # The rest, weights and vocabulary, is there by then, and would be read without the settings of the tokenizer.
    hub.stalled = stalled = "tokenizer_config.json"
    hub.files[stalled] += b" " * 1000
    process = start()
    assert hub.stopped.wait(60)
    process.kill()
    process.communicate()
    hub.go_on.set()
    hub.stalled = None
    assert "unset HF_HUB_OFFLINE" in ask(HF_HUB_OFFLINE="1")
    assert (ask() / stalled).read_bytes() == hub.files[stalled]


@pytest.mark.parametrize("altered", ["model.safetensors", "tokenizer_config.json", "config.json"])
def test_a_file_that_arrives_changed_is_refused_and_fetched_again(hub, ask, altered):
    hub.altered = {altered}
    assert f"WeightsMismatchError {altered} of '{NAME}' did not arrive as it is on the hub" in ask()
    # What is there of it is not used later on either.
    assert "unset HF_HUB_OFFLINE" in ask(HF_HUB_OFFLINE="1")
    hub.altered = set()
    assert (ask() / altered).read_bytes() == hub.files[altered]


def test_offline_is_an_error_that_asks_nobody_and_the_cache_serves(hub, ask):
    message = ask(HF_HUB_OFFLINE="1")
    assert message.startswith("WeightsNotFoundError") and "unset HF_HUB_OFFLINE, which forbids downloads" in message
    assert hub.requests == []
    folder = ask()
    assert ask(HF_HUB_OFFLINE="1") == folder


@pytest.mark.parametrize(
    "error",
    [OSError(errno.ENOSPC, "No space left on device"), PermissionError(errno.EACCES, "Permission denied", "/c")],
)
def test_a_cache_that_cannot_be_written_is_no_missing_model(monkeypatch, error):
    monkeypatch.setattr(huggingface_hub.HfApi, "model_info", lambda *_, **__: (_ for _ in ()).throw(error))
    with pytest.raises(type(error), match=f"{error.strerror}, while the files of 'a/b' were written.*HF_HOME"):
        hugging_face.download("a/b", None)


def test_a_network_that_is_not_allowed_is_no_cache_that_cannot_be_written(monkeypatch):
    error = PermissionError(errno.EACCES, "Permission denied")  # of a socket, which has no file's name
    monkeypatch.setattr(huggingface_hub.HfApi, "model_info", lambda *_, **__: (_ for _ in ()).throw(error))
    with pytest.raises(WeightsNotFoundError, match=r"the hub http\S+ \(PermissionError: .*Permission denied\)"):
        hugging_face.download("a/b", None)


def test_a_proxy_is_asked_for_everything(hub, ask):
    folder = ask(HF_ENDPOINT="http://hub.invalid", HTTP_PROXY=hub.address)
    assert isinstance(folder, Path), folder
    assert hub.requests and all(path.startswith("http://hub.invalid/") for _, path, _ in hub.requests)


@pytest.mark.parametrize(
    "status, code, parts",
    [
        (403, "GatedRepo", ["accepted its conditions", "hf auth login"]),
        (404, "RepoNotFound", ["has no model", "Check the spelling", "hf auth login"]),
        (404, "RevisionNotFound", ["has no revision 'main'"]),
        (401, "", ["The hub refuses", "401", "HF_TOKEN"]),
        (503, "", ["connect to the internet and try again", "503"]),
    ],
)
def test_a_refusal_says_what_to_do(hub, ask, status, code, parts):
    hub.refused = status, code
    message = ask()
    assert message.startswith("WeightsNotFoundError") and NAME in message
    assert all(part in message for part in parts), message
