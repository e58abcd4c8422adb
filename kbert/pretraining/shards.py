"""A corpus as token shards on disk: written once, by any number of processes, and read as memory-mapped arrays."""

from __future__ import annotations

import hashlib
import json
import os
import re
import sys
import uuid
from collections.abc import Collection, Iterator
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from tqdm import tqdm

from kbert.errors import WeightsMismatchError
from kbert.files.checksums import sha256_of
from kbert.files.folder_lock import alone_in
from kbert.files.json_files import json_object, replace_json
from kbert.pretraining.instances import Documents, documents_of
from kbert.pretraining.segments import Segmenter, warn_of_replaced
from kbert.text import WordPieceTokenizer
from kbert.text.files import TokenizerSpec, bert_spec
from kbert.text.ragged import row_splits
from kbert.values.number_rules import whole_number
from kbert.values.printable import printable
from kbert.values.saved import TEXT, Rule, SavedValues, one_of, whole

if TYPE_CHECKING:
    from kbert.pretraining.corpus import Corpus, Unit

MANIFEST = "manifest.json"
# What the shards are made with, noted when they are begun.
SETTINGS = "settings.json"
FORMAT = 1
# Tokens after which a shard is full: 32 MB in two bytes each. It bounds the memory of writing and of drawing instances.
SHARD_TOKENS = 2**24
# Characters of documents that are tokenised at a time.
_PART_CHARACTERS = 4_000_000
# The size of a manifest beyond which it is not parsed: that of 100,000 shards.
_MOST_BYTES = 100_000_000
_COUNTS = ("documents", "segments", "tokens")
# The arrays of a shard, each in a file.
_PARTS = ("tokens", "segments", "documents")
# Names that lie in the folder itself.
_SHARD_NAME: Rule = (
    lambda name: isinstance(name, str) and re.fullmatch(r"shard-\d{5,}-\d{3,}", name) is not None,
    "the name of a shard, such as shard-00000-000",
)


# What to do about a file of shards that is not as it was written.
_MEND = "Copy it again; or remove the folder {} and write the shards again."


def write_shards(
    corpus: Corpus,
    tokenizer: WordPieceTokenizer,
    folder: str | os.PathLike[str],
    *,
    n_jobs: int | None = None,
    shard_tokens: int = SHARD_TOKENS,
    verbose: int = 0,
) -> Shards:
    """Tokenise a corpus into a folder.

    The units of the corpus are written by joblib's processes, so that ``joblib.parallel_config(backend="dask")``, or
    one of Ray or Spark, spreads them over a cluster that shares the folder. The files are the same byte for byte
    however many processes write them. If the work is stopped, the same call goes on with the units that are not
    finished.

    Parameters
    ----------
    corpus : Corpus
    tokenizer : WordPieceTokenizer
    folder : str or Path
        A new folder, or one in which the same work was begun.
    n_jobs : int, optional
        Processes, as for joblib; -1 is one for each core.
    shard_tokens : int
        A shard ends with the document in which it has so many tokens.
    verbose : int
        1 shows a progress bar over the units that are dealt to the processes.

    Returns
    -------
    Shards

    Raises
    ------
    ValueError
        If the folder holds the shards of another corpus, vocabulary or ``shard_tokens``, or other files; or if the
        corpus has no text.
    TypeError
        If ``corpus`` is no Corpus, or ``tokenizer`` no tokenizer.

    Examples
    --------
    >>> from kbert import WordPieceTokenizer
    >>> from kbert.pretraining import Corpus, write_shards
    >>> corpus = Corpus(["It rained. We stayed in.", "The sun shone. We went out."] * 10)
    >>> segments = (segment for document in corpus for segment in document)
    >>> tokenizer = WordPieceTokenizer.train(segments, vocab_size=100)
    >>> shards = write_shards(corpus, tokenizer, "shards")
    >>> shards.manifest["documents"], shards.manifest["segments"]
    (20, 40)
    """
    import joblib

    if not hasattr(corpus, "units"):
        raise TypeError(f"corpus is of type {type(corpus).__name__}. Give a kbert.pretraining.Corpus(...) of it.")
    if not isinstance(tokenizer, WordPieceTokenizer):
        raise TypeError(
            f"tokenizer is of type {type(tokenizer).__name__}. Give a WordPieceTokenizer: "
            "WordPieceTokenizer.from_pretrained(folder)."
        )
    shard_tokens = whole_number(shard_tokens, "shard_tokens")
    folder = Path(folder).expanduser().absolute()  # for processes with another working folder
    units = corpus.units()
    settings = {
        "format": FORMAT,
        "corpus": corpus.fingerprint(),
        "vocabulary": vocabulary_hash(tokenizer),
        "shard_tokens": shard_tokens,
        "units": len(units),
    }
    folder.mkdir(parents=True, exist_ok=True)
    with alone_in(folder, f"Another call is writing shards to {folder}. Wait for it, or give another folder."):
        _begin(folder, settings)
        if (folder / MANIFEST).exists():
            return Shards(folder)
        tokenizer.save(folder / "tokenizer")
        unfinished = [number for number in range(len(units)) if not _unit_file(folder, number).exists()]
        hidden = not verbose or sys.stderr is None
        replaced = joblib.Parallel(n_jobs=n_jobs)(
            joblib.delayed(_write_unit)(units[number], number, tokenizer, folder, shard_tokens)
            for number in tqdm(unfinished, unit="unit", desc="shards", dynamic_ncols=True, disable=hidden)
        )
        warn_of_replaced(replaced)  # here, since a warning in another process reaches nobody
        units_of = [json.loads(_unit_file(folder, number).read_text()) for number in range(len(units))]
        shards = [shard for unit in units_of for shard in unit]
        if not shards:
            for number in range(len(units)):
                _unit_file(folder, number).unlink()
            raise ValueError(f"The corpus has no text, so {folder} has no shards. Is it the right file or column?")
        totals = {name: sum(shard[name] for shard in shards) for name in _COUNTS}
        replace_json(folder / MANIFEST, {**settings, **totals, "shards": shards})
        for done in (*(_unit_file(folder, number) for number in range(len(units))), *folder.glob("*.part")):
            done.unlink(missing_ok=True)
        return Shards(folder)


