"""The run that the options of `kbert pretrain` ask for: its start, its held-out text, its settings."""

from __future__ import annotations

import dataclasses
from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from kbert.config import BertConfig
from kbert.files.json_files import json_object
from kbert.pretraining.corpus import Corpus
from kbert.pretraining.instances import Documents, DocumentSource
from kbert.pretraining.options import PretrainingOptions
from kbert.pretraining.recipe import PAPER, SCORED_MASK_RATE, config_of_run, settle_pretraining
from kbert.pretraining.shards import MANIFEST, SETTINGS, Shards, tokenised, vocabulary_hash
from kbert.text import WordPieceTokenizer

if TYPE_CHECKING:
    from kbert.pretraining.trainer import Pretraining
    from kbert.weights.start import Start


def folder_or_name(name: str) -> str | Path:
    """A folder that exists is meant as one, also where it is called like a size."""
    folder = Path(name).expanduser()
    return folder if folder.is_dir() else name


# The options under which the parameters of `kbert.BertPretrainer` have other names.
_OPTIONS = {"max_length": "phases", "gradient_accumulation": "accumulation"}


def with_recipe(options: Namespace) -> Namespace:
    """The options, with what ``--paper`` asks for; what follows the start is left to `new_run`."""
    recipe = {"nsp": False, "warmup": 0.1, "bias_correction": True, **(PAPER if options.paper else {})}
    recipe.pop("vocab_size", None)  # the shards have it
    given = {name: value for name, value in vars(options).items() if value not in (None, "auto")}
    if "max_seconds" in given:
        recipe.pop("max_steps", None)
    return Namespace(**{**vars(options), **{_OPTIONS.get(name, name): recipe[name] for name in recipe}, **given})


def new_run(options: Namespace, shards: Shards) -> Pretraining:
    """The run, before its first step. The options have a recipe."""
    from kbert.pretraining.begin import begun_model, digest_of_start
    from kbert.pretraining.checkpoints import dtype_of_run
    from kbert.pretraining.trainer import Pretraining

    start = _start(options, shards.tokenizer)
    settings = _settings(options, start.config)
    config = config_of_run(start.config, options.dropout, from_scratch=options.weights is None)
    held_out = None if options.held_out is None else _held_out(options, shards.tokenizer)
    policy = dtype_of_run(options.dtype, options.out / "run")
    model, _ = begun_model(start, shards.tokenizer, shards, config, options.nsp, policy, options.seed)
    of_start = digest_of_start(model, start)
    return Pretraining(model, shards.tokenizer, shards, settings, held_out, options.out / "run", start=of_start)


def words_not_in(before: WordPieceTokenizer, after: WordPieceTokenizer) -> list[str]:
    """The words of a vocabulary that another one has not, in the order of their ids."""
    return sorted(after.vocab.keys() - before.vocab.keys(), key=after.vocab.__getitem__)


def _start(options: Namespace, tokenizer: WordPieceTokenizer) -> Start:
    """The start from weights, with their own tokenizer; or from scratch, with that of the shards."""
    from kbert.weights.start import Start, pretrained_start

    if options.weights is not None:
        name = folder_or_name(options.weights)
        start = pretrained_start(str(name), name, None, "kbert pretrain")
        if not _is_of_weights(tokenizer, start.tokenizer):
            raise ValueError(
                f"{options.weights} has another vocabulary than the shards. Write shards with --tokenizer "
                f"{options.weights}, or with one of `kbert vocab --weights {options.weights}`."
            )
        return start
    n_pieces = tokenizer.vocab_size
    if options.model_config is None:
        return Start(dataclasses.replace(BertConfig.from_size(options.size or "base"), vocab_size=n_pieces), tokenizer)
    path = options.model_config
    config = BertConfig.from_dict({"vocab_size": n_pieces, **json_object(path)})
    if config.vocab_size < n_pieces:
        raise ValueError(
            f"{path}: vocab_size is {config.vocab_size}, and the vocabulary of the shards has {n_pieces} pieces. Leave "
            "vocab_size out, or make it at least as many."
        )
    return Start(config, tokenizer)


def _is_of_weights(tokenizer: WordPieceTokenizer, of_weights: WordPieceTokenizer) -> bool:
    """Whether a vocabulary is that of weights, but for new words that replace its unused tokens."""
    try:
        with_words = of_weights.with_words(words_not_in(of_weights, tokenizer))
    except ValueError:  # more words than unused tokens
        return False
    return vocabulary_hash(with_words) == vocabulary_hash(tokenizer)


def _held_out(options: Namespace, tokenizer: WordPieceTokenizer) -> Documents:
    """The text to evaluate on."""
    path = options.held_out
    elements: DocumentSource
    if any((path / name).exists() for name in (MANIFEST, SETTINGS)):  # shards, finished or begun
        elements = shards = Shards(path)
        if vocabulary_hash(shards.tokenizer) != vocabulary_hash(tokenizer):
            raise ValueError(f"--held-out: {path} has another vocabulary than the shards. Write it with the same one.")
    else:
        elements = tokenised(Corpus(path), tokenizer)
    if len(elements) > 1:
        raise ValueError(f"--held-out: {path} is more than one shard. Give less text.")
    if options.nsp and len(elements[0]) < 2:
        raise ValueError(f"--held-out: {path} is one document, and next sentences are drawn from two at least.")
    return elements[0]


def _settings(options: Namespace, config: BertConfig) -> PretrainingOptions:
    """The settings of the run. What is "auto" is settled in the options, as in `kbert.BertPretrainer`."""
    held_out_mask_rate = SCORED_MASK_RATE if options.mask_rate == "auto" else options.mask_rate
    options.max_length = options.phases
    phases, mixed = settle_pretraining(options, config, from_scratch=options.weights is None)
    same = (
        "max_steps", "max_seconds", "batch_size", "learning_rate", "warmup", "weight_decay", "optimizer",
        "bias_correction", "mask_rate", "whole_word", "fixed", "seed", "evaluate_every", "checkpoint_every",
        "tensorboard",
    )  # fmt: skip
    return PretrainingOptions(
        **{name: getattr(options, name) for name in same},
        phases=phases,
        mixed=mixed if options.mixed is None else options.mixed,
        held_out_mask_rate=held_out_mask_rate,
        gradient_accumulation=options.accumulation,
        verbose=not options.quiet,
    )
