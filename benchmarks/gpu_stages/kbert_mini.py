"""A small BERT of kbert's own: vocabulary, pre-training in pieces, held-out loss, and GLUE beside a random start.

Four layers, hidden size 256. It is trained on the Wikipedia text in KBERT_DATA/wiki_en, but for the first documents of
the last file, for ``--minutes`` in all. A run of this stage trains a piece of at most eight minutes, and leaves a
checkpoint in the state folder, from which the next run goes on, and a smaller one beside the results, for another
machine. When training is finished, the model is beside the results in float16, and the cells after it follow:

    held-out            masked-LM loss in nats under masks of 15%, and that of who knows only the pieces' frequencies;
                        the same by character, to compare with models of another vocabulary
    TASK, START, SEED   GLUE's scores on dev, from the model and from random weights

What a later cell needs of an earlier one and is not in the state folder is made again, so that the machine may be
another one each time. The published scores of Google's models of this and the smallest size are on GLUE's test sets,
ours on dev.
"""

from __future__ import annotations

import itertools
import signal
import tempfile
import time
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from gpu_stages import carried
from gpu_stages.pretrain import _documents, wiki_files
from gpu_stages.records import Results
from gpu_stages.setting import Absent, Cell, Setting, examples_can_be_imported

# Rows of 128 tokens for most of the time, and masks of 40% without dropout, as `kbert.pretraining.recipe` has it from
# scratch; larger batches than there, for a GPU. None of this has been tuned on one yet.
PIECES = 16_000
PHASES = ((128, 0.9), (512, 0.1))
BATCH_SIZE, RATE, MASK_RATE = 256, 1e-3, 0.4
HELD_OUT_DOCUMENTS, HELD_OUT_LENGTH = 50, 128
# Documents of which the vocabulary is learned, one in so many.
_VOCABULARY_STRIDE = 4

TASKS = ("sst2", "cola", "mrpc", "stsb", "rte", "qnli", "qqp")
SEEDS = (0, 1, 2)
STARTS = ("pre-trained", "random start")
# Of fine-tuning: the highest of the rates that Turc et al. (2019) tried, and their epochs.
FINE_TUNING = {"epochs": 4, "learning_rate": 3e-4, "dropout": 0.1}
# GLUE test, from github.com/google-research/bert, by the first metric of each task in examples/glue.py.
PUBLISHED_TEST = {
    "mini": {"sst2": 0.859, "cola": 0.0, "mrpc": 0.718, "stsb": 0.754, "rte": 0.579, "qnli": 0.841, "qqp": 0.862},
    "tiny": {"sst2": 0.832, "cola": 0.0, "mrpc": 0.711, "stsb": 0.743, "rte": 0.572, "qnli": 0.815, "qqp": 0.834},
}
# Of a piece of training, for ending it.
_KEPT_SECONDS = 45
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
        Cell("vocabulary", {"what": "vocabulary"}, 90 if setting.vocabulary is None else 0),
        Cell("shards", {"what": "shards"}, 60),
        Cell("training", {"what": "training"}, 120),
        Cell("held-out", {"what": "held_out"}, 20),
        *scores,
    ]


def measure(setting: Setting, seconds: float, what: str, **options: Any) -> dict[str, Any]:
    """One cell."""
    if what == "training":
        return training(setting, seconds)
    if what in ("vocabulary", "shards"):
        return {"vocabulary": vocabulary, "shards": shards}[what](setting)
    if not _model_is_here(setting):
        raise Absent("the training is not finished")
    return {"held_out": held_out, "glue": glue}[what](setting, **options)


def _folder(setting: Setting) -> Path:
    return setting.state / _name(setting)


def _name(setting: Setting) -> str:
    return f"{'toy-' * setting.miniature}kbert-mini"


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
    rest = _folder(setting) / f"rest-of-{files[-1].name.partition('.')[0]}.txt"
    if not rest.exists():
        rest.parent.mkdir(parents=True, exist_ok=True)
        written = rest.with_suffix(".part")
        with open(written, "w", encoding="utf-8") as file:
            file.writelines("\n".join(lines) + "\n\n" for lines in itertools.islice(last, HELD_OUT_DOCUMENTS, None))
        written.replace(rest)
    return Corpus([*files[:-1], rest], split="lines"), Corpus(kept)