class Shards:
    """A folder of token shards.

    Parameters
    ----------
    folder : str or Path
    verify : bool, default=False
        Compare every file with its checksum.

    Attributes
    ----------
    manifest : dict
        Counts of ``documents``, ``segments`` and ``tokens``, the hash of the ``vocabulary``, the fingerprint of the
        ``corpus``, and for each of ``shards`` its name, counts and SHA-256 sums.
    tokenizer : WordPieceTokenizer

    Raises
    ------
    FileNotFoundError
        If the folder holds no finished shards.
    WeightsMismatchError
        If a file is damaged or of another vocabulary.

    Examples
    --------
    >>> from kbert import WordPieceTokenizer
    >>> from kbert.pretraining import Corpus, Shards, write_shards
    >>> texts = ["It rained", "We stayed in"] * 10
    >>> written = write_shards(Corpus(texts), WordPieceTokenizer.train(texts), "shards")
    >>> shards = Shards("shards", verify=True)
    >>> len(shards), shards.manifest["tokens"]
    (1, 50)
    """

    def __init__(self, folder: str | os.PathLike[str], verify: bool = False):
        self.folder = Path(folder).expanduser()
        path = self.folder / MANIFEST
        if not path.is_file():
            begun = (
                " They were begun and not finished: write them again." if _settings_file(self.folder).exists() else ""
            )
            there = f"there is no {MANIFEST}" if self.folder.exists() else "there is no such folder"
            raise FileNotFoundError(f"{self.folder} holds no token shards: {there}.{begun}")
        self.manifest = SavedValues(
            json_object(path, WeightsMismatchError, " Write the shards again.", most_bytes=_MOST_BYTES),
            path,
            remedy="Write the shards again.",
        )
        if self.manifest["format"] != FORMAT:
            raise WeightsMismatchError(
                f"{path} has format {self.manifest['format']}, and this version of kbert reads {FORMAT}. Update kbert, "
                "or write the shards again."
            )
        _check_manifest(self.manifest, path)
        self.tokenizer = WordPieceTokenizer.from_pretrained(self.folder / "tokenizer")
        if vocabulary_hash(self.tokenizer) != self.manifest["vocabulary"]:
            raise WeightsMismatchError(
                f"{self.folder / 'tokenizer'} is not the vocabulary that the shards were written with. Write them "
                "again."
            )
        for shard in self.manifest["shards"]:
            self._check(shard, verify)

    def _check(self, shard: dict[str, Any], verify: bool) -> None:
        for part, facts in shard["files"].items():
            path = _part_file(self.folder, shard["name"], part)
            if not path.exists() or path.stat().st_size != facts["bytes"]:
                raise WeightsMismatchError(f"{path} is missing or not complete. {_MEND.format(self.folder)}")
            if verify and sha256_of(path) != facts["sha256"]:
                raise WeightsMismatchError(
                    f"{path} was changed: its checksum is not that of {MANIFEST}. {_MEND.format(self.folder)}"
                )

    def __len__(self) -> int:
        return len(self.manifest["shards"])

    def __getitem__(self, i: int) -> Documents:
        """The documents of one shard; the tokens are read from the file when they are used."""
        shard = self.manifest["shards"][i]
        tokens, segments, documents = (self._array(shard["name"], part) for part in _PARTS)
        # The size of a file, which was compared before, says nothing of what is in it.
        if (
            (len(tokens), len(segments), len(documents)) != tuple(shard[part] for part in _PARTS)
            or (_total(segments), _total(documents)) != (len(tokens), len(segments))
            or not 0 <= tokens.min(initial=0) <= tokens.max(initial=0) < self.tokenizer.vocab_size
        ):
            raise WeightsMismatchError(
                f"The files of {self.folder / shard['name']} do not hold what {MANIFEST} says, or hold tokens of no "
                "vocabulary. Copy them again, or write the shards again."
            )
        return Documents(tokens, row_splits(segments), row_splits(documents))

    def _array(self, name: str, part: str) -> np.ndarray:
        """One array of a shard, which is read from the file when it is used."""
        path = _part_file(self.folder, name, part)
        try:
            array: np.ndarray = np.load(path, mmap_mode="r", allow_pickle=False)
        except Exception as error:  # whatever NumPy says about a damaged header
            raise WeightsMismatchError(f"{path} is damaged ({error}). {_MEND.format(self.folder)}") from None
        if array.ndim != 1 or array.dtype.kind not in "ui":
            raise WeightsMismatchError(
                f"{path} is damaged: it holds no row of whole numbers. {_MEND.format(self.folder)}"
            )
        return array


