"""Estimators to a hub on this machine and back, in processes of their own, which read the environment's settings."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from huggingface_hub import ModelCard
from loopback_hub import COMMIT, NAME, TOKEN, LoopbackHub

import kbert
from kbert.errors import WeightsMismatchError
from kbert.hub import model_cards

SAVED = Path(__file__).parents[1] / "estimators" / "saved"
# What an upload needs of a folder: no backend is loaded.
PUSH = """
import json, sys
from pathlib import Path
from kbert.errors import KbertError
from kbert.hub.uploads import Repository
folder, name, options = Path(sys.argv[1]), sys.argv[2], json.loads(sys.argv[3])
owned = frozenset({"kbert.json", "config.json", "model.safetensors", "vocab.txt"})
try:
    repository = Repository.find(name, options.get("revision"), options.get("private"), marker="kbert.json")
    if options.get("somebody_else_commits"):
        repository = repository._replace(commit="d" * 40)
    print(json.dumps(repository.upload(folder, "a message", owned)))
except (KbertError, ValueError) as error:
    print(type(error).__name__, error)
"""
CARD = model_cards.written_card({"license": "mit"}, "# A card")


@pytest.fixture
def folder(tmp_path):
    """As much of a saved estimator as the hub looks at."""
    files = {"kbert.json": b"{}", "config.json": b"{}", "model.safetensors": b"weights", "README.md": CARD}
    (tmp_path / "folder").mkdir()
    for name, content in files.items():
        (tmp_path / "folder" / name).write_bytes(content)
    return tmp_path / "folder"


@pytest.fixture
def hub():
    """A hub with an empty repository."""
    with LoopbackHub({".gitattributes": b"*.safetensors filter=lfs"}).serving() as hub:
        yield hub


@pytest.fixture
def run(hub, tmp_path):
    """A function that runs code in a process of its own, and gives what it prints."""

    def run(code, *arguments, **environment):
        settings = re.compile("HF_.*|.*_proxy", re.IGNORECASE)
        outer = {name: value for name, value in os.environ.items() if not settings.fullmatch(name)}
        own = {"HF_ENDPOINT": hub.address, "HF_HOME": str(tmp_path / "home"), "HF_TOKEN": TOKEN}
        process = subprocess.run(
            [sys.executable, "-c", code, *map(str, arguments)],
            # The other way of uploading, xet, is a protocol of its own.
            env={**outer, **own, "HF_HUB_DISABLE_XET": "1", **environment},
            cwd=Path(__file__).parents[2],
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert process.returncode == 0, process.stderr
        return process.stdout.strip()

    return run


@pytest.fixture
def push(run, folder):
    """A function that uploads the folder: (commit, whether the card that was there is kept), or the error."""

    def push(name=NAME, environment=None, **options):
        output = run(PUSH, folder, name, json.dumps(options), **(environment or {}))
        return json.loads(output) if output.startswith("[") else output

    return push


@pytest.mark.compiles
@pytest.mark.backend
def test_an_estimator_comes_back_from_the_hub_as_it_was_at_a_commit(hub, run, tmp_path):
    code = """
import json, sys
import kbert
classifier = kbert.load(sys.argv[1])
card = {"scores": {"accuracy": 0.5}, "scored_on": "nothing"}
first = classifier.push_to_hub(sys.argv[2], card=card, private=True)
second = kbert.load(sys.argv[3]).push_to_hub(sys.argv[2])
found = kbert.load(sys.argv[2], revision=first)
same = kbert.BertClassifier.load(sys.argv[2], revision=first, verify=True).predict_proba(["red"])
assert (same == found.predict_proba(["red"])).all() and (same == classifier.predict_proba(["red"])).all()
assert type(kbert.load(sys.argv[2], verify=True)).__name__ == "BertTagger"
assert found.card_ == card
try:
    kbert.BertClassifier.load(sys.argv[2])
except kbert.errors.WeightsMismatchError as error:
    print(first, second, error)
