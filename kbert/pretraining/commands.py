"""The commands of pre-training, for `kbert.cli`: ``vocab``, ``shards`` and ``pretrain``.

Keras is imported when ``pretrain`` runs, since the help needs none of it.
"""

from __future__ import annotations

import shlex
import sys
import time
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tqdm import tqdm

from kbert.pretraining.command_options import (
    CORPUS_DEFAULTS,
    add_pretrain_options,
    add_shards_options,
    add_vocab_options,
)
from kbert.pretraining.command_run import folder_or_name, new_run, with_recipe, words_not_in
from kbert.pretraining.corpus import Corpus
from kbert.pretraining.examples import N_SHOWN, print_batch, print_drawn, print_pieces
from kbert.pretraining.instances import warn_of_unknown
from kbert.pretraining.run_folder import note_source, save_finished
from kbert.pretraining.shards import MANIFEST, Shards, require_no_other_files, write_shards
from kbert.text import WordPieceTokenizer
from kbert.values.printable import printable


class VocabCommand:
    """Learn a WordPiece vocabulary from text, into a tokenizer folder. The same text always gives the same files.

    With --weights and --new-words it is the vocabulary of released weights, whose unused tokens new words replace.
    """

    name = "vocab"
    summary = "learn a WordPiece vocabulary from text"
    example = "kbert vocab wikipedia/ --out vocab"
    required = ("source", "out")
    either = tuple(("weights", name) for name in ("vocab_size", "cased", "strip_accents", "min_frequency", "unused"))
    if_interrupted = "The same call starts again."
    add_options = staticmethod(add_vocab_options)

    def run(self, options: Namespace) -> None:
        """Learn the vocabulary, write it, and show examples."""
        out = options.out
        if (out / "config.json").exists():
            raise ValueError(f"{out} holds a model, whose vocabulary would be replaced. Give another folder.")
        if (options.weights is None) != (options.new_words is None):
            raise ValueError("--weights and --new-words go together: new words for the vocabulary of weights.")
        corpus = _corpus(options)
        out.mkdir(parents=True, exist_ok=True)  # now, as reading may take hours
        counts = {"documents": 0, "segments": 0, "words": 0}
        first: list[str] = []
        hidden = options.quiet or sys.stderr is None
        began = time.perf_counter()

        def segments() -> Iterator[str]:
            for document in tqdm(corpus, unit="document", desc="vocab", dynamic_ncols=True, disable=hidden):
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
            print(f"{len(new_words):,} new words: {printable(shown)}" if new_words else "no new words")
        # The shards have to be of the same segments.
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
        """Write the shards, and show examples."""
        out = options.out
        corpus, tokenizer = _corpus(options), WordPieceTokenizer.from_pretrained(folder_or_name(options.tokenizer))
        was_complete = (out / MANIFEST).exists()
        was_begun = out.is_dir() and any(out.iterdir())
        began = time.perf_counter()
        shards = write_shards(corpus, tokenizer, out, n_jobs=options.jobs, verbose=not options.quiet)
        seconds = time.perf_counter() - began
        warn_of_unknown(shards, tokenizer, "the text")
        print_drawn(shards)
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
        print(f"next: {shlex.join(['kbert', 'pretrain', str(out)])} --size tiny --max-steps 10000 --out MODEL")


class PretrainCommand:
    """Pre-train BERT on token shards, from scratch or on from weights, into a weights folder.

    Checkpoints are written into OUT/run, and the same call goes on from the last of them. At the end of the budget the
    model, its tokenizer and history.csv are in OUT, a folder that every estimator takes as weights=.
    """

    name = "pretrain"
    summary = "pre-train BERT on token shards"
    example = "kbert pretrain shards --out model --size tiny --max-seconds 3600"
    required = ("shards", "out")
    either = (("max_steps", "max_seconds"), ("size", "model_config", "weights"))
    if_interrupted = "The same call goes on from the last checkpoint."
    add_options = staticmethod(add_pretrain_options)

    def run(self, options: Namespace) -> None:
        """Train to the end of the budget."""
        out, options = options.out, with_recipe(options)
        if options.max_steps is None and options.max_seconds is None:
            raise ValueError("how long? Give --max-steps or --max-seconds; or --paper, which makes a million updates.")
        _require_own_folder(out)
        shards = Shards(options.shards, verify=True)
        if options.nsp and (too_few := _too_few_documents(shards)):
            raise ValueError(f"{too_few}. Leave --nsp out (--no-nsp), or write shards of more documents.")
        run = new_run(options, shards)
        note_source(out / "run", shards)
        was_finished = (out / "config.json").exists()

        if not was_finished and any((out / "run").glob("checkpoint-*")):
            print(f"goes on from the last checkpoint in {out / 'run'}")
        # The first of all, also where the run goes on from a later one.
        print_batch(run.first_batch(), shards.tokenizer, options.nsp)
        n_tokens = shards.manifest["tokens"]
        print(f"\n{run.model.count_params():,} parameters, {n_tokens:,} tokens of text", flush=True)
        history = run.run()
        save_finished(run, history, out)

        speed = run.tokens / max(run.seconds, 1e-9)
        print(f"\n{run.step:,} steps, {run.tokens:,} tokens in {_time(run.seconds)}, {speed:,.0f} tokens/s")
        _print_scores("last steps", history.tail(max(1, len(history) // 20)))
        _print_scores("held-out text", history.tail(1), "val_")
        print(f"the model is in {out}, with its tokenizer and history.csv; checkpoints are in {out / 'run'}")
        print(f'next, in Python: BertClassifier(weights="{out}").fit(texts, labels)')


COMMANDS = (VocabCommand(), ShardsCommand(), PretrainCommand())


# --- From options to objects


def _require_own_folder(out: Path) -> None:
    """Raise where a folder holds other files than those of a run, which might be replaced."""
    if (out / "run").is_dir() or not out.is_dir():
        return
    if (out / "config.json").exists():
        raise ValueError(f"{out} holds another model, which would be replaced. Give another folder.")
    require_no_other_files(out)


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

    before = WordPieceTokenizer.from_pretrained(folder_or_name(options.weights))
    if isinstance(options.new_words, Path):
        try:
            listed = options.new_words.read_text(encoding="utf-8").split("\n")
        except UnicodeDecodeError as error:
            raise ValueError(f"--new-words: {options.new_words} is not UTF-8 text ({error}).") from None
        after = before.with_words([word.strip() for word in listed if word.strip()])
    else:
        after = add_new_words(before, options.new_words, segments)
    # The text is read in any case, for the counts and the examples.
    for _ in segments:
        pass
    return after, words_not_in(before, after)


def _too_few_documents(shards: Shards) -> str:
    """A message if there is no shard with text of another document; else an empty text."""
    if any(shard["documents"] > 1 for shard in shards.manifest["shards"]):
        return ""
    which = "The shard has" if len(shards) == 1 else f"Each of the {len(shards)} shards has"
    return f"{which} one document only, and the next sentence wants two"


# --- Printing numbers


def _print_scores(where: str, rows: Any, prefix: str = "") -> None:
    """Print the mean losses and accuracies of some lines of the history, as far as they have them."""
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
