"""How a run of pre-training begins: its model, and how many updates its epochs are."""

from __future__ import annotations

import math

from kbert.config import BertConfig
from kbert.model import BertForPreTraining
from kbert.pretraining.instances import DocumentSource
from kbert.pretraining.masking import Masking
from kbert.pretraining.new_words import start_new_words
from kbert.pretraining.options import PretrainingOptions
from kbert.pretraining.output_bias import start_at_frequencies
from kbert.pretraining.stream import BatchStream
from kbert.text import WordPieceTokenizer
from kbert.training.fit_checkpoints import digest_of_weights
from kbert.weights import load_pretraining_weights
from kbert.weights.start import Start


def begun_model(
    start: Start,
    tokenizer: WordPieceTokenizer,
    documents: DocumentSource,
    config: BertConfig,
    nsp: bool,
    dtype: str,
    seed: int,
) -> tuple[BertForPreTraining, list[str]]:
    """The model to train, and the words that it has in place of unused tokens of the start's vocabulary.

    Parameters
    ----------
    start : Start
    tokenizer : WordPieceTokenizer
        That of the start, or one with new words.
    documents : list of Documents, or Shards
        The text, whose frequencies of tokens a random start begins with.
    config : BertConfig
        That of the start, with the dropout of the training.
    nsp : bool
    dtype : str
        A Keras policy.
    seed : int
    """
    model = start.new_model(lambda: BertForPreTraining(config, nsp, dtype=dtype, seed=seed), load_pretraining_weights)
    if start.folder is None and start.model is None:
        start_at_frequencies(model, documents)
    return model, start_new_words(model, start.tokenizer, tokenizer)


def digest_of_start(model: BertForPreTraining, start: Start) -> str | None:
    """A digest of the weights that a run starts from; None of random ones, which the seed tells.

    Of an encoder's checkpoint those of the encoder, since a new head may have other last digits on another machine.
    """
    if start.folder is None and start.model is None:
        return None
    return digest_of_weights(model if start.model is not None else model.encoder)


def steps_of_epochs(
    epochs: int,
    options: PretrainingOptions,
    nsp: bool,
    config: BertConfig,
    documents: DocumentSource,
    tokenizer: WordPieceTokenizer,
) -> int:
    """How many updates read all texts ``epochs`` times."""
    stream = BatchStream(
        documents,
        tokenizer,
        config,
        nsp=nsp,
        masking=Masking(tokenizer, options.mask_rate, options.whole_word),
        lengths=[length for length, _ in options.phases],
        batch_sizes=options.batch_sizes,
        seed=options.seed,
    )
    # A phase has its share of the updates, and the more tokens its batches have, the more of the text each reads.
    shares = [share / stream.n_batches(epochs, phase) for phase, (_, share) in enumerate(options.phases)]
    n_batches = sum(share for _, share in options.phases) / sum(shares)
    return math.ceil(n_batches / options.gradient_accumulation - 1e-6)
