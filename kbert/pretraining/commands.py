"""The commands of pre-training, for `kbert.cli`: ``vocab``, ``shards`` and ``pretrain``.

Keras is imported when ``pretrain`` runs, since the help needs none of it.
"""

from __future__ import annotations

import json
import shlex
import shutil
import time
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tqdm.auto import tqdm

from kbert.config import BertConfig
from kbert.hub import resolve_folder
from kbert.json_files import json_object
from kbert.learning_rates import default_pretraining_rate
from kbert.pretraining.command_options import (
    CORPUS_DEFAULTS,
    add_pretrain_options,
    add_shards_options,
    add_vocab_options,
)
from kbert.pretraining.corpus import Corpus
from kbert.pretraining.examples import N_SHOWN, print_batch, print_drawn, print_pieces
from kbert.pretraining.instances import Documents
from kbert.pretraining.options import PretrainingOptions
from kbert.pretraining.shards import MANIFEST, Shards, tokenised, vocabulary_hash, write_shards
from kbert.text import WordPieceTokenizer

if TYPE_CHECKING:
    from kbert.pretraining.trainer import Pretraining


class VocabCommand:
    """Learn a WordPiece vocabulary from text, into a tokenizer folder. The same text always gives the same files.

    With --weights and --new-words it is the vocabulary of released weights, in whose unused places new words stand.
    """

    name = "vocab"
    summary = "learn a WordPiece vocabulary from text"
    example = "kbert vocab wikipedia/ --out vocab"
    required = ("source", "out")
    either = tuple(("weights", name) for name in ("vocab_size", "cased", "strip_accents", "min_frequency", "unused"))
    if_interrupted = "The same call starts again."
    add_options = staticmethod(add_vocab_options)

    def run(self, options: Namespace) -> None:
        """Learn it."""
        out = options.out
        if (out / "config.json").exists():
            raise ValueError(f"{out} holds a model, whose vocabulary would be replaced. Give another folder.")
        if (options.weights is None) != (options.new_words is None):
            raise ValueError("--weights and --new-words go together: new words for the vocabulary of weights.")
        corpus = _corpus(options)
        out.mkdir(parents=True, exist_ok=True)  # now, as reading may take hours
        counts = {"documents": 0, "segments": 0, "words": 0}
        first: list[str] = []
        began = time.perf_counter()

        def segments() -> Iterator[str]:
            for document in tqdm(corpus, unit="document", desc="vocab", dynamic_ncols=True, disable=options.quiet):
                counts["documents"] += 1
                for segment in document:
                    counts["segments"] += 1
                    counts["words"] += len(segment.split())
                    if len(first) < N_SHOWN:
                        first.append(segment)
                    yield segment

        tokenizer, new_words = _vocabulary(options, segments())
        tokenizer.save(out)
        seconds = time.perf_counter() - began
        print_pieces(first, tokenizer)
        print(f"\n{tokenizer.vocab_size:,} pieces from {_counted(counts)}")
        print(f"in {_time(seconds)}, {counts['words'] / seconds:,.0f} words/s; the tokenizer is in {out}")
        if options.weights is not None:
            shown = ", ".join(new_words[:N_SHOWN]) + (", ..." if len(new_words) > N_SHOWN else "")
            print(f"{len(new_words):,} new words: {shown}" if new_words else "no new words")
        # Segments are to be the same.
        chosen = {name: getattr(options, name) for name in CORPUS_DEFAULTS}
        same = [f"--{name}={value}" for name, value in chosen.items() if value != CORPUS_DEFAULTS[name]]
        print(f"next: {shlex.join(['kbert', 'shards', *options.source, '--tokenizer', str(out), *same])} --out SHARDS")


