"""Every reader of files: how a good toy file or folder is made, and how it is read and what was read is checked.

A check raises an AssertionError where a reader succeeds with numbers that are not finite, or of another shape.
"""

import gzip
import json
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

import keras
import numpy as np

from kbert import BertEncoder, BertForPreTraining, WordPieceTokenizer, datasets
from kbert.config import BertConfig
from kbert.pretraining import Corpus
from kbert.pretraining.shards import Shards, write_shards
from kbert.pretraining.trainer import Pretraining, PretrainingOptions
from kbert.weights import load_pretraining
from kbert.weights.convert import convert
from kbert.weights.describe import describe
from kbert.weights.folder import read_folder

TESTS = Path(__file__).parents[1]
sys.path[:0] = [str(TESTS / "estimators")]

import calls  # noqa: E402
import texts  # noqa: E402
from mutations import mutate  # noqa: E402
from save_examples import CHOICES, ESTIMATORS, QUESTIONS, TEXTS, WORD_ROWS, predictions  # noqa: E402

SAVED = TESTS / "estimators" / "saved"
CLASSES = {estimator.__name__: estimator for estimator in ESTIMATORS}
# The documented errors besides kbert's own.
MODEL, CORPUS, DATASET = (), (ValueError, TypeError, FileNotFoundError, OSError), (ValueError, OSError)


def damage_one_file(folder, rng, marker, large=True):
    """Damage one of the files of a folder."""
    path = rng.choice(sorted(path for path in folder.rglob("*") if path.is_file()))
    return f"{path.relative_to(folder)}: {mutate(path, rng, marker, large)}"


# Texts take the memory that they need: what a user trains on may be large.
damage_texts = partial(damage_one_file, large=False)


@dataclass(frozen=True)
class Reader:
    """What is fuzzed.

    Attributes
    ----------
    make : callable
        (folder) -> None: writes the good file, or files.
    read : callable
        (folder) -> None: reads them, and checks what was read.
    errors : tuple
        The documented errors besides KbertError: these classes themselves, and of OSError all that name a file.
    each_round : int
        Cases in a round: more of what is quick.
    damage : callable
        (folder, random.Random, marker) -> what was done. By default one file is damaged.
    raised_by : tuple of str
        The packages whose code may raise the documented errors; where it is empty, all.
    """

    make: Callable[[Path], None]
    read: Callable[[Path], None]
    errors: tuple[type[Exception], ...] = MODEL
    each_round: int = 1
    damage: Callable[..., str] = damage_one_file
    raised_by: tuple[str, ...] = ()


def check(array, *shape):
    """Finite numbers of a shape; None stands for any length."""
    array = np.asarray(array, "float64")
    assert len(array.shape) == len(shape) and all(
        want in (None, n) for n, want in zip(array.shape, shape, strict=True)
    ), f"shape {array.shape}, not {shape}"
    assert np.isfinite(array).all(), "numbers that are not finite"


# === Saved estimators ===


def _copy_estimator(name):
    return lambda folder: shutil.copytree(SAVED / name, folder, dirs_exist_ok=True)


def _numbers(value):
    """All floats in what `predictions` gives."""
    if isinstance(value, float):
        yield value
    elif isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _numbers(inner)


def _load_estimator(name, kind):
    rows = {"tagger": len(WORD_ROWS), "qa": len(QUESTIONS), "choice": len(CHOICES), "pretrainer": 3}.get(
        name, len(TEXTS)
    )

    def read(folder):
        estimator = CLASSES[kind].load(folder)
        found = predictions(name, estimator)
        # The threshold of answers is infinite in a folder without kbert.json, as transformers saves them.
        check(list(_numbers(found[1:] if name == "qa" else found)), None)
        # A table is its columns; where there are labels and probabilities, both have a row each.
        if isinstance(found, dict):
            found = list(found.values())
        for part in found if name in ("classifier", "multilabel", "tagger", "pretrainer") else [found]:
            if name != "qa":
                assert len(part) == rows, f"{len(part)} rows of {rows}"

    return read