"""
    hub.exists = False
    first, second, error = run(code, SAVED / "classifier", NAME, SAVED / "tagger").split(" ", 2)
    assert list(hub.commits) == [COMMIT, first, second] and hub.private
    assert "holds a BertTagger; load it with kbert.BertTagger.load" in error
    card = ModelCard(hub.commits[first]["README.md"].decode())
    assert card.data.model_name == NAME and card.data.eval_results[0].metric_value == 0.5
    assert f"kbert.load('{NAME}')" in card.text
    assert json.loads(hub.commits[second]["kbert.json"])["estimator"] == "BertTagger"
    assert "BertTagger" in hub.commits[second]["README.md"].decode()  # nobody had edited the other one


@pytest.mark.parametrize("load", [kbert.load, kbert.BertClassifier.load], ids=["any", "classifier"])
def test_weights_that_are_no_estimator_are_told_apart(load, tmp_path, monkeypatch):
    folder = shutil.copytree(SAVED / "pretrainer", tmp_path / "weights", ignore=lambda *_: ["kbert.json"])
    monkeypatch.setattr("kbert.hub.names.find_in_cache", lambda name, revision: None)
    monkeypatch.setattr("kbert.hub.names.download", lambda name, revision: folder)
    with pytest.raises(WeightsMismatchError) as caught:
        load(NAME, revision="v2")
    message = str(caught.value)
    if load is kbert.load:
        assert f"'{NAME}' holds no saved estimator" in message and f"BertClassifier(weights='{NAME}')" in message
    else:
        assert "holds a BertFor" in message and "opens what transformers saved as BertForSequence" in message


FETCH = """
import sys
from huggingface_hub import snapshot_download
from kbert.hub import resolve_saved
snapshot_download(sys.argv[1], allow_patterns=["config.json", "model.safetensors", "vocab.txt"])
print(resolve_saved(sys.argv[1], None, "kbert.json"))
"""


def test_what_another_program_downloaded_of_an_estimator_is_completed(hub, run, folder):
    hub.files = {path.name: path.read_bytes() for path in folder.iterdir()} | {"vocab.txt": b"[PAD]\n"}
    assert (Path(run(FETCH, NAME)) / "kbert.json").is_file()
    hub.requests.clear()
    run("import sys; from kbert.hub import resolve_saved; resolve_saved(sys.argv[1], None, 'kbert.json')", NAME)
    assert hub.requests == []


def test_of_plain_weights_the_hub_is_asked_for_an_estimator_once(hub, run):
    hub.files = {"config.json": b"{}", "model.safetensors": b"weights", "vocab.txt": b"[PAD]\n"}
    assert not (Path(run(FETCH, NAME)) / "kbert.json").exists()
    hub.requests.clear()
    run("import sys; from kbert.hub import resolve_saved; resolve_saved(sys.argv[1], None, 'kbert.json')", NAME)
    assert hub.requests == []


def test_a_repository_is_made_and_gets_what_the_folder_holds(hub, push, folder):
    hub.exists = False
    commit, keeps_card = push(private=True)
    assert hub.private and not keeps_card
    assert hub.commits[commit] == hub.commits[COMMIT] | {path.name: path.read_bytes() for path in folder.iterdir()}


def test_a_repository_with_a_card_and_a_licence_only_is_filled(hub, push, folder):
    """As somebody makes it on the hub's page."""
    hub.files |= {"README.md": b"mine", "LICENSE.txt": b"mine"}
    commit, keeps_card = push(f"hf://{NAME}")
    made = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert keeps_card and hub.commits[commit] == made | hub.commits[COMMIT]


def test_a_branch_is_what_is_looked_at_and_what_is_uploaded_to(hub, push):
    push(revision="v2")
    asked = [path for _, path, _ in hub.requests if path.startswith(f"/api/models/{NAME}")]
    assert f"/api/models/{NAME}/revision/v2" in asked
    assert [path.partition("?")[0] for path in asked if "/commit/" in path] == [f"/api/models/{NAME}/commit/v2"]


def test_a_repository_that_is_not_there_has_no_branches(hub, push):
    hub.exists = False
    message = push(revision="v2")
    assert message.startswith(f"UploadError The hub has no repository '{NAME}', so it has no branch 'v2'")
    assert not hub.exists  # it was not made