class _Words:
    """Stands in for a tokenizer where text is made up, before there is one."""

    def __init__(self) -> None:
        from gpu_stages.texts import made_words

        self.vocab = made_words(200)


def vocabulary(setting: Setting) -> dict[str, Any]:
    """Learn the vocabulary, unless one was given or it is there already."""
    from kbert import WordPieceTokenizer

    folder, start = _vocabulary_folder(setting), time.perf_counter()
    if not (folder / "vocab.txt").exists():
        read = itertools.islice(_corpora(setting)[0], 0, None, setting.pick(_VOCABULARY_STRIDE, 1))
        segments = (segment for document in read for segment in document)
        WordPieceTokenizer.train(segments, vocab_size=setting.pick(PIECES, 150)).save(folder)
    pieces = WordPieceTokenizer.from_pretrained(folder).vocab_size
    return {"pieces": pieces, "given": setting.vocabulary is not None, "vocabulary_s": time.perf_counter() - start}


def _vocabulary_folder(setting: Setting) -> Path:
    return setting.vocabulary or _folder(setting) / "vocabulary"


def shards(setting: Setting) -> dict[str, Any]:
    """The tokens of all text. What is there already is not written again."""
    from kbert import WordPieceTokenizer
    from kbert.pretraining import write_shards

    folder, (text, kept) = _folder(setting), _corpora(setting)
    vocabulary(setting)
    tokenizer = WordPieceTokenizer.from_pretrained(_vocabulary_folder(setting))
    start = time.perf_counter()
    written = write_shards(text, tokenizer, folder / "shards", n_jobs=setting.pick(-1, 1))
    write_shards(kept, tokenizer, folder / "held-out")
    counts = {name: written.manifest[name] for name in ("documents", "tokens")}
    return {**counts, "files": len(wiki_files(setting)), "shards_s": time.perf_counter() - start}


# --- Training ----------------------------------------------------------------------------------------------------


def new_run(setting: Setting, on_step_end: Any = None) -> Any:
    """The run of pre-training, which goes on from its newest checkpoint."""
    import dataclasses

    from kbert import BertConfig, BertForPreTraining
    from kbert.pretraining import Pretraining, PretrainingOptions, Shards, start_at_frequencies
    from kbert.pretraining.checkpoints import dtype_of_run

    folder = _folder(setting)
    text, kept = Shards(folder / "shards"), Shards(folder / "held-out")
    size = BertConfig.from_size("mini")
    if setting.miniature:
        size = dataclasses.replace(size, hidden_size=32, intermediate_size=64, max_position_embeddings=32)
    config = dataclasses.replace(size, vocab_size=text.tokenizer.vocab_size).with_dropout(0.0)
    model = BertForPreTraining(config, nsp=False, dtype=dtype_of_run("auto", folder / "run"), seed=0)
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
    # Left for the last checkpoint, and for a step that is compiled when the time is nearly over.
    kept = max(setting.pick(_KEPT_SECONDS, 0), 0.1 * seconds)
    end, folder = time.perf_counter() + seconds - kept, _folder(setting)
    if (seen := _minutes_so_far(setting)) is not None and seen != setting.minutes:
        raise ValueError(
            f"The run was begun with --minutes {seen:g}, on which its learning rates depend. Give the same, or another "
            "--state for another run."
        )
    shards(setting)
    _take_up_checkpoint(setting)

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
        return {"unfinished": True, **values, "carried_mb": _carry_checkpoint(setting)}
    run.tokenizer.save(folder / "model")
    run.model.save_pretrained(folder / "model")  # last: it says that training is finished
    values |= _export(setting, run.model)
    carried.remove_pieces(setting.out, _name(setting))
    chosen = np.unique(np.linspace(0, len(history) - 1, _POINTS).astype(int))
    curve = history.iloc[chosen][["step", "tokens", "seconds", "mlm_loss"]]
    return {
        **values,
        "curve": curve.round(4).to_numpy().tolist(),
        "held_out_curve": history[["step", "val_mlm_loss"]].dropna().round(4).to_numpy().tolist(),
    }


def _carry_checkpoint(setting: Setting) -> float:
    """Write the newest checkpoint beside the results, for another machine; its size in MB."""
    from kbert.pretraining.checkpoints import read_checkpoint

    checkpoint = read_checkpoint(_folder(setting) / "run")
    content = carried.packed_checkpoint(checkpoint)
    carried.write_pieces(setting.out, _name(setting), checkpoint.facts["updater"]["updates"], content)
    return len(content) / 1e6


