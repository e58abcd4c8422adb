"""From the scores of tokens to those of words: what all tasks that explain their outputs have in common."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from kbert.data.columns import Columns
from kbert.data.frames import is_scalar, only_column, to_known_container
from kbert.errors import IncompleteWarning
from kbert.text import WordPieceTokenizer
from kbert.text.chunks import chunks
from kbert.text.sequences import Sequences
from kbert.training.attributions import Attributions, Path, Targets, Tokens, attributions
from kbert.training.finite_outputs import require_finite
from kbert.training.progress import count_predicted
from kbert.training.shapley import Orders, shapley_values
from kbert.values.printable import shown
from kbert.warn import warn_user

if TYPE_CHECKING:
    import keras

# Rows, and characters of them, that are explained at a time.
_CHUNK_ROWS = 256
_CHUNK_CHARACTERS = 250_000
# How far the scores of a row may be off their sum, as a share of the sum of their sizes, before it is told.
_LARGEST_GAP = 0.05

C = TypeVar("C", bound=Columns)
# Where the units of a text begin and end, in characters, the end exclusive: of its sentences, for example.
Units = list[tuple[int, int]]


class Part(NamedTuple):
    """One of the texts that an output was computed from.

    Attributes
    ----------
    name : str or int
        The column of X that it stands in.
    text : str
    words : slice
        Its words, among all words of a chunk.
    shift : int
        How many characters before the text the counting of ``offsets`` begins.
    """

    name: str | int
    text: str
    words: slice
    shift: int = 0


class Explained(NamedTuple):
    """One output of one row.

    Attributes
    ----------
    row : int
        In the chunk.
    label : object
        What the output is called.
    parts : list of Part
    """

    row: int
    label: Any
    parts: Sequence[Part]


class ToExplain(NamedTuple):
    """Outputs of a chunk of rows, and where they come from.

    Attributes
    ----------
    sequences : TokenSequences or QuestionWindows
    words : ndarray of int64, shape (n_tokens,)
        The word of each token of all sequences; -1 on special tokens.
    offsets : ndarray of int64, shape (n_words, 2)
        Where each word begins and ends, in characters, the end exclusive.
    explained : list of Explained
    number : ndarray of int64, shape (n_targets,)
        Which `Explained` each target is a part of. One of a row that is read in several windows has several targets.
    targets : Targets
    """

    sequences: Sequences
    words: NDArray[np.int64]
    offsets: NDArray[np.int64]
    explained: list[Explained]
    number: NDArray[np.int64]
    targets: Targets


@dataclass
class Explainer:
    """How outputs are explained, in one call.

    Parameters
    ----------
    model : keras.Model
    tokenizer : WordPieceTokenizer
    path : Path or Orders
        The points of integrated gradients, or the orders of Shapley values.
    spans : callable, optional
        Gives the units of a text whose words' scores are added up; None leaves the words alone.
    """

    model: keras.Model
    tokenizer: WordPieceTokenizer
    path: Path | Orders
    spans: Callable[[str], Units] | None = None

    # How many rows have scores that do not add up.
    n_incomplete: int = 0

    @property
    def tokens(self) -> Tokens:
        """The tokens that are not words; the baseline is [PAD] (docs/howto/explain.md says why)."""
        tokenizer = self.tokenizer
        return Tokens(tokenizer.pad_id, tokenizer.cls_id, tokenizer.sep_id)

    def lines(self, columns: C, to_explain: Callable[[C, slice], ToExplain]) -> Iterator[tuple[Any, ...]]:
        """The lines of all rows, some rows at a time: row, column, word, start, end, label, score.

        Parameters
        ----------
        columns : Columns
        to_explain : callable
            Gets some rows, and which they are.
        """
        for rows in chunks(columns.n_characters, _CHUNK_ROWS, _CHUNK_CHARACTERS):
            yield from self._lines(to_explain(columns.rows(rows), rows), rows)
            count_predicted(rows.stop - rows.start)

    def _lines(self, wanted: ToExplain, rows: slice) -> Iterator[tuple[Any, ...]]:
        if not wanted.explained:
            return
        found = self._attributions(wanted)
        row_of = np.array([explained.row for explained in wanted.explained], np.int64)
        finite = np.isfinite([*map(np.sum, found.scores)]) & np.isfinite(found.end)
        if not finite.all():
            bad = np.bincount(row_of[wanted.number[~finite]], minlength=rows.stop - rows.start)
            require_finite(bad == 0, rows.start)
        members = np.split(np.argsort(wanted.number, kind="stable"), np.cumsum(np.bincount(wanted.number))[:-1])
        for number, targets in enumerate(members):
            explained = wanted.explained[number]
            share = 1 / len(targets)
            words = np.concatenate(
                [wanted.words[slice(*wanted.sequences.splits[i : i + 2])] for i in wanted.targets.sequences[targets]]
            )
            scores = np.concatenate([found.scores[i] for i in targets]) * share
            self._note_gap(scores, float((found.end - found.start)[targets].sum() * share))
            for part in explained.parts:
                inside = (words >= part.words.start) & (words < part.words.stop)
                n_words = part.words.stop - part.words.start
                of_words = np.bincount(words[inside] - part.words.start, scores[inside], n_words).astype("float64")
                for start, end, score in self._units(part, wanted.offsets[part.words] - part.shift, of_words):
                    row = rows.start + explained.row
                    yield row, part.name, part.text[start:end], start, end, explained.label, score

    def _attributions(self, wanted: ToExplain) -> Attributions:
        if isinstance(self.path, Path):
            return attributions(self.model, wanted.sequences, wanted.targets, self.path, self.tokens)
        return shapley_values(self.model, wanted.sequences, wanted.words, wanted.targets, self.path, self.tokens)

    def _note_gap(self, scores: NDArray[np.float64], difference: float) -> None:
        if isinstance(self.path, Path) and len(self.path.shares) > 1:
            self.n_incomplete += bool(abs(scores.sum() - difference) > _LARGEST_GAP * np.abs(scores).sum())

    def _units(
        self, part: Part, offsets: NDArray[np.int64], scores: NDArray[np.float64]
    ) -> Iterator[tuple[int, int, float]]:
        """The units of a text, and the sum of their words' scores."""
        if self.spans is None:
            yield from zip(*offsets.T.tolist(), scores.tolist(), strict=True)
            return
        for start, end in self.spans(part.text):
            inside = (offsets[:, 0] >= start) & (offsets[:, 0] < end)
            yield start, end, float(scores[inside].sum())

    def warn(self) -> None:
        """Tell once of scores that do not add up."""
        if isinstance(self.path, Path) and self.n_incomplete:
            n_steps = len(self.path.shares)
            warn_user(
                f"The scores of {self.n_incomplete} outputs are further off the difference between text and baseline "
                f"than {_LARGEST_GAP:.0%} of their sizes. n_steps={4 * n_steps} would bring them nearer, and takes "
                "four times as long.",
                IncompleteWarning,
            )


