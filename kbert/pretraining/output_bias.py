"""Where the output of a model that knows nothing starts: at how often each token occurs."""

from __future__ import annotations

import numpy as np

from kbert.model import BertForPreTraining
from kbert.pretraining.instances import DocumentSource, first_tokens


def start_at_frequencies(model: BertForPreTraining, source: DocumentSource) -> None:
    """Set the bias of the masked-LM output to the logarithm of each token's share of the text, in place.

    With a bias of zero, as in the original code, a run spends its first hundreds of updates on learning these shares,
    and large gradients of the bias alone cut all others when the norm is clipped (docs/tasks/pretraining.md).

    Parameters
    ----------
    model : BertForPreTraining
    source : sequence of Documents
        Its first 10 million tokens are counted. A token that does not occur counts as one.

    Examples
    --------
    >>> from kbert import BertConfig, BertForPreTraining, WordPieceTokenizer
    >>> from kbert.pretraining import Corpus, start_at_frequencies, write_shards
    >>> texts = ["It rained. We stayed in.", "The sun shone. We went out."] * 10
    >>> shards = write_shards(Corpus(texts), WordPieceTokenizer.train(texts), "shards")
    >>> model = BertForPreTraining(BertConfig.from_size("tiny"), nsp=False)
    >>> start_at_frequencies(model, shards)
    """
    counts = np.ones(model.config.vocab_size)
    for tokens in first_tokens(source):
        if (largest := int(tokens.max(initial=0))) >= len(counts):
            raise ValueError(
                f"The text has the token {largest}, and the model a vocab_size of {len(counts)}. Make the model for "
                "the tokenizer: dataclasses.replace(config, vocab_size=tokenizer.vocab_size)."
            )
        counts += np.bincount(tokens, minlength=len(counts))
    model.mlm_head.bias.assign(np.log(counts / counts.sum()).astype("float32"))
