"""Precision, recall and F1 of entities, which BIO tags or spans mark."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from operator import index
from typing import Any, NamedTuple

from kbert.metrics.row_weights import row_weights

# The keys of a span that is a dict.
_SPAN = ("start", "end", "label")
# What BIO has not of the schemes that mark the end of an entity and an entity of one word.
_BIOES_OR_BILOU = re.compile("[SELU]-.")


class EntityScores(NamedTuple):
    """Precision, recall and F1 of entities.

    Attributes
    ----------
    precision, recall, f1 : float
        From 0 to 1.
    support : float
        Number of true entities; with ``sample_weight``, the sum of their weights.

    Examples
    --------
    >>> from kbert.metrics import entity_scores
    >>> scores = entity_scores([["B-PER", "O", "B-LOC"]], [["B-PER", "O", "O"]])
    >>> scores.precision, scores.recall, scores.support
    (1.0, 0.5, 2)
    """

    precision: float
    recall: float
    f1: float
    support: float


def is_bio_tag(tag: Any) -> bool:
    """Whether a tag is a BIO tag: O, B-..., I-..., or B or I without a type.

    Parameters
    ----------
    tag : object

    Returns
    -------
    bool
        False if the tag is not a str.

    Examples
    --------
    >>> from kbert.metrics import is_bio_tag
    >>> [is_bio_tag(tag) for tag in ("O", "B-PER", "NOUN")]
    [True, True, False]
    """
    return isinstance(tag, str) and (tag == "O" or (tag[:1] in ("B", "I") and tag[1:2] in ("", "-")))


def is_bio(tags: Iterable[Sequence[str]]) -> bool:
    """Whether all tags are BIO tags (O, B-..., I-..., or B or I without a type), so that they mark entities.

    Parameters
    ----------
    tags : iterable of sequences of str
        A list of tags for each row.

    Returns
    -------
    bool
        False if a tag is not a str.

    Examples
    --------
    >>> from kbert.metrics import is_bio
    >>> is_bio([["B-PER", "I-PER", "O"], ["O"]]), is_bio([["NOUN", "VERB"]])
    (True, False)
    """
    return all(is_bio_tag(tag) for row in tags for tag in row)


def hint_for_scheme(tag: str) -> str:
    """What to do about a tag of BIOES or BILOU, where BIO tags are to be; "" for any other tag."""
    if not _BIOES_OR_BILOU.match(tag):
        return ""
    return (
        f"{tag!r} is a tag of BIOES or BILOU. Convert the tags to BIO first: S- and U- become B-, and E- and L- become "
        "I-."
    )


def bio_spans(tags: Sequence[str], *, strict: bool = False) -> list[tuple[int, int, str]]:
    """The entities that a row of BIO (IOB2) tags marks.

    An entity is a B- tag and the I- tags of the same type that follow it directly. An I- tag that continues no entity,
    because it comes after O or another type, starts an entity too, as in conlleval and in seqeval's default mode, which
    also read IOB1 in this way.

    Parameters
    ----------
    tags : sequence of str
        Each is O, B-type or I-type; or B or I, whose type is "".
    strict : bool, default=False
        Whether an I- tag that continues no entity marks nothing, as in seqeval's strict mode for IOB2.

    Returns
    -------
    list of (int, int, str)
        Start, end (exclusive) and type of each entity, in order. They are numbers of words, from 0.

    Raises
    ------
    ValueError
        If a tag is not BIO; the message names its position.

    Examples
    --------
    >>> from kbert.metrics import bio_spans
    >>> bio_spans(["B-PER", "I-PER", "O", "I-LOC"])
    [(0, 2, 'PER'), (3, 4, 'LOC')]
    """
    spans: list[tuple[int, int, str]] = []
    start, kind = -1, ""
    for i, tag in enumerate([*tags, "O"]):
        if not is_bio_tag(tag):
            raise ValueError(f"tag {i} is {tag!r}, not O, B-... or I-... .")
        goes_on = tag[0] == "I" and start >= 0 and tag[2:] == kind
        if start >= 0 and not goes_on:
            spans.append((start, i, kind))
            start = -1
        if tag[0] == "B" or (tag[0] == "I" and not goes_on and not strict):
            start, kind = i, tag[2:]
    return spans


def entity_scores(
    y_true: Iterable[Sequence[Any]],
    y_pred: Iterable[Sequence[Any]],
    *,
    by_label: bool = False,
    strict: bool = False,
    sample_weight: Any = None,
) -> EntityScores | dict[str, EntityScores]:
    """Precision, recall and F1 of the entities that BIO tags or spans mark.

    A predicted entity is right if its start, its end and its type are right. The scores are
    micro-averages, as those of CoNLL-2003: the counts of all rows and types are added up before they are divided (Tjong
    Kim Sang and De Meulder, 2003; conlleval).

    Parameters
    ----------
    y_true, y_pred : iterable of sequences
        For each row a list of BIO tags (see ``bio_spans``); or a list of spans, as `BertTagger.predict` gives them for
        texts: (start, end, label), or dicts with these keys. Both of the same kind.
    by_label : bool, default=False
        Whether to score each type of entity by itself.
    strict : bool, default=False
        Whether an I- tag that continues no entity marks nothing; see ``bio_spans``. It has no bearing on spans.
    sample_weight : array-like of shape (n_rows,), optional
        The weight of the entities of each row; 1 by default.

    Returns
    -------
    EntityScores, or dict of str to EntityScores
        ``precision`` is the share of predicted entities that are right, ``recall`` the share of true entities that are
        found, ``f1`` their harmonic mean, and ``support`` the number of true entities. A share is 0 if there are no
        such entities. With ``by_label``, the scores of each type that is in ``y_true`` or ``y_pred``, in alphabetical
        order.

    Raises
    ------
    ValueError
        If rows differ in number, or in their number of tags; if a tag is not BIO, or a span is none; or if one argument
        holds tags and the other spans. The message names the row.

    Examples
    --------
    >>> from kbert.metrics import entity_scores
    >>> truth = [["B-PER", "I-PER", "O", "B-LOC"]]
    >>> entity_scores(truth, [["B-PER", "I-PER", "O", "O"]])
    EntityScores(precision=1.0, recall=0.5, f1=0.6666666666666666, support=2)
    >>> entity_scores([[(0, 12, "PER"), (22, 28, "LOC")]], [[(0, 12, "PER")]])
    EntityScores(precision=1.0, recall=0.5, f1=0.6666666666666666, support=2)
    """
    for name, values in (("y_true", y_true), ("y_pred", y_pred)):
        if hasattr(values, "columns"):  # of which `list` would give the names
            raise ValueError(
                f"{name} is a table. Give the tags or the spans of each row, as BertTagger.predict gives them: the "
                "table of BertTagger.entities has a line for each entity."
            )
    y_true, y_pred = list(y_true), list(y_pred)
    weights = row_weights(sample_weight, y_true, y_pred).tolist()
    are_spans = _are_spans(y_true, y_pred)
    right: Counter[str] = Counter()
    found: Counter[str] = Counter()
    wanted: Counter[str] = Counter()
    for row, (true, predicted) in enumerate(zip(y_true, y_pred, strict=True)):
        read = [
            _entities(values, f"{name}, row {row}", are_spans, strict)
            for name, values in (("y_true", true), ("y_pred", predicted))
        ]
        if not are_spans and len(true) != len(predicted):
            raise ValueError(f"Row {row} has {len(true)} tags in y_true and {len(predicted)} in y_pred.")
        for counter, some in ((right, read[0] & read[1]), (found, read[1]), (wanted, read[0])):
            for _, _, kind in some:
                counter[kind] += weights[row]
    if by_label:
        return {kind: _entity_scores(right[kind], found[kind], wanted[kind]) for kind in sorted({*found, *wanted})}
    return _entity_scores(right.total(), found.total(), wanted.total())


def entity_f1(
    y_true: Iterable[Sequence[Any]], y_pred: Iterable[Sequence[Any]], *, strict: bool = False, sample_weight: Any = None
) -> float:
    """The F1 of entities: that of ``entity_scores``.

    Parameters
    ----------
    y_true, y_pred, strict, sample_weight
        As in ``entity_scores``.

    Returns
    -------
    float
        From 0 to 1.

    Examples
    --------
    >>> from kbert.metrics import entity_f1
    >>> entity_f1([["B-PER", "I-PER", "O", "B-LOC"]], [["B-PER", "I-PER", "O", "O"]])
    0.6666666666666666
    """
    scores = entity_scores(y_true, y_pred, strict=strict, sample_weight=sample_weight)
    assert isinstance(scores, EntityScores)  # a dict only with by_label
    return scores.f1


def _are_spans(y_true: list[Any], y_pred: list[Any]) -> bool:
    """Whether the rows hold spans, and not tags: both arguments, to go by the first of their rows that is not empty."""
    kinds = {}
    for name, rows in (("y_true", y_true), ("y_pred", y_pred)):
        row = next((i for i, values in enumerate(rows) if not hasattr(values, "__len__")), None)
        if row is not None:
            raise ValueError(
                f"{name}, row {row} is {rows[row]!r:.100}. Give a list for each row: [] where it has none."
            )
        first = next((next(iter(values)) for values in rows if not isinstance(values, str) and len(values)), None)
        if first is not None:
            kinds[name] = not isinstance(first, str) and isinstance(first, Mapping | Iterable)
    if len(set(kinds.values())) == 2:
        named = {name: "spans" if spans else "tags" for name, spans in kinds.items()}
        raise ValueError(
            f"y_true holds {named['y_true']} and y_pred {named['y_pred']}. Give both of one kind: BertTagger.predict "
            "gives spans for texts, and tags for lists of words."
        )
    return any(kinds.values())


def _entities(values: Sequence[Any], where: str, are_spans: bool, strict: bool) -> set[tuple[int, int, str]]:
    """The entities of one row. ``where`` is what messages call it."""
    if isinstance(values, str):
        raise ValueError(f"{where} is a str ({values!r}). Give a list of tags, or of spans, for each row.")
    if are_spans:
        return {_span(value, where) for value in values}
    try:
        return set(bio_spans(values, strict=strict))
    except ValueError as error:
        raise ValueError(f"{where}: {error} Score tags of other kinds by their accuracy.") from None


def _span(value: Any, where: str) -> tuple[int, int, str]:
    try:
        parts: Iterable[Any] = [value.get(key) for key in _SPAN] if isinstance(value, Mapping) else value
        start, end, label = parts
        if isinstance(value, str) or not isinstance(label, str):
            raise ValueError
        return index(start), index(end), str(label)
    except (TypeError, ValueError):
        raise ValueError(
            f"{where} holds {value!r:.100}, which is no span: (start, end, label), or such a dict."
        ) from None


def _entity_scores(right: float, found: float, wanted: float) -> EntityScores:
    f1 = 2 * right / (found + wanted) if right else 0.0
    return EntityScores(right / found if found else 0.0, right / wanted if wanted else 0.0, f1, wanted)