# === Weights ===

_SHAPE = dict(vocab_size=60, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16)


@cache
def _tokenizer():
    return WordPieceTokenizer.train(TEXTS * 9, vocab_size=60)


@cache
def _encoder():
    return BertEncoder(_config(), dtype="float32", seed=1)


def _config():
    shape = _SHAPE | {"vocab_size": _tokenizer().vocab_size}
    return BertConfig(**shape, max_position_embeddings=32, initializer_range=0.3)


def _make_hugging_face(folder):
    _encoder().save_pretrained(folder)
    _tokenizer().save(folder)


def _make_sharded(folder):
    from safetensors.numpy import load_file, save_file

    _make_hugging_face(folder)
    arrays = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    places = {name: f"model-0000{1 + i % 2}-of-00002.safetensors" for i, name in enumerate(sorted(arrays))}
    for file in set(places.values()):
        save_file({name: array for name, array in arrays.items() if places[name] == file}, folder / file)
    index = {"metadata": {"total_size": 1}, "weight_map": places}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


def _make_pytorch(zipped):
    def make(folder):
        import torch
        from safetensors.numpy import load_file

        _make_hugging_face(folder)
        arrays = load_file(folder / "model.safetensors")
        (folder / "model.safetensors").unlink()
        state = {name: torch.tensor(array) for name, array in arrays.items()}
        torch.save(state, folder / "pytorch_model.bin", _use_new_zipfile_serialization=zipped)

    return make


def _make_converted(to):
    def make(folder):
        hugging_face = folder.with_name(f"{folder.name}-hf")
        _make_hugging_face(hugging_face)
        convert(hugging_face, folder, to)
        shutil.rmtree(hugging_face)

    return make


def _read_encoder(folder):
    encoder, tokenizer = BertEncoder.from_pretrained(folder), WordPieceTokenizer.from_pretrained(folder)
    if tokenizer.vocab_size > encoder.config.vocab_size:
        return  # estimators refuse it; here each is as it should be by itself
    inputs = tokenizer(TEXTS[:2], max_length=16)
    if any(np.abs(keras.ops.convert_to_numpy(weight.value)).max() > 1e6 for weight in encoder.weights):
        return  # other numbers of the file, in which nothing is wrong by itself; estimators look at their outputs
    found = keras.ops.stop_gradient(encoder(inputs)["sequence_output"])
    check(keras.ops.convert_to_numpy(found), *inputs["token_ids"].shape, encoder.config.hidden_size)


def _read_arrays_and_facts(folder):
    """What `kbert info` reads, and the plain arrays."""
    assert all(isinstance(text, str) for text in describe(folder).values())
    read_folder(folder)


def _make_keras(folder):
    _encoder().save(folder / "model.keras")


def _make_keras_weights(folder):
    _encoder().save_weights(folder / "model.weights.h5")
    _encoder().save_pretrained(folder / "saved")
    shutil.move(folder / "saved" / "config.json", folder)
    shutil.rmtree(folder / "saved")


def _convert(name):
    def read(folder):
        target = folder.with_name(f"{folder.name}-converted")
        shutil.rmtree(target, ignore_errors=True)
        convert(folder / name, target, "hf")
        for key, array in read_folder(target).items():
            assert array.size and array.dtype == np.float32, key

    return read


def _make_pretraining(folder):
    from kbert.weights import save_pretraining

    save_pretraining(BertForPreTraining(_config(), dtype="float32", seed=1), folder)
    _tokenizer().save(folder)


def _read_pretraining(folder):
    model = load_pretraining(folder)
    for variable in model.weights:
        assert all(variable.shape)


# === Exported models ===


