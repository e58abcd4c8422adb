"""Text -> tokens: the WordPiece tokenizer, and whole columns of texts as rows of tokens. No Keras here."""

from kbert.text.choices import build_choices
from kbert.text.questions import QuestionWindows, build_question_windows
from kbert.text.ragged import Ragged
from kbert.text.sequences import TokenSequences, build_sequences
from kbert.text.windows import build_windows
from kbert.text.wordpiece import Encoding, WordPieceTokenizer

__all__ = [
    "Encoding",
    "QuestionWindows",
    "Ragged",
    "TokenSequences",
    "WordPieceTokenizer",
    "build_choices",
    "build_question_windows",
    "build_sequences",
    "build_windows",
]