class ShardsCommand:
    """Write a corpus as token shards, which `kbert pretrain` reads.

    Work that was stopped goes on when the same call is made again. The files are the same for any number of processes.
    """

    name = "shards"
    summary = "write a corpus as token shards"
    example = "kbert shards wikipedia/ --tokenizer vocab --out shards --jobs -1"
    required = ("source", "tokenizer", "out")
    either = ()
    if_interrupted = "The same call goes on with what is not finished."
    add_options = staticmethod(add_shards_options)

    def run(self, options: Namespace) -> None:
        """Write them."""
        out = options.out
        corpus, tokenizer = _corpus(options), WordPieceTokenizer.from_pretrained(_folder_or_name(options.tokenizer))
        was_complete = (out / MANIFEST).exists()
        was_begun = out.is_dir() and any(out.iterdir())
        began = time.perf_counter()
        shards = write_shards(corpus, tokenizer, out, n_jobs=options.jobs, verbose=not options.quiet)
        seconds = time.perf_counter() - began
        too_few = _too_few_documents(shards)
        print_drawn(shards, nsp=not too_few)
        facts = shards.manifest
        n_bytes = sum(file["bytes"] for shard in facts["shards"] for file in shard["files"].values())
        print(f"\n{_counted({name: facts[name] for name in ('documents', 'segments', 'tokens')})}", end="")
        print(f" in {_counted({'shards': len(shards)})} of {n_bytes / 1e6:,.1f} MB")
        if was_complete:
            print(f"complete already; the shards are in {out}")
        elif was_begun:  # how long the first part took is not known
            print(f"the rest in {_time(seconds)}; the shards are in {out}")
        else:
            print(f"in {_time(seconds)}, {facts['tokens'] / seconds:,.0f} tokens/s; the shards are in {out}")
        if too_few:
            print(f"{too_few}: pre-train with --no-nsp, or write shards of more documents.")
        call = shlex.join(["kbert", "pretrain", str(out), *["--no-nsp"] * bool(too_few)])
        print(f"next: {call} --size tiny --max-steps 10000 --out MODEL")