def _take_up_checkpoint(setting: Setting) -> None:
    """Take up the checkpoint that lies beside the results, unless the state folder has its own."""
    from kbert.training.checkpoint_folders import checkpoints_in, write_checkpoint

    run = _folder(setting) / "run"
    if checkpoints_in(run) or (found := carried.read_pieces(setting.out, _name(setting))) is None:
        return
    step, content = found
    checkpoint = carried.unpacked_checkpoint(content)
    write_checkpoint(run, step, checkpoint.files(), checkpoint.facts)


def _export(setting: Setting, model: Any) -> dict[str, Any]:
    """The model in float16 as one file beside the results, small enough for a package."""
    from kbert import WordPieceTokenizer
    from kbert.weights import save_pretraining

    with tempfile.TemporaryDirectory() as made:
        folder = Path(made, "model")
        save_pretraining(model, folder, dtype="float16")
        WordPieceTokenizer.from_pretrained(_folder(setting) / "model").save(folder)
        sizes = {path.name: path.stat().st_size for path in folder.iterdir()}
        content = carried.zipped(folder)
    (setting.out / f"{_name(setting)}.zip").write_bytes(content)
    return {"parameters": model.count_params(), "files": sizes, "zip_mb": len(content) / 1e6}


def _model_is_here(setting: Setting) -> bool:
    """Whether there is a trained model: in the state folder, or beside the results, from where it is taken then."""
    folder, exported = _folder(setting) / "model", setting.out / f"{_name(setting)}.zip"
    if not (folder / "model.safetensors").exists() and exported.exists():
        with zipfile.ZipFile(exported) as archive:
            archive.extractall(folder)
    return (folder / "model.safetensors").exists()


def _minutes_so_far(setting: Setting) -> float | None:
    """What ``--minutes`` were when the run was begun."""
    results = Results(setting.out, "kbert-mini", setting.backend, setting.miniature)
    found = [line["minutes_in_all"] for line in results.lines() if "minutes_in_all" in line]
    return found[-1] if found else None


# --- What it is worth --------------------------------------------------------------------------------------------


def held_out(setting: Setting) -> dict[str, Any]:
    """The masked-LM loss on the documents that were kept."""
    examples_can_be_imported()
    import pretrain  # the example

    from kbert import BertForPreTraining
    from kbert.pretraining import Shards
    from kbert.pretraining.evaluation import held_out_batches, held_out_scores
    from kbert.pretraining.masking import Masking

    folder = _folder(setting)
    shards(setting)
    model = BertForPreTraining.from_pretrained(folder / "model", nsp=False)
    text, kept = Shards(folder / "shards"), Shards(folder / "held-out")[0]
    masking, length = Masking(text.tokenizer, 0.15), setting.pick(HELD_OUT_LENGTH, 16)
    scores = held_out_scores(model, text.tokenizer, kept, masking, 64, length)
    batches = list(held_out_batches(text.tokenizer, kept, masking, 64, length, nsp=False))
    frequencies = pretrain.unigram_loss(batches, text)
    characters = characters_of_masked(batches, text.tokenizer)
    return {
        **scores,
        "loss_of_frequencies": frequencies,
        "characters_of_a_masked_piece": characters,
        "mlm_loss_of_a_character": scores["mlm_loss"] / characters,
        "loss_of_frequencies_of_a_character": frequencies / characters,
        "length": length,
    }


def characters_of_masked(batches: list[Any], tokenizer: Any) -> float:
    """The mean number of characters of the pieces that are to be guessed, without the ## of those inside a word."""
    lengths = np.array([len(piece.removeprefix("##")) for piece in tokenizer.vocab])
    return float(lengths[np.concatenate([batch.targets["mlm"][batch.weights["mlm"] > 0] for batch in batches])].mean())


def glue(setting: Setting, task: str, start: str, seed: int) -> dict[str, Any]:
    """A task's scores on dev."""
    if setting.data is None or not (setting.data / task).is_dir():
        raise Absent(f"there is no {task} in the folder of KBERT_DATA")
    examples_can_be_imported()
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
    return {"metric": metric, "score": scores[metric], **scores, "rows": len(texts), **published}