def _check_manifest(manifest: SavedValues, path: Path) -> None:
    """Check the types of all that is read from a manifest."""
    for name in ("corpus", "vocabulary"):
        manifest.checked(name, TEXT)
    shards = manifest.checked("shards", (lambda value: isinstance(value, list) and len(value) > 0, "a list of shards"))
    for i, values in enumerate(shards):
        place = f"shards[{i}]"
        shard = SavedValues({place: values}, path, remedy="Write the shards again.").inner(place)
        shard.checked("name", _SHARD_NAME)
        for name in _COUNTS:
            shard.checked(name, whole(0))
        files = shard.inner("files")
        for part in _PARTS:
            facts = files.inner(part)
            facts.checked("bytes", whole(0))
            facts.checked("sha256", TEXT)
    for name in _COUNTS:
        manifest.checked(name, one_of(sum(shard[name] for shard in shards)))


@lru_cache(1)  # asked for when shards are begun, and again when they are opened
def vocabulary_hash(tokenizer: WordPieceTokenizer) -> str:
    """SHA-256 of a vocabulary, its ids, and how texts are split into its pieces."""
    facts: list[Any] = [tokenizer.vocab, tokenizer.lowercase]
    rules = _rules(tokenizer.spec)
    if rules != _rules(bert_spec({}, "", tokenizer.lowercase, None, True)):  # BERT's own, which most have, are left out
        facts.append(rules)
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


def _rules(spec: TokenizerSpec) -> list[Any]:
    return [spec["normalizer"], spec["pre_tokenizer"], spec["model"]["max_input_chars_per_word"]]


