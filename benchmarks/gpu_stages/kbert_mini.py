"""A small BERT of kbert's own: vocabulary, pre-training in pieces, held-out loss, and GLUE beside a random start.

Four layers, hidden size 256. It is trained on the Wikipedia text in KBERT_DATA/wiki_en, but for the first documents of
the last file, for ``--minutes`` in all. A run of this stage trains a piece of at most eight minutes, and leaves a
checkpoint in the state folder, from which the next run goes on. When training is finished, the cells after it follow:

    held-out            masked-LM loss in nats under masks of 15%, and that of who knows only the pieces' frequencies
    export              the model in float16, and its size
    TASK, START, SEED   GLUE's scores on dev, from the model and from random weights

The published scores of Google's models of this and the smallest size are on GLUE's test sets, ours on dev.
"""

from __future__ import annotations

import itertools
import shutil
import signal
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from gpu_stages.pretrain import _documents, wiki_files
from gpu_stages.records import Results
from gpu_stages.setting import Absent, Cell, Setting

# Rows of 128 tokens for most of the time, and masks of 40% without dropout, as `kbert.pretraining.recipe` has it from
# scratch; larger batches than there, for a GPU. None of this has been tuned on one yet.
PIECES = 16_000
PHASES = ((128, 0.9), (512, 0.1))
BATCH_SIZE, RATE, MASK_RATE = 256, 1e-3, 0.4
HELD_OUT_DOCUMENTS, HELD_OUT_LENGTH = 50, 128
# Documents of which the vocabulary is learned, one in so many.
_VOCABULARY_STRIDE = 4

TASKS = ("sst2", "cola", "mrpc", "stsb", "rte", "qqp")
SEEDS = (0, 1, 2)
STARTS = ("pre-trained", "random start")
# Of fine-tuning: the highest of the rates that Turc et al. (2019) tried, and their epochs.
FINE_TUNING = {"epochs": 4, "learning_rate": 3e-4, "dropout": 0.1}
# GLUE test, github.com/google-research/bert: F1 of MRPC, as published.
PUBLISHED_TEST = {
    "mini": {"sst2": 0.859, "cola": 0.0, "mrpc": 0.811, "rte": 0.579},
    "tiny": {"sst2": 0.832, "cola": 0.0, "mrpc": 0.811, "rte": 0.572},
}
# Points of the curve that are kept.
_POINTS = 200


def cells(setting: Setting) -> list[Cell]:
    """What comes first makes what comes later possible."""
    scores = [
        Cell(f"{task}, {start}, seed {seed}", {"what": "glue", "task": task, "start": start, "seed": seed}, 20)
        for task in setting.pick(TASKS, ("sst2",))
        for seed in setting.pick(SEEDS, (0,))
        for start in STARTS
    ]
    return [
        Cell("vocabulary and shards", {"what": "shards"}, 120),
        Cell("training", {"what": "training"}, 120),
        Cell("held-out", {"what": "held_out"}, 20),
        Cell("export", {"what": "export"}, 10),
        *scores,
    ]


def measure(setting: Setting, seconds: float, what: str, **options: Any) -> dict[str, Any]:
    """One cell."""
    if what == "shards":
        return shards(setting)
    if what == "training":
        return training(setting, seconds)
    if not (_folder(setting) / "model" / "model.safetensors").exists():
        raise Absent("the training is not finished")
    return {"held_out": held_out, "export": export, "glue": glue}[what](setting, **options)


def _folder(setting: Setting) -> Path:
    return setting.state / f"{'toy-' * setting.miniature}kbert-mini"


# --- Text --------------------------------------------------------------------------------------------------------


def _corpora(setting: Setting) -> tuple[Any, Any]:
    """Text to train on, and documents that are kept from it."""
    from kbert.pretraining import Corpus

    # Lines as they are: nothing here pairs sentences, and the package that finds them may not be installed.
    files = wiki_files(setting)
    if not files:
        if not setting.miniature:
            raise Absent("there is no wiki_en in the folder of KBERT_DATA")
        made = list(itertools.islice(_documents(setting, _Words()), 60))
        return Corpus(made[10:], split="lines"), Corpus(made[:10], split="lines")
    last = Corpus(files[-1], split="lines")
    kept = list(itertools.islice(last, HELD_OUT_DOCUMENTS))
    if len(files) == 1:
        return Corpus(list(itertools.islice(last, HELD_OUT_DOCUMENTS, None)), split="lines"), Corpus(kept)
    return Corpus(files[:-1], split="lines"), Corpus(kept)