def chosen_numbers(chosen: Any, names: Sequence[Any], n_rows: int, called: str) -> NDArray[np.int64]:
    """The numbers of chosen outputs: one for every row, or each row's own.

    Parameters
    ----------
    chosen : object, or array-like of shape (n_rows,)
        One of ``names``, or one for each row.
    names : sequence
        What the outputs are called.
    n_rows : int
    called : str
        The name of the parameter, for messages.

    Returns
    -------
    ndarray of int64, shape (n_rows,)

    Raises
    ------
    ValueError
        If a name is none of them, or there is another number of them than rows.
    """
    of_rows = one_for_each_row(chosen, n_rows, called)
    number = {name: i for i, name in enumerate(names)}
    unknown = next((i for i, name in enumerate(of_rows) if not is_scalar(name) or name not in number), None)
    if unknown is not None:
        where = "" if is_scalar(chosen) else f": row {unknown}"
        raise ValueError(f"{called}{where} is {shown(of_rows[unknown])}, and must be one of {list(names)[:20]}.")
    return np.fromiter((number[name] for name in of_rows), np.int64, n_rows)


def one_for_each_row(value: Any, n_rows: int, called: str) -> list[Any]:
    """A value that is given for all rows, or each row's own, as a list.

    Raises
    ------
    ValueError
        If there is another number of them than rows, or they have several columns.
    """
    if isinstance(value, np.ndarray) and value.ndim == 0:
        value = value.item()
    value = value if is_scalar(value) else only_column(to_known_container(value))
    if getattr(value, "ndim", 1) > 1:
        raise ValueError(
            f"{called} is a table of {value.shape[1]} columns: give one for all rows, or one for each row. Where rows "
            f'have several labels, name one of them: {called}="urgent", say, or a list with one for each row.'
        )
    of_rows = [value] * n_rows if is_scalar(value) else list(value)
    if len(of_rows) != n_rows:
        raise ValueError(
            f"{called} holds {len(of_rows)}, and X has {n_rows} rows: give one for all rows, or one for each row."
        )
    return of_rows
