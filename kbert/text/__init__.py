"""Text -> tokens: the WordPiece tokenizer, and whole columns of texts as rows of tokens. No Keras here."""

from kbert.text.choices import build_choices
from kbert.text.sequences import Ragged, TokenSequences, build_sequences
from kbert.text.windows import build_windows
from kbert.text.wordpiece import Encoding, WordPieceTokenizer

__all__ = [
    "Encoding",
    "Ragged",
    "TokenSequences",
    "WordPieceTokenizer",
    "build_choices",
    "build_sequences",
    "build_windows",
]