def _make_exported(folder):
    """What kbert reads of an exported folder: that it is one, its config and its tokenizer."""
    shutil.copytree(SAVED / "classifier", folder, dirs_exist_ok=True)
    (folder / "model.safetensors").unlink()
    values = json.loads((folder / "kbert.json").read_text(encoding="utf-8"))
    (folder / "kbert.json").unlink()
    exported = {"kbert": "0.1.0", "estimator": "BertClassifier", "inputs": {}, **values, "check": {"n_rows": 4}}
    (folder / "export.json").write_text(json.dumps(exported))


def _read_exported(folder):
    BertConfig.from_folder(folder)
    WordPieceTokenizer.from_pretrained(folder).encode("red table")
    CLASSES["BertClassifier"].load(folder)


# === Tokenizers ===


def _make_vocabulary(folder):
    _tokenizer().save(folder)
    (folder / "tokenizer.json").unlink()


def _read_tokenizer(folder):
    tokenizer = WordPieceTokenizer.from_pretrained(folder)
    inputs = tokenizer([*TEXTS, "[MASK] \x00 naïve 中文"], max_length=16)
    check(inputs["token_ids"], len(TEXTS) + 1, None)
    assert 0 <= inputs["token_ids"].min() and inputs["token_ids"].max() < tokenizer.vocab_size


# === Pre-training ===


def _make_corpus(name):
    def make(folder):
        columns = [{"text": f"{text}. {text}.", "id": i} for i, text in enumerate(TEXTS)]
        if name.endswith(".parquet"):
            import pandas as pd

            return pd.DataFrame(columns).to_parquet(folder / name)
        if ".jsonl" in name:
            content = "".join(json.dumps(row) + "\n" for row in columns)
        elif ".csv" in name:
            content = "id,text\n" + "".join(f'{row["id"]},"{row["text"]}"\n' for row in columns)
        else:
            content = "\n\n".join(row["text"] for row in columns)
        content = content.encode()
        (folder / name).write_bytes(gzip.compress(content, mtime=0) if name.endswith(".gz") else content)

    return make


def _read_corpus(folder):
    for errors in ("strict", "replace"):
        corpus = Corpus(folder, split="lines", errors=errors)
        documents = list(corpus)
        again = [document for unit in corpus.units(100) for document in unit.documents()]
        assert documents == again, "other documents in units"
        assert all(isinstance(segment, str) and segment for document in documents for segment in document)


def _make_shards(folder):
    write_shards(Corpus([[text, text] for text in TEXTS]), _tokenizer(), folder, shard_tokens=60)


def _read_shards(folder):
    shards = Shards(folder, verify=True)
    documents = [shards[i] for i in range(len(shards))]
    assert sum(len(part.tokens) for part in documents) == shards.manifest["tokens"]
    assert sum(map(len, documents)) == shards.manifest["documents"]


def _train(folder, source, tokenizer, max_steps=1):
    model = BertForPreTraining(_config(), nsp=False, dtype="float32", seed=1)
    options = PretrainingOptions(
        max_steps=max_steps, phases=((16, 1.0),), batch_size=4, learning_rate=1e-3, seed=5, checkpoint_every=1
    )
    history = Pretraining(model, tokenizer, source, options, folder=folder).run()
    check(history[["loss", "mlm_loss", "learning_rate"]], max_steps, 3)
    for variable in model.trainable_variables:
        assert np.isfinite(keras.ops.convert_to_numpy(variable.value)).all(), "weights that are not finite"


def _train_on_shards(folder):
    """Without comparing the checksums, which a large corpus does once."""
    shards = Shards(folder)
    _train(None, shards, shards.tokenizer)


@cache
def _documents():
    from kbert.pretraining.instances import documents_of

    return [documents_of([[text, text] for text in TEXTS], _tokenizer())]


def _make_run(folder):
    _train(folder, _documents(), _tokenizer(), max_steps=2)
    shutil.rmtree(folder / "checkpoint-000000002")  # so that a step is left


def _resume(folder):
    _train(folder, _documents(), _tokenizer(), max_steps=2)