class _Words:
    """Stands in for a tokenizer where text is made up, before there is one."""

    def __init__(self) -> None:
        from gpu_stages.texts import made_words

        self.vocab = made_words(200)


def shards(setting: Setting) -> dict[str, Any]:
    """The vocabulary, unless it is there already, and the tokens of all text."""
    from kbert import WordPieceTokenizer
    from kbert.pretraining import write_shards

    folder, (training, kept) = _folder(setting), _corpora(setting)
    start = time.perf_counter()
    if not (folder / "vocabulary" / "vocab.txt").exists():
        read = itertools.islice(training, 0, None, setting.pick(_VOCABULARY_STRIDE, 1))
        segments = (segment for document in read for segment in document)
        WordPieceTokenizer.train(segments, vocab_size=setting.pick(PIECES, 150)).save(folder / "vocabulary")
    tokenizer = WordPieceTokenizer.from_pretrained(folder / "vocabulary")
    vocabulary_s = time.perf_counter() - start
    written = write_shards(training, tokenizer, folder / "shards", n_jobs=setting.pick(-1, 1))
    write_shards(kept, tokenizer, folder / "held-out")
    counts = {name: written.manifest[name] for name in ("documents", "tokens")}
    seconds = time.perf_counter() - start - vocabulary_s
    return {**counts, "pieces": tokenizer.vocab_size, "vocabulary_s": vocabulary_s, "shards_s": seconds}


# --- Training ----------------------------------------------------------------------------------------------------


def new_run(setting: Setting, on_step_end: Any = None) -> Any:
    """The run of pre-training, which goes on from its newest checkpoint."""
    import dataclasses

    from kbert import BertConfig, BertForPreTraining
    from kbert.pretraining import Pretraining, PretrainingOptions, Shards
    from kbert.pretraining.output_bias import start_at_frequencies
    from kbert.training.precision import dtype_policy

    folder = _folder(setting)
    text, kept = Shards(folder / "shards"), Shards(folder / "held-out")
    size = BertConfig.from_size("mini")
    if setting.miniature:
        size = dataclasses.replace(size, hidden_size=32, intermediate_size=64, max_position_embeddings=32)
    config = dataclasses.replace(size, vocab_size=text.tokenizer.vocab_size).with_dropout(0.0)
    model = BertForPreTraining(config, nsp=False, dtype=dtype_policy("auto"), seed=0)
    start_at_frequencies(model, text)
    options = PretrainingOptions(
        max_seconds=60 * setting.minutes,
        phases=setting.pick(PHASES, ((16, 1.0),)),
        batch_size=setting.pick(BATCH_SIZE, 4),
        learning_rate=RATE,
        mask_rate=MASK_RATE,
        held_out_mask_rate=0.15,
        evaluate_every=setting.pick(2000, 50),
        checkpoint_every=setting.pick(5000, 50),
    )
    return Pretraining(model, text.tokenizer, text, options, kept[0], folder / "run", on_step_end, distribution=None)


def training(setting: Setting, seconds: float) -> dict[str, Any]:
    """Train to the end of the minutes, or of this piece."""
    folder = _folder(setting)
    if not (folder / "shards" / "manifest.json").exists():
        raise Absent("there are no token shards yet")
    if (seen := _minutes_so_far(setting)) is not None and seen != setting.minutes:
        raise ValueError(
            f"The run was begun with --minutes {seen:g}, on which its learning rates depend. Give the same, or another "
            "--state for another run."
        )
    # A tenth is left for the last checkpoint, and for compiling the first step.
    end = time.perf_counter() + 0.9 * seconds

    def stop_in_time(step: int) -> None:
        if time.perf_counter() > end:
            # Pre-training then writes a checkpoint after its next update, as if it had been stopped from outside.
            signal.raise_signal(signal.SIGINT)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    run, is_finished = new_run(setting, stop_in_time), False
    try:
        history = run.run()
        is_finished = True
    except KeyboardInterrupt:
        if time.perf_counter() <= end:  # somebody else's
            raise
        history = None
    finally:
        signal.signal(signal.SIGINT, before)
    values = {
        "updates": run.step,
        "tokens": run.tokens,
        "minutes": run.seconds / 60,
        "minutes_in_all": setting.minutes,
        "tokens_s": run.tokens / run.seconds,
    }
    if not is_finished:
        return {"unfinished": True, **values}
    # The model first: a folder with its weights says that training is finished.
    run.tokenizer.save(folder / "model")
    run.model.save_pretrained(folder / "model")
    chosen = np.unique(np.linspace(0, len(history) - 1, _POINTS).astype(int))
    curve = history.iloc[chosen][["step", "tokens", "seconds", "mlm_loss"]]
    return {
        **values,
        "curve": curve.round(4).to_numpy().tolist(),
        "held_out_curve": history[["step", "val_mlm_loss"]].dropna().round(4).to_numpy().tolist(),
    }