def test_files_of_the_older_estimator_go_and_others_stay(hub, push):
    hub.files |= {"kbert.json": b"older", "vocab.txt": b"older", "LICENSE": b"mine", "notes.md": b"mine"}
    commit, _ = push()
    assert sorted(set(hub.commits[commit]) - set(hub.commits[COMMIT])) == [
        "README.md",
        "config.json",
        "model.safetensors",
    ]
    assert hub.commits[commit]["kbert.json"] == b"{}" and "vocab.txt" not in hub.commits[commit]
    assert hub.commits[commit]["notes.md"] == b"mine"


@pytest.mark.parametrize(
    "card, kept",
    [
        (CARD, False),
        (CARD.replace(b"# A card", b"# My card"), True),
        (b"mine", True),
    ],
    ids=["unedited", "edited", "own"],
)
def test_a_card_that_somebody_edited_on_the_hub_is_kept(hub, push, card, kept):
    hub.files |= {"kbert.json": b"older", "README.md": card}
    commit, keeps_card = push()
    assert keeps_card == kept and hub.commits[commit]["README.md"] == (card if kept else CARD)


def test_other_models_are_not_replaced(hub, push):
    hub.files |= {"config.json": b"{}", "pytorch_model.bin": b"another"}
    message = push()
    assert (
        message.startswith("UploadError") and "holds no saved estimator, but config.json, pytorch_model.bin" in message
    )
    assert list(hub.commits) == [COMMIT]


def test_what_is_public_is_not_taken_for_private(hub, push):
    message = push(private=True)
    assert message.startswith("ValueError private=True was asked for") and "is public" in message
    assert list(hub.commits) == [COMMIT]


@pytest.mark.parametrize("name", ["some-bert", "a/b/c", "a b/c", ""])
def test_a_name_that_is_none_is_refused(hub, push, name):
    assert push(name).startswith("ValueError repo must be 'owner/name'") and hub.requests == []


@pytest.mark.parametrize("environment", [{"HF_TOKEN": "hf_another"}, {"HF_TOKEN": ""}], ids=["wrong", "none"])
@pytest.mark.parametrize("exists", [True, False])
def test_without_a_valid_token_the_error_says_how_to_get_one(hub, push, environment, exists):
    hub.exists = exists
    message = push(environment=environment)
    assert message.startswith(f"UploadError Nothing was uploaded to '{NAME}'")
    assert "hf auth login" in message and "HF_TOKEN" in message
    assert list(hub.commits) == [COMMIT]


@pytest.mark.parametrize(
    "status, code, parts",
    [
        (404, "RevisionNotFound", ["has no branch 'v2'"]),
        (403, "", ["may not write there", "hf auth login"]),
        (409, "", ["has changed meanwhile. Try again"]),  # somebody else has just made it
        (503, "", ["Connect to the internet and try again", "503"]),
    ],
)
def test_a_refusal_says_what_to_do(hub, push, status, code, parts):
    hub.refused = status, code
    message = push(revision="v2")
    assert message.startswith("UploadError") and NAME in message
    assert all(part in message for part in parts), message


def test_offline_is_an_error_that_asks_nobody(hub, push):
    message = push(environment={"HF_HUB_OFFLINE": "1"})
    assert message.startswith("UploadError") and "Unset HF_HUB_OFFLINE" in message and hub.requests == []


def test_no_hub_is_an_error_that_names_its_address(push):
    message = push(environment={"HF_ENDPOINT": "http://127.0.0.1:9"})
    assert message.startswith("UploadError") and "http://127.0.0.1:9" in message and "save into a folder" in message


def test_metadata_that_the_hub_refuses_are_shown(hub, push):
    hub.refuses_metadata = True
    message = push()
    assert '"license" must be one of many' in message and "Correct what was given as card" in message
    assert list(hub.commits) == [COMMIT]


def test_a_commit_of_somebody_else_meanwhile_is_not_overwritten(hub, push):
    assert "has changed meanwhile. Try again" in push(somebody_else_commits=True)
    assert list(hub.commits) == [COMMIT]