# === Data sets ===


def _make_glue(folder):
    (folder / "SST-2").mkdir()
    (folder / "MNLI").mkdir()
    rows = "".join(f"{text}\t{i % 2}\n" for i, text in enumerate(TEXTS))
    (folder / "SST-2" / "train.tsv").write_text(f"sentence\tlabel\n{rows}")
    names = ("entailment", "neutral", "contradiction")
    rows = "".join(f"{i}\t{text}\t{text}\t{names[i % 3]}\n" for i, text in enumerate(TEXTS)).encode()
    content = b"index\tsentence1\tsentence2\tgold_label\n" + rows
    (folder / "MNLI" / "train.tsv.gz").write_bytes(gzip.compress(content, mtime=0))


def _make_squad(folder):
    questions = [
        {"id": str(i), "question": question, "answers": [{"text": context[:3], "answer_start": 0}]}
        for i, (question, context) in enumerate(QUESTIONS[:4])
    ]
    questions.append({"id": "x", "question": "where", "is_impossible": True, "answers": []})
    data = [{"title": "a", "paragraphs": [{"context": QUESTIONS[i][1], "qas": [q]}]} for i, q in enumerate(questions)]
    (folder / "train-v2.0.json").write_text(json.dumps({"version": "v2.0", "data": data}))


def _make_conll(folder):
    rows = "\n\n".join(
        "\n".join(f"{word} NN B-NP {'B-X' if word == 'red' else 'O'}" for word in row) for row in WORD_ROWS
    )
    (folder / "train.conll").write_text("-DOCSTART- -X- -X- O\n\n" + rows + "\n")


def _make_entities(folder):
    """Records of each tool, in files of their own."""
    span, region = {"start": 0, "end": 3, "label": "X"}, {"start": 0, "end": 3, "labels": ["X"]}
    results = [{"result": [{"type": "labels", "to_name": "text", "value": region}]}]
    records = {
        "spacy": [[text, {"entities": [[0, 3, "X"]]}] for text in TEXTS],
        "doccano": [{"text": text, "label": [[0, 3, "X"]]} for text in TEXTS],
        "prodigy": [{"text": text, "answer": "accept", "spans": [span]} for text in TEXTS],
        "label-studio": [{"id": i, "data": {"text": text}, "annotations": results} for i, text in enumerate(TEXTS)],
    }
    for name, of_tool in records.items():
        (folder / f"{name}.json").write_text(json.dumps(of_tool))