def tokenised(corpus: Corpus, tokenizer: WordPieceTokenizer, shard_tokens: int = SHARD_TOKENS) -> list[Documents]:
    """A corpus as token ids in memory: what its shards would hold."""
    parts = [part for unit in corpus.units() for part in _tokenised(unit, tokenizer)]
    whole = _joined(parts)
    # Two documents in each, at least: the next-sentence task takes texts of another one.
    n_elements = max(1, min(len(whole.tokens) // shard_tokens, len(whole) // 2))
    bounds = np.linspace(0, len(whole), n_elements + 1).astype(int)
    return [_slice(whole, *pair) for pair in zip(bounds[:-1], bounds[1:], strict=True)]


def _total(lengths: np.ndarray) -> int:
    """The sum of lengths; -1 where one is not positive: `write_shards` leaves out what is empty."""
    return -1 if lengths.min(initial=1) < 1 else int(lengths.sum(dtype=np.int64))


# --- Writing


def require_no_other_files(folder: Path, own: Collection[Path] = ()) -> None:
    """Raise a ValueError where a folder that is to be written holds any file but hidden ones, and those in ``own``."""
    if others := [path.name for path in folder.iterdir() if not path.name.startswith(".") and path not in own]:
        raise ValueError(f"{folder} holds other files, such as {printable(min(others))}. Give a new folder.")


def _begin(folder: Path, settings: dict[str, Any]) -> None:
    """Note the settings of the shards; or check that they are those of the shards that were begun in this folder."""
    path = _settings_file(folder)
    if not path.exists():
        # Of a call that was killed while `replace_json` wrote the settings.
        unfinished = [file for file in folder.iterdir() if re.fullmatch(path.stem + r"\.[0-9a-f]{8}\.part", file.name)]
        require_no_other_files(folder, unfinished)
        for file in unfinished:
            file.unlink()
        replace_json(path, settings)
        return
    before = json_object(path, WeightsMismatchError, " Remove the folder, and write the shards again.")
    different = sorted(name for name in settings if before.get(name) != settings[name])
    if different and not (folder / MANIFEST).exists() and not any(folder.glob("unit-*.json")):
        replace_json(path, settings)  # nothing is finished of what was begun
    elif different:
        raise ValueError(
            f"{folder} holds shards, finished or begun, with another {' and '.join(different)}. Give another folder, "
            "or remove this one."
        )


def _write_unit(
    unit: Unit, number: int, tokenizer: WordPieceTokenizer, folder: Path, shard_tokens: int
) -> tuple[str, int]:
    """Write the shards of one unit, and last the file that says that they are complete; give what was replaced."""
    segmenter = Segmenter(unit.rules)
    shards = [
        _write_shard(documents, f"shard-{number:05d}-{i:03d}", folder)
        for i, documents in enumerate(_shards_of(unit, tokenizer, shard_tokens, segmenter))
    ]
    replace_json(_unit_file(folder, number), shards)
    return segmenter.replaced


def _shards_of(
    unit: Unit, tokenizer: WordPieceTokenizer, shard_tokens: int, segmenter: Segmenter
) -> Iterator[Documents]:
    """The documents of a unit, as many at a time as a shard holds."""
    parts: list[Documents] = []
    for part in _tokenised(unit, tokenizer, segmenter):
        parts.append(part)
        while sum(len(part.tokens) for part in parts) >= shard_tokens:
            whole = _joined(parts)
            # A shard ends with the document in which it becomes full.
            ends = whole.segments[whole.documents[1:]]
            cut = int(np.searchsorted(ends, shard_tokens)) + 1
            yield _slice(whole, 0, cut)
            parts = [_slice(whole, cut, len(whole))]
    if parts and len(whole := _joined(parts)):
        yield whole


def _tokenised(unit: Unit, tokenizer: WordPieceTokenizer, segmenter: Segmenter | None = None) -> Iterator[Documents]:
    texts: list[list[str]] = []
    n_characters = 0
    for document in unit.documents(segmenter):
        texts.append(document)
        n_characters += sum(map(len, document))
        if n_characters >= _PART_CHARACTERS:
            yield documents_of(texts, tokenizer)
            texts, n_characters = [], 0
    yield documents_of(texts, tokenizer)


def _joined(parts: list[Documents]) -> Documents:
    return Documents(
        np.concatenate([part.tokens for part in parts]),
        row_splits(np.concatenate([np.diff(part.segments) for part in parts])),
        row_splits(np.concatenate([np.diff(part.documents) for part in parts])),
    )


def _slice(documents: Documents, first: int, stop: int) -> Documents:
    splits = documents.documents[first : stop + 1]
    segments = documents.segments[splits[0] : splits[-1] + 1]
    return Documents(documents.tokens[segments[0] : segments[-1]], segments - segments[0], splits - splits[0])


def _write_shard(documents: Documents, name: str, folder: Path) -> dict[str, Any]:
    """Write a shard's files, with lengths for splits, and return its entry in the manifest."""
    arrays = {
        "tokens": documents.tokens.astype(np.uint16 if documents.tokens.max(initial=0) < 2**16 else np.int32),
        "segments": np.diff(documents.segments).astype(np.uint32),
        "documents": np.diff(documents.documents).astype(np.uint32),
    }
    files = {}
    for part, array in arrays.items():
        path = _part_file(folder, name, part)
        # A process of a call that was killed may still be writing the same shard.
        written = path.with_suffix(f".{uuid.uuid4().hex[:8]}.part")
        with open(written, "wb") as file:
            try:
                np.save(file, array, allow_pickle=False)
            except OSError as error:  # of a full disk NumPy says how many values it has written
                raise OSError(f"{path} could not be written ({error}). Is the disk full?") from error
        written.replace(path)
        files[part] = {"bytes": path.stat().st_size, "sha256": sha256_of(path)}
    return {
        "name": name, "documents": len(documents), "segments": len(documents.segments) - 1,
        "tokens": len(documents.tokens), "files": files,
    }  # fmt: skip


def _part_file(folder: Path, name: str, part: str) -> Path:
    return folder / f"{name}.{part}.npy"


def _unit_file(folder: Path, number: int) -> Path:
    """What says that the shards of a unit are complete, until all are."""
    return folder / f"unit-{number:05d}.json"


def _settings_file(folder: Path) -> Path:
    return folder / SETTINGS