def _minutes_so_far(setting: Setting) -> float | None:
    """What ``--minutes`` were when the run was begun."""
    results = Results(setting.out, "kbert-mini", setting.backend, setting.miniature)
    found = [line["minutes_in_all"] for line in results.lines() if "minutes_in_all" in line]
    return found[-1] if found else None


# --- What it is worth --------------------------------------------------------------------------------------------


def _examples() -> None:
    """Let the examples be imported: they have the scores of GLUE and the random start."""
    folder = str(Path(__file__).resolve().parents[2] / "examples")
    if folder not in sys.path:
        sys.path.append(folder)


def held_out(setting: Setting) -> dict[str, Any]:
    """The masked-LM loss on the documents that were kept."""
    _examples()
    import pretrain  # the example

    from kbert import BertForPreTraining
    from kbert.pretraining import Shards
    from kbert.pretraining.evaluation import held_out_batches, held_out_scores
    from kbert.pretraining.masking import Masking

    folder = _folder(setting)
    model = BertForPreTraining.from_pretrained(folder / "model", nsp=False)
    text, kept = Shards(folder / "shards"), Shards(folder / "held-out")[0]
    masking, length = Masking(text.tokenizer, 0.15), setting.pick(HELD_OUT_LENGTH, 16)
    scores = held_out_scores(model, text.tokenizer, kept, masking, 64, length)
    batches = held_out_batches(text.tokenizer, kept, masking, 64, length, nsp=False)
    return {**scores, "loss_of_frequencies": pretrain.unigram_loss(batches, text), "length": length}


def export(setting: Setting) -> dict[str, Any]:
    """A folder with the weights as float16, small enough for a package; it is written beside the results."""
    from kbert import BertForPreTraining, WordPieceTokenizer
    from kbert.weights import save_pretraining

    folder = setting.out / f"{'toy-' * setting.miniature}kbert-mini"
    shutil.rmtree(folder, ignore_errors=True)
    model = BertForPreTraining.from_pretrained(_folder(setting) / "model", nsp=False)
    save_pretraining(model, folder, dtype="float16")
    WordPieceTokenizer.from_pretrained(_folder(setting) / "model").save(folder)
    sizes = {path.name: path.stat().st_size for path in folder.iterdir()}
    return {"mb": sum(sizes.values()) / 1e6, "parameters": model.count_params(), "files": sizes}


def glue(setting: Setting, task: str, start: str, seed: int) -> dict[str, Any]:
    """A task's scores on dev."""
    if setting.data is None or not (setting.data / task).is_dir():
        raise Absent(f"there is no {task} in the folder of KBERT_DATA")
    _examples()
    import glue as example
    import pretrain

    from kbert import BertClassifier, BertRegressor

    model = _folder(setting) / "model"
    folder = model if start == "pre-trained" else pretrain.random_start(model, seed)
    texts, labels = example.load(task, "train", setting.pick(None, 64))
    estimator = (BertRegressor if task == "stsb" else BertClassifier).paper(
        weights=folder, max_length=setting.pick(128, 16), random_state=seed, **setting.pick(FINE_TUNING, {"epochs": 1})
    )
    estimator.fit(texts, labels)
    scores = example.dev_scores(task, estimator.predict, *example.load(task, "dev", setting.pick(None, 32)))
    metric = example.TASKS[task].metrics[0]
    published = {f"published_test_{size}": PUBLISHED_TEST[size].get(task) for size in PUBLISHED_TEST}
    published["published_metric"] = "f1" if task == "mrpc" else metric
    return {"metric": metric, "score": scores[metric], **scores, "rows": len(texts), **published}