def _make_choices(folder):
    rows = [
        {"context": context, "question": "so", "options": options, "label": i % 2}
        for i, (context, options) in enumerate(CHOICES)
    ]
    (folder / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    swag = "".join(f'{i},{row["context"]},The,"red, hot",blue,{i % 2}\n' for i, row in enumerate(rows))
    (folder / "train.csv").write_text("id,sent1,sent2,ending0,ending1,label\n" + swag)


def _texts(frame, *names):
    """The columns hold texts, and nothing is missing."""
    for name in names:
        assert all(isinstance(text, str) for text in frame[name]), name


def _read_glue(folder):
    _texts(datasets.read_glue("sst2", "train", folder), "text")
    _texts(datasets.load("mnli", "train", folder), "text_a", "text_b")


def _read_squad(folder):
    frame = datasets.read_squad(folder / "train-v2.0.json")
    _texts(frame, "question", "context", "id", "title")
    for answer, start in zip(frame.get("answer", []), frame.get("answer_start", []), strict=True):
        assert type(answer) is type(start) is list or (type(answer) is str and int(start) == start)


def _read_conll(folder):
    frame = datasets.read_conll(folder / "train.conll")
    for words, tags in zip(frame["words"], frame.get("tags", frame["words"]), strict=True):
        assert len(words) == len(tags) and all(isinstance(text, str) for text in [*words, *tags])


def _read_entities(folder):
    """All files: the errors of one are those of all."""
    errors = []
    for name in ("spacy", "doccano", "prodigy", "label-studio"):
        try:
            frame = datasets.read_entities(folder / f"{name}.json")
        except DATASET as error:
            errors.append(error)
            continue
        _texts(frame, "text")
        for text, spans in zip(frame["text"], frame["spans"], strict=True):
            assert all(0 <= start < end <= len(text) and isinstance(label, str) for start, end, label in spans)
    if errors:
        raise errors[0]


def _read_choices(folder):
    for name in ("train.jsonl", "train.csv"):
        frame = datasets.read_choices(folder / name)
        _texts(frame, "context")
        for options, label in zip(frame["options"], frame.get("label", [0] * len(frame)), strict=True):
            assert all(isinstance(text, str) for text in options) and 0 <= label < len(options)


def _estimators():
    for path in sorted(SAVED.glob("*/kbert.json")):
        kind = json.loads(path.read_text(encoding="utf-8"))["estimator"]
        name = path.parent.name
        yield f"saved {name}", Reader(
            # A tokenizer without a mask token cannot fill masks.
            _copy_estimator(name), _load_estimator(name, kind), (ValueError,) if name == "pretrainer" else MODEL
        )  # fmt: skip


_CORPORA = ("corpus.txt", "corpus.txt.gz", "corpus.jsonl", "corpus.jsonl.gz", "corpus.csv", "corpus.parquet")
READERS = {
    **dict(_estimators()),
    "exported": Reader(_make_exported, _read_exported),
    "safetensors": Reader(_make_hugging_face, _read_encoder, each_round=2),
    "safetensors in shards": Reader(_make_sharded, _read_encoder, each_round=2),
    "facts of a folder": Reader(_make_sharded, _read_arrays_and_facts, each_round=2),
    "pytorch_model.bin": Reader(_make_pytorch(True), _read_encoder, each_round=2),
    "pytorch_model.bin, older": Reader(_make_pytorch(False), _read_encoder, each_round=2),
    "pre-trained": Reader(_make_pretraining, _read_pretraining),
    "Google checkpoint": Reader(_make_converted("google"), _read_encoder, each_round=2),
    "KerasHub preset": Reader(_make_converted("kerashub"), _read_encoder, each_round=2),
    ".keras": Reader(_make_keras, _convert("model.keras"), each_round=3),
    ".weights.h5": Reader(_make_keras_weights, _convert("model.weights.h5"), each_round=3),
    "tokenizer.json": Reader(lambda folder: _tokenizer().save(folder), _read_tokenizer, each_round=5),
    "vocab.txt": Reader(_make_vocabulary, _read_tokenizer, each_round=5),
    **{name: Reader(_make_corpus(name), _read_corpus, CORPUS, 4, damage_texts) for name in _CORPORA},
    "shards": Reader(_make_shards, _read_shards, (*MODEL, FileNotFoundError), 4),
    "training on shards": Reader(_make_shards, _train_on_shards, (*MODEL, FileNotFoundError, ValueError)),
    "checkpoint of a run": Reader(_make_run, _resume, (*MODEL, ValueError, OSError)),
    "GLUE": Reader(_make_glue, _read_glue, DATASET, 4, damage_texts),
    "SQuAD": Reader(_make_squad, _read_squad, DATASET, 4, damage_texts),
    "CoNLL": Reader(_make_conll, _read_conll, DATASET, 4, damage_texts),
    "entities": Reader(_make_entities, _read_entities, DATASET, 4, damage_texts),
    "multiple choice": Reader(_make_choices, _read_choices, DATASET, 4, damage_texts),
    "unusual texts": Reader(
        lambda folder: (folder / "texts.json").write_text('["red", "blue"]'), texts.check, (), 1, texts.draw
    ),
    "awkward calls": Reader(
        calls.make, calls.check, (ValueError, TypeError), 10, calls.draw, ("kbert", "sklearn")
    ),
}  # fmt: skip
