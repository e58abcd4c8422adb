"""The options of the commands of pre-training: their declarations, and readers of their values."""

from __future__ import annotations

import re
from argparse import ArgumentParser, ArgumentTypeError, BooleanOptionalAction
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from kbert.model.names import LARGEST_SEED
from kbert.sizes import SIZES
from kbert.values.options import number, path, whole

# What `kbert.pretraining.Corpus` takes besides the source.
CORPUS_DEFAULTS = {"split": "sentences", "language": "en", "column": "text", "errors": "strict"}


def add_vocab_options(parser: ArgumentParser) -> None:
    """Declare the options of ``vocab``."""
    _add_source(parser)
    add = parser.add_argument
    add("--out", type=path, metavar="FOLDER", help="where the tokenizer is written")
    add("--vocab-size", type=whole(1), default=30522, metavar="N", help="most pieces (default: 30522)")
    _add_flag(parser, "--cased", False, "tell upper and lower case apart")
    _add_flag(parser, "--strip-accents", None, "letters with and without accents are the same; unless --cased they are")
    text = "how often two neighbouring pieces must occur to become one (default: 2)"
    add("--min-frequency", type=whole(1), default=2, metavar="N", help=text)
    text = "pieces [unused0] and so on, for words to be added later; bert-base-uncased has 994 (default: 0)"
    add("--unused", type=whole(0), default=0, metavar="N", help=text)
    add = parser.add_argument_group("instead of learning one, new words for one that is there").add_argument
    text = "a folder, a size or a name on the hub, whose vocabulary is taken; new words replace its unused tokens"
    add("--weights", metavar="NAME", help=text)
    text = "so many, the most frequent words of the text that are in pieces; or a file with a word in each line"
    add("--new-words", type=_number_or_path, metavar="N_OR_FILE", help=text)
    _add_corpus_options(parser)
    _add_quiet(parser)


def add_shards_options(parser: ArgumentParser) -> None:
    """Declare the options of ``shards``."""
    _add_source(parser)
    add = parser.add_argument
    add("--tokenizer", metavar="FOLDER", help="of `kbert vocab`; or a weights folder, or the name of weights")
    add("--out", type=path, metavar="FOLDER", help="where the shards are written")
    add("--jobs", type=_jobs, default=1, metavar="N", help="processes; -1 is one for each core (default: 1)")
    _add_corpus_options(parser)
    _add_quiet(parser)


def add_pretrain_options(parser: ArgumentParser) -> None:
    """Declare the options of ``pretrain``; the defaults are those of `kbert.BertPretrainer`.

    What follows the start and ``--paper`` is "auto" or None here. `kbert.pretraining.command_run` settles it.
    """
    parser.add_argument("shards", nargs="?", metavar="SHARDS", help="folder of `kbert shards`")
    parser.add_argument("--out", type=path, metavar="FOLDER", help="where the model is written")

    add = parser.add_argument_group("model, one of these (default: --size base)").add_argument
    add("--size", choices=tuple(SIZES), metavar="SIZE", help=f"from scratch: {', '.join(SIZES)}")
    add("--model-config", type=path, metavar="FILE.json", help="from scratch: an architecture as in config.json")
    text = "on from weights that have the vocabulary of the shards: a folder, a size, or a name on the hub"
    add("--weights", metavar="NAME", help=text)

    text = "the settings of the paper (Devlin et al., 2018, A.2) for all options that are not given"
    parser.add_argument("--paper", action="store_true", help=text)

    add = parser.add_argument_group("budget, one of these").add_argument
    add("--max-steps", type=whole(1), metavar="N", help="updates")
    text = "time to train; the learning rate follows the share of it that is used"
    add("--max-seconds", type=_over_0, metavar="S", help=text)

    task = parser.add_argument_group("task")
    text = (
        "greatest lengths in tokens, and the shares of the budget that they get, as 128:0.9,512:0.1 in the paper "
        "(default: auto, from scratch 64:0.825,256:0.175 --mixed, on from weights 128)"
    )
    task.add_argument("--phases", type=_or_auto(_phases), default="auto", metavar="LENGTH:SHARE,...", help=text)
    text = "longer rows come more and more often, instead of one length after the other (default: follows --phases)"
    _add_flag(task, "--mixed", None, text)
    _add_flag(task, "--nsp", None, "learn the next sentence too (default: no)")
    share = number(lambda value: 0 < value < 1, "a number between 0 and 1")
    text = "of the tokens that are to be predicted (default: auto, 0.4 from scratch and 0.15 on from weights)"
    task.add_argument("--mask-rate", type=_or_auto(share), default="auto", metavar="SHARE", help=text)
    _add_flag(task, "--whole-word", False, "mask words with all of their pieces")
    _add_flag(task, "--fixed", False, "the same pairs and masks in every epoch, as in the original code")

    add = parser.add_argument_group("training").add_argument
    text = "rows of a batch (default: auto, 64 from scratch and 32 on from weights)"
    add("--batch-size", type=_or_auto(whole(1)), default="auto", metavar="N", help=text)
    text = "batches whose gradients are averaged into one update (default: 1)"
    add("--accumulation", type=whole(1), default=1, metavar="N", help=text)
    text = "its peak (default: auto, by the width of the model)"
    add("--learning-rate", type=_or_auto(_over_0), default="auto", metavar="RATE", help=text)
    text = "a share of the budget, as 0.1, or a number of steps, as 1000 (default: 0.1)"
    add("--warmup", type=_warmup, metavar="SHARE_OR_N", help=text)
    decay = number(lambda value: 0 <= value < np.inf, "a number of at least 0")
    text = "of matrices and embeddings (default: 0.01)"
    add("--weight-decay", type=decay, default=0.01, metavar="RATE", help=text)
    text = "lamb is for large batches (default: adamw)"
    add("--optimizer", choices=("adamw", "lamb"), default="adamw", help=text)
    dropout = number(lambda value: 0 <= value < 1, "a rate of at least 0 and under 1")
    text = "in hidden states and attention (default: auto, 0 from scratch, that of the weights on from them)"
    add("--dropout", type=_or_auto(dropout), default="auto", metavar="RATE", help=text)
    text = "of the computation (default: auto, bfloat16 where the device is faster in it, else float32)"
    add("--dtype", choices=("auto", "float32", "bfloat16", "float16"), default="auto", help=text)
    text = "of the random start, pairs, masks and dropout (default: 0)"
    add("--seed", type=whole(0, LARGEST_SEED), default=0, metavar="N", help=text)

    evaluation = parser.add_argument_group("evaluation and checkpoints")
    text = "shards or text to evaluate on, now and then and at the end; lines of text are split into sentences"
    evaluation.add_argument("--held-out", type=path, metavar="PATH", help=text)
    for name in ("--evaluate-every", "--checkpoint-every"):
        text = "updates from one to the next (default: 1000)"
        evaluation.add_argument(name, type=whole(1), default=1000, metavar="N", help=text)
    text = "write losses and rates for TensorBoard, update by update"
    evaluation.add_argument("--tensorboard", type=path, metavar="FOLDER", help=text)
    _add_quiet(evaluation)