class PretrainCommand:
    """Pre-train BERT on token shards, from scratch or on from weights, into a weights folder.

    Checkpoints are written into OUT/run, and the same call goes on from the last of them. At the end of the budget the
    model, its tokenizer and history.csv are in OUT, a folder that every estimator takes as weights=.
    """

    name = "pretrain"
    summary = "pre-train BERT on token shards"
    example = "kbert pretrain shards --out model --max-steps 100000 --phases 128:0.9,512:0.1"
    required = ("shards", "out")
    either = (("max_steps", "max_seconds"), ("size", "model_config", "weights"))
    if_interrupted = "The same call goes on from the last checkpoint."
    add_options = staticmethod(add_pretrain_options)

    def run(self, options: Namespace) -> None:
        """Train to the end of the budget."""
        out = options.out
        if options.max_steps is None and options.max_seconds is None:
            raise ValueError("how long? Give --max-steps or --max-seconds.")
        if (out / "config.json").exists() and not (out / "run").is_dir():
            raise ValueError(f"{out} holds another model, which would be replaced. Give another folder.")
        shards = Shards(options.shards)
        if options.nsp and (too_few := _too_few_documents(shards)):
            raise ValueError(f"{too_few}. Give --no-nsp, or write shards of more documents.")
        run = _prepared(options, shards)
        _remember(out / "run", shards, options.weights)

        # The first of all, also where the run goes on from a later one.
        print_batch(run.first_batch(), shards.tokenizer, options.nsp)
        n_tokens = shards.manifest["tokens"]
        print(f"\n{run.model.count_params():,} parameters, {n_tokens:,} tokens of text", flush=True)
        history = run.run()
        _save(run, history, out)

        speed = run.tokens / max(run.seconds, 1e-9)
        print(f"\n{run.step:,} steps, {run.tokens:,} tokens in {_time(run.seconds)}, {speed:,.0f} tokens/s")
        _print_scores("last steps", history.tail(max(1, len(history) // 20)))
        _print_scores("held-out text", history.tail(1), "val_")
        print(f"the model is in {out}, with its tokenizer and history.csv; checkpoints are in {out / 'run'}")
        print(f'next, in Python: BertClassifier(weights="{out}").fit(texts, labels)')


COMMANDS = (VocabCommand(), ShardsCommand(), PretrainCommand())


# --- What the options stand for


def _corpus(options: Namespace) -> Corpus:
    sources = [Path(source) for source in options.source]
    return Corpus(sources, **{name: getattr(options, name) for name in CORPUS_DEFAULTS})


def _vocabulary(options: Namespace, segments: Iterator[str]) -> tuple[WordPieceTokenizer, list[str]]:
    """The tokenizer that `kbert vocab` writes, and the words that are new in it where it is of weights."""
    if options.weights is None:
        tokenizer = WordPieceTokenizer.train(
            segments,
            vocab_size=options.vocab_size,
            lowercase=not options.cased,
            strip_accents=options.strip_accents,
            min_frequency=options.min_frequency,
            n_unused=options.unused,
        )
        return tokenizer, []
    from kbert.pretraining.new_words import add_new_words

    before = WordPieceTokenizer.from_pretrained(_folder_or_name(options.weights))
    if isinstance(options.new_words, Path):
        listed = options.new_words.read_text(encoding="utf-8").split("\n")
        after = before.with_words([word.strip() for word in listed if word.strip()])
        # Read all the same, for the counts and the examples.
        for _ in segments:
            pass
    else:
        after = add_new_words(before, options.new_words, segments)
    return after, _words_besides(before, after)


def _words_besides(before: WordPieceTokenizer, after: WordPieceTokenizer) -> list[str]:
    """The words of a vocabulary that another one has not, in the order of their ids."""
    return sorted(after.vocab.keys() - before.vocab.keys(), key=after.vocab.get)


def _folder_or_name(name: str) -> str | Path:
    """A folder that is there is meant as one, also where it is called like a size."""
    folder = Path(name).expanduser()
    return folder if folder.is_dir() else name


def _prepared(options: Namespace, shards: Shards) -> Pretraining:
    """The run, before its first step."""
    from kbert.model import BertForPreTraining
    from kbert.model.encoder import skip_initialisation
    from kbert.pretraining.new_words import start_new_words
    from kbert.pretraining.trainer import Pretraining
    from kbert.training.precision import dtype_policy
    from kbert.weights import load_pretraining_weights, read_checkpoint

    weights = None if options.weights is None else resolve_folder(_folder_or_name(options.weights))
    of_weights = None if weights is None else WordPieceTokenizer.from_pretrained(weights)
    config = _architecture(options, weights, of_weights, shards.tokenizer).with_dropout(options.dropout)
    held_out = None if options.held_out is None else _held_out(options, shards.tokenizer)
    arrays = None if weights is None else read_checkpoint(weights)[1]
    with skip_initialisation(weights is not None):
        model = BertForPreTraining(config, options.nsp, dtype=dtype_policy(options.dtype), seed=options.seed)
    if weights is not None:
        load_pretraining_weights(model, weights, arrays)
        start_new_words(model, of_weights, shards.tokenizer)
    settings = _pretraining_options(options, config)
    return Pretraining(model, shards.tokenizer, shards, settings, held_out, options.out / "run")


def _pretraining_options(options: Namespace, config: BertConfig) -> PretrainingOptions:
    rate = options.learning_rate
    same = (
        "max_steps", "max_seconds", "phases", "batch_size", "warmup", "weight_decay", "optimizer", "mask_rate",
        "whole_word", "fixed", "seed", "evaluate_every", "checkpoint_every",
        "tensorboard",
    )  # fmt: skip
    return PretrainingOptions(
        **{name: getattr(options, name) for name in same},
        gradient_accumulation=options.accumulation,
        learning_rate=default_pretraining_rate(config, options.weights is not None) if rate == "auto" else rate,
        verbose=not options.quiet,
    )


def _architecture(
    options: Namespace,
    weights: Path | None,
    of_weights: WordPieceTokenizer | None,
    tokenizer: WordPieceTokenizer,
) -> BertConfig:
    n_pieces = tokenizer.vocab_size
    if weights is not None:
        if not _is_of_weights(tokenizer, of_weights):
            raise ValueError(
                f"{options.weights} has another vocabulary than the shards. Write shards with --tokenizer "
                f"{options.weights}, or with one of `kbert vocab --weights {options.weights}`."
            )
        return BertConfig.from_folder(weights)
    if options.model_config is None:
        return BertConfig.from_dict({**BertConfig.from_size(options.size or "base").to_dict(), "vocab_size": n_pieces})
    path = options.model_config
    config = BertConfig.from_dict({"vocab_size": n_pieces, **json_object(path)})
    if config.vocab_size < n_pieces:
        raise ValueError(
            f"{path}: vocab_size is {config.vocab_size}, and the vocabulary of the shards has {n_pieces} pieces. Leave "
            "vocab_size out, or make it at least as many."
        )
    return config


def _is_of_weights(tokenizer: WordPieceTokenizer, of_weights: WordPieceTokenizer) -> bool:
    """Whether a vocabulary is that of weights, but for new words in its unused places."""
    try:
        with_words = of_weights.with_words(_words_besides(of_weights, tokenizer))
    except ValueError:  # more words than places
        return False
    return vocabulary_hash(with_words) == vocabulary_hash(tokenizer)


def _held_out(options: Namespace, tokenizer: WordPieceTokenizer) -> Documents:
    path = options.held_out
    if (path / MANIFEST).exists():
        elements = Shards(path)
        if vocabulary_hash(elements.tokenizer) != vocabulary_hash(tokenizer):
            raise ValueError(f"--held-out: {path} has another vocabulary than the shards. Write it with the same one.")
    else:
        elements = tokenised(Corpus(path), tokenizer)
    if len(elements) > 1:
        raise ValueError(f"--held-out: {path} is more than one shard. Give less text.")
    if options.nsp and len(elements[0]) < 2:
        raise ValueError(f"--held-out: {path} is one document, and next sentences are drawn from two at least.")
    return elements[0]


def _too_few_documents(shards: Shards) -> str:
    """What is to be said where no pairs can be drawn from some shard; else nothing."""
    n = sum(shard["documents"] < 2 for shard in shards.manifest["shards"])
    holds = "holds" if n == 1 else "hold"
    return f"{n} of {len(shards)} shards {holds} one document only, and the next sentence wants two" if n else ""


# --- What is kept


def _remember(folder: Path, shards: Shards, weights: str | None) -> None:
    """Note what a run trains on, which its checkpoints do not say, or check that it is what it was.

    Raises
    ------
    ValueError
        If it is not.
    """
    if weights is not None and isinstance(_folder_or_name(weights), Path):
        weights = str(Path(weights).expanduser().resolve())
    facts = {"text": shards.manifest["corpus"], "vocabulary": shards.manifest["vocabulary"], "weights": weights}
    path = folder / "source.json"
    # Without a checkpoint nothing has been trained.
    if path.exists() and any(folder.glob("checkpoint-*")):
        before = json.loads(path.read_text(encoding="utf-8"))
        different = [name for name in facts if before.get(name) != facts[name]]
        if different:
            raise ValueError(
                f"{folder} holds a run with other {' and '.join(different)}. Give another folder for another run."
            )
        return
    folder.mkdir(parents=True, exist_ok=True)
    written = path.with_suffix(".part")
    written.write_text(json.dumps(facts, indent=1), encoding="utf-8")
    written.replace(path)


def _save(run: Pretraining, history: Any, out: Path) -> None:
    """Write the weights folder: aside first, so that a kill leaves no half of a file."""
    from kbert.weights import save_pretraining

    aside = out / "run" / "finished"
    shutil.rmtree(aside, ignore_errors=True)
    save_pretraining(run.model, aside)
    run.tokenizer.save(aside)
    history.to_csv(aside / "history.csv", index=False)
    # config.json last, since it is what makes a folder that of a model.
    for path in sorted(aside.iterdir(), key=lambda path: path.name == "config.json"):
        path.replace(out / path.name)
    aside.rmdir()


# --- Numbers


def _print_scores(where: str, rows: Any, prefix: str = "") -> None:
    """The means of some rows of the history, where they have such."""
    parts = [
        f"{task} loss {rows[f'{prefix}{name}_loss'].mean():.3f}, accuracy {rows[f'{prefix}{name}_accuracy'].mean():.3f}"
        for task, name in (("masked LM", "mlm"), ("next sentence", "nsp"))
        # Without the task the losses of training are 0.
        if f"{prefix}{name}_loss" in rows and rows[f"{prefix}{name}_loss"].any()
    ]
    if parts:
        print(f"{where}: {'; '.join(parts)}")


def _counted(counts: dict[str, int]) -> str:
    return ", ".join(f"{n:,} {name if n != 1 else name.removesuffix('s')}" for name, n in counts.items())


def _time(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.1f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
