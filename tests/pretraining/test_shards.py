"""Shards: the corpus as it was, the same bytes by any number of processes, and work that goes on where it stopped."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from kbert import WordPieceTokenizer
from kbert.errors import WeightsMismatchError
from kbert.files.folder_lock import alone_in
from kbert.pretraining import shards as module
from kbert.pretraining.instances import draw_pairs
from kbert.pretraining.segments import Rules
from kbert.pretraining.shards import Shards, tokenised, write_shards

WORDS = "the old house was red and the new one is green too".split()


class Unit:
    """Documents made of a number, slowly if asked."""

    rules = Rules()

    def __init__(self, number, seconds=0.0):
        self.number, self.seconds = number, seconds

    def documents(self, segmenter=None):
        time.sleep(self.seconds)
        rng = np.random.default_rng(self.number)
        for _ in range(30):
            yield [" ".join(rng.choice(WORDS, rng.integers(0, 9))) for _ in range(rng.integers(1, 6))]


class Corpus:
    """Some units."""

    def __init__(self, n_units=4, seconds=0.0):
        self.n_units, self.seconds = n_units, seconds

    def units(self):
        return [Unit(number, self.seconds) for number in range(self.n_units)]

    def fingerprint(self):
        return f"made up, {self.n_units}"


@pytest.fixture(scope="module")
def tokenizer():
    return WordPieceTokenizer.train([" ".join(WORDS)] * 20, vocab_size=60)


def files_of(folder):
    return {path.relative_to(folder): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.mark.parametrize("shard_tokens", [2**24, 100, 1])
def test_shards_hold_the_corpus(tokenizer, tmp_path, shard_tokens, monkeypatch):
    monkeypatch.setattr(module, "_PART_CHARACTERS", 500)
    shards = write_shards(Corpus(), tokenizer, tmp_path, shard_tokens=shard_tokens)
    documents = [d for unit in Corpus().units() for d in unit.documents()]
    expected = [[tokenizer.encode(segment).ids[1:-1] for segment in d if segment] for d in documents]
    expected = [document for document in expected if document]
    found = []
    for i in range(len(shards)):
        shard = shards[i]
        assert len(shard.tokens) and (len(shard) == 1 or len(shard.tokens) < shard_tokens + 60)
        segments = [shard.tokens[a:b].tolist() for a, b in zip(shard.segments, shard.segments[1:], strict=False)]
        found += [segments[a:b] for a, b in zip(shard.documents, shard.documents[1:], strict=False)]
    assert found == expected
    assert shards.manifest["documents"] == len(expected)
    assert shards.manifest["tokens"] == sum(len(segment) for document in expected for segment in document)
    assert isinstance(shards[0].tokens, np.memmap) and shards[0].tokens.dtype == np.uint16
    assert shards.tokenizer == tokenizer
    assert not list(tmp_path.glob("unit-*"))
    if shard_tokens == 2**24:
        assert len(shards) == 4 and len(draw_pairs(shards[0], tokenizer, 32, 0))


def test_any_number_of_processes_writes_the_same_bytes(tokenizer, tmp_path):
    for n_jobs in (1, 2):
        write_shards(Corpus(), tokenizer, tmp_path / str(n_jobs), n_jobs=n_jobs, shard_tokens=200)
    assert files_of(tmp_path / "1") == files_of(tmp_path / "2")


def test_a_dask_cluster_writes_the_same_bytes(tokenizer, tmp_path, monkeypatch):
    distributed = pytest.importorskip("distributed", reason="pip install distributed")
    import joblib

    # Workers are processes of their own, and import this module by its name.
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]))
    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        distributed.Client(cluster),
        joblib.parallel_config(backend="dask"),
    ):
        write_shards(Corpus(), tokenizer, tmp_path / "dask", shard_tokens=200)
    write_shards(Corpus(), tokenizer, tmp_path / "here", shard_tokens=200)
    assert files_of(tmp_path / "dask") == files_of(tmp_path / "here")


KILLED = """
import sys
sys.path.insert(0, {here!r})
from test_shards import Corpus
from kbert import WordPieceTokenizer
from kbert.pretraining.shards import write_shards
write_shards(Corpus(seconds=0.3), WordPieceTokenizer.from_pretrained({tokenizer!r}), {folder!r}, shard_tokens=200)
"""


def test_work_that_was_killed_goes_on_where_it_was(tokenizer, tmp_path):
    tokenizer.save(tmp_path / "tokenizer")
    folder = tmp_path / "shards"
    names = dict(here=str(Path(__file__).parent), tokenizer=str(tmp_path / "tokenizer"), folder=str(folder))
    process = subprocess.Popen([sys.executable, "-c", KILLED.format(**names)])
    while not (folder / "unit-00001.json").exists():
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    with pytest.raises(FileNotFoundError, match="begun and not finished"):
        Shards(folder)
    done = folder / "shard-00000-000.tokens.npy"
    before = done.stat().st_mtime_ns
    (folder / "shard-00003-000.tokens.0a1b.part").write_text("left by a process that was killed")
    write_shards(Corpus(), tokenizer, folder, shard_tokens=200)
    assert not list(folder.glob("*.part"))
    assert done.stat().st_mtime_ns == before
    write_shards(Corpus(), tokenizer, tmp_path / "at once", shard_tokens=200)
    assert files_of(folder) == files_of(tmp_path / "at once")


def test_two_calls_do_not_write_into_one_folder(tokenizer, tmp_path):
    with alone_in(tmp_path), pytest.raises(ValueError, match="Another call is writing shards to"):
        write_shards(Corpus(), tokenizer, tmp_path)


def test_finished_shards_are_not_written_again(tokenizer, tmp_path):
    write_shards(Corpus(), tokenizer, tmp_path)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.glob("shard*")}
    assert len(write_shards(Corpus(), tokenizer, tmp_path)) == 4
    assert {path: path.stat().st_mtime_ns for path in tmp_path.glob("shard*")} == before


def test_another_corpus_or_vocabulary_is_refused(tokenizer, tmp_path):
    write_shards(Corpus(), tokenizer, tmp_path)
    with pytest.raises(ValueError, match="another corpus and units"):
        write_shards(Corpus(3), tokenizer, tmp_path)
    other = WordPieceTokenizer.train(["some other words"] * 9, vocab_size=30)
    with pytest.raises(ValueError, match="another vocabulary"):
        write_shards(Corpus(), other, tmp_path)
    with pytest.raises(ValueError, match="another vocabulary"):
        write_shards(Corpus(), with_accents(tokenizer), tmp_path)  # its words are split in another way
    other.save(tmp_path / "tokenizer")
    with pytest.raises(WeightsMismatchError, match="not the vocabulary"):
        Shards(tmp_path)


def with_accents(tokenizer):
    spec = tokenizer.spec
    spec["normalizer"]["strip_accents"] = False
    return WordPieceTokenizer(spec)


def test_a_folder_of_other_files_is_left_as_it_is(tokenizer, tmp_path):
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(ValueError, match="holds other files, such as config.json. Give a new folder"):
        write_shards(Corpus(), tokenizer, tmp_path)
    assert [path.name for path in tmp_path.iterdir() if not path.name.startswith(".")] == ["config.json"]


def test_nothing_is_kept_of_what_has_not_been_finished(tokenizer, tmp_path, monkeypatch):
    with monkeypatch.context() as broken:
        broken.setattr(Unit, "documents", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            write_shards(Corpus(3), tokenizer, tmp_path / "a")
        broken.setattr(Unit, "documents", lambda *_: iter([]))
        with pytest.raises(ValueError, match="has no text"):
            write_shards(Corpus(3), tokenizer, tmp_path / "b")
    whole = write_shards(Corpus(), tokenizer, tmp_path / "c")
    for name in "ab":
        assert write_shards(Corpus(), tokenizer, tmp_path / name).manifest == whole.manifest
        assert files_of(tmp_path / name) == files_of(tmp_path / "c")


def test_what_is_no_corpus_and_no_tokenizer_is_refused(tokenizer, tmp_path):
    with pytest.raises(TypeError, match="corpus is of type PosixPath"):
        write_shards(Path("texts"), tokenizer, tmp_path / "new")
    with pytest.raises(TypeError, match="tokenizer is of type str.*from_pretrained"):
        write_shards(Corpus(), "vocab", tmp_path / "new")
    with pytest.raises(ValueError, match="shard_tokens must be"):
        write_shards(Corpus(), tokenizer, tmp_path / "new", shard_tokens=0)
    assert not (tmp_path / "new").exists()


def test_documents_in_memory_are_two_or_more_in_an_element(tokenizer):
    sizes = [len(documents) for documents in tokenised(Corpus(), tokenizer, shard_tokens=1)]
    assert min(sizes) >= 2 and len(sizes) > 1


def test_damaged_files_are_found(tokenizer, tmp_path):
    write_shards(Corpus(), tokenizer, tmp_path)
    path = tmp_path / "shard-00001-000.tokens.npy"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    Shards(tmp_path)
    with pytest.raises(WeightsMismatchError, match="checksum"):
        Shards(tmp_path, verify=True)
    path.write_bytes(content[:-2])
    for use in (Shards, lambda folder: write_shards(Corpus(), tokenizer, folder)):
        with pytest.raises(WeightsMismatchError, match=f"not complete.*remove the folder {tmp_path} and write"):
            use(tmp_path)


@pytest.mark.parametrize(
    "key, value",
    [
        ("corpus", 5),
        ("vocabulary", None),
        ("tokens", "many"),
        ("documents", -1),
        ("shards", {}),
        ("shards", []),
        ("shards", [5]),
        ("shards", [{"name": "../../elsewhere", "files": {}}]),
        ("shards", [{"name": "shard-00000-000", "files": {}}]),
        ("shards", [{"name": "shard-00000-000", "files": {"tokens": {"bytes": "5", "sha256": ""}}}]),
    ],
)
def test_a_damaged_manifest_is_refused_with_its_key(tokenizer, tmp_path, key, value):
    write_shards(Corpus(), tokenizer, tmp_path)
    path = tmp_path / "manifest.json"
    values = json.loads(path.read_text())
    path.write_text(json.dumps({**values, key: value}))
    with pytest.raises(WeightsMismatchError, match=rf"manifest.json is damaged .*{key}"):
        Shards(tmp_path)
    path.write_text(json.dumps({name: value for name, value in values.items() if name != key}))
    with pytest.raises(WeightsMismatchError, match=f"manifest.json is damaged .it lacks {key}"):
        Shards(tmp_path)
    path.write_text("[" * 100_000)
    with pytest.raises(WeightsMismatchError, match="manifest.json is nested too deeply"):
        Shards(tmp_path)


def test_what_is_not_there_is_told(tokenizer, tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no manifest\.json\.$"):
        Shards(tmp_path)
    with pytest.raises(FileNotFoundError, match="there is no such folder"):
        Shards(tmp_path / "nowhere")

    class Empty(Corpus):
        def units(self):
            return []

    with pytest.raises(ValueError, match="no text"):
        write_shards(Empty(), tokenizer, tmp_path)
    (tmp_path / "manifest.json").write_text(json.dumps({"format": 99}))
    with pytest.raises(WeightsMismatchError, match="format 99"):
        Shards(tmp_path)


def _with(folder, part, array):
    """Another array in a file of the first shard, of the size that the manifest says."""
    path, manifest = folder / f"shard-00000-000.{part}.npy", json.loads((folder / "manifest.json").read_text())
    np.save(path, array)
    manifest["shards"][0]["files"][part]["bytes"] = path.stat().st_size
    (folder / "manifest.json").write_text(json.dumps(manifest))


@pytest.mark.parametrize("part", ["tokens", "segments", "documents"])
@pytest.mark.parametrize(
    "change",
    [lambda a: a[:-1], lambda a: a.byteswap(), lambda a: a * 0 - 1, lambda a: a + 0.5, lambda a: a[None]],
    ids=["shorter", "bytes swapped", "huge", "fractions", "two dimensions"],
)
def test_arrays_that_do_not_belong_together_are_refused(tokenizer, tmp_path, part, change):
    shards = write_shards(Corpus(), tokenizer, tmp_path)
    _with(tmp_path, part, change(np.array(np.load(tmp_path / f"shard-00000-000.{part}.npy"))))
    with pytest.raises(WeightsMismatchError, match="shard-00000-000"):
        Shards(tmp_path)[0]
    assert len(shards[1])


def test_a_header_that_numpy_cannot_read_and_totals_that_are_wrong_are_refused(tokenizer, tmp_path):
    write_shards(Corpus(), tokenizer, tmp_path)
    path = tmp_path / "shard-00000-000.documents.npy"
    path.write_bytes(path.read_bytes().replace(b"(", b"{", 1))
    with pytest.raises(WeightsMismatchError, match="documents.npy is damaged"):
        Shards(tmp_path)[0]
    values = json.loads((tmp_path / "manifest.json").read_text())
    (tmp_path / "manifest.json").write_text(json.dumps({**values, "tokens": values["tokens"] + 1}))
    with pytest.raises(WeightsMismatchError, match="tokens must be one of"):
        Shards(tmp_path)


def test_a_call_that_was_killed_while_it_wrote_the_settings_goes_on(tokenizer, tmp_path, monkeypatch):
    def killed(path, target):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Path, "replace", killed)
        write_shards(Corpus(), tokenizer, tmp_path)
    assert [path.suffix for path in tmp_path.glob("settings*")] == [".part"]
    (tmp_path / "settings.backup.part").touch()
    with pytest.raises(ValueError, match="holds other files, such as settings.backup.part"):
        write_shards(Corpus(), tokenizer, tmp_path)
    assert len([*tmp_path.glob("settings*")]) == 2
    (tmp_path / "settings.backup.part").unlink()
    assert len(write_shards(Corpus(), tokenizer, tmp_path)) == 4