# --- Options of several commands


def _add_source(parser: ArgumentParser) -> None:
    text = "text, .jsonl, .csv or .parquet files, plain or packed (.gz, .xz, .bz2); folders of them; quoted patterns"
    parser.add_argument("source", nargs="*", metavar="SOURCE", help=text)


def _add_corpus_options(parser: ArgumentParser) -> None:
    add = parser.add_argument_group("text").add_argument
    default = CORPUS_DEFAULTS
    text = "what is a segment: each sentence of a line, or the line (default: sentences)"
    add("--split", choices=("sentences", "lines"), default=default["split"], help=text)
    add("--language", default=default["language"], metavar="CODE", help="of the sentences (default: en)")
    text = "where a table has its texts (default: text)"
    add("--column", default=default["column"], metavar="NAME", help=text)
    text = "where text is no UTF-8: stop, or put U+FFFD in its place (default: strict)"
    add("--errors", choices=("strict", "replace"), default=default["errors"], help=text)


def _add_flag(parser: Any, name: str, default: bool | None, text: str) -> None:
    # Some versions of argparse add the default by themselves, unless it is there.
    text += "" if default is None else " (default: %(default)s)"
    parser.add_argument(name, action=BooleanOptionalAction, default=default, help=text)


def _add_quiet(parser: Any) -> None:
    parser.add_argument("--quiet", action="store_true", help="no progress bar")


# --- Readers of values


_over_0 = number(lambda value: 0 < value < np.inf, "a number over 0")
_jobs = number(lambda value: value != 0, "a number of processes, or -1", int)


def _number_or_path(text: str) -> int | Path:
    """A number of words, or the file that lists them."""
    return whole(1)(text) if re.fullmatch(r"[-+]?\d+", text) else path(text)


def _or_auto(read: Callable[[str], Any]) -> Callable[[str], Any]:
    return lambda text: text if text == "auto" else read(text)


def _warmup(text: str) -> int | float:
    """A whole number is a number of steps, any other number a share of the budget."""
    wanted = "a share between 0.0 and 1.0, or a whole number of steps"
    warmup: int | float
    try:
        warmup = number(lambda value: value >= 0, wanted, int)(text)
    except ArgumentTypeError:
        warmup = number(lambda value: 0 <= value <= 1, wanted)(text)
    return warmup


def _phases(text: str) -> tuple[tuple[int, float], ...]:
    try:
        parts = [part.partition(":") for part in text.split(",")]
        phases = tuple((int(length), float(share or "1")) for length, _, share in parts)
    except ValueError:
        phases = ()
    if not phases or any(length < 5 or not 0 < share < np.inf for length, share in phases):
        raise ArgumentTypeError(f"must be lengths of at least 5 and shares over 0, as 128:0.9,512:0.1, not {text!r}.")
    return phases
