"""Texts and the spans that are marked in them, from the exports of annotation tools."""

import json
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from kbert.datasets.files import is_blank, read_text
from kbert.errors import DatasetWarning
from kbert.values.number_rules import is_whole
from kbert.values.surrogates import require_no_surrogates
from kbert.warn import warn_user

Span = tuple[int, int, str]


class Record(NamedTuple):
    """One record of an export, and where it is from, for messages: its file and line, or its number."""

    value: Any
    source: str


class LeftOut(Exception):
    """A record is not read. The message says why, as the warning counts it: "rejected"."""


def read_entities(source: Any, format: str = "auto") -> pd.DataFrame:
    """Read texts and their marked spans from the export of an annotation tool.

    Parameters
    ----------
    source : str, Path or list
        A file, JSON or JSON lines, also .gz, .bz2 or .xz; or its records, as a Python list.
    format : {"auto", "spacy", "doccano", "prodigy", "label-studio"}, default="auto"
        * "spacy": pairs ``(text, {"entities": [(start, end, label), ...]})``, alone or as the "annotations" of an
          object; or what ``doc.to_json()`` gives.
        * "doccano": objects with "text" and "label", "labels" or "entities", whose spans are ``[start, end, label]``,
          or objects with start_offset, end_offset and label.
        * "prodigy": objects with "text", "spans" and "answer". Those that were not accepted are left out.
        * "label-studio": its JSON export, or JSON-MIN. Tasks that nobody annotated are left out. Of several annotations
          of a task that is read which is marked as ground truth, or else the first.

        "auto" recognises the format.

    Returns
    -------
    DataFrame
        Columns ``text`` and ``spans``, a list of (start, end, label) for each text, sorted; start and end count
        characters, and the end is exclusive. These are X and y of `BertTagger.fit`.

    Raises
    ------
    ValueError
        If the file is no JSON, the format is not recognised, or a record does not have it or has a span that is not
        within its text; the message names file and line, or the record.

    Warns
    -----
    DatasetWarning
        Counts the records that were left out, and the tasks with several annotations.

    Examples
    --------
    >>> from kbert.datasets import read_entities
    >>> entities = [(0, 3, "PER"), (13, 19, "LOC")]
    >>> read_entities([("Ada lived in London.", {"entities": entities})]).spans[0]
    [(0, 3, 'PER'), (13, 19, 'LOC')]
    """
    if format != "auto" and format not in _READERS:
        raise ValueError(f"format={format!r} is not known. Use 'auto' or one of {', '.join(map(repr, _READERS))}.")
    name = "The list" if isinstance(source, list | tuple) else str(source)
    records = list(_unpacked(_records(source)))
    read = _READERS[_recognised(records, name) if format == "auto" else format](records)
    texts: list[str] = []
    spans: list[list[Span]] = []
    told: Counter[str] = Counter()
    for record in records:
        try:
            text, marked = read(record, told)
            require_no_surrogates(text, f"{record.source}: the text")
        except LeftOut as reason:
            told[f"left out because {reason}"] += 1
            continue
        texts.append(text)
        spans.append(sorted(_checked(span, text, record.source) for span in marked))
    if told:
        counts = "; ".join(f"{n} {what}" for what, n in told.items())
        warn_user(f"{name}: of {len(records)} records {counts}.", DatasetWarning)
    return pd.DataFrame({"text": texts, "spans": spans})


# --- Files -> records


def _records(source: Any) -> Iterator[Record]:
    if isinstance(source, list | tuple):
        for i, value in enumerate(source):
            yield Record(value, f"record {i}")
        return
    if not isinstance(source, str | os.PathLike):
        hint = " Give its records: df.to_dict('records')." if hasattr(source, "columns") else ""
        raise TypeError(f"source is a {type(source).__name__}, and must be a path or a list of records.{hint}")
    path = Path(source)
    if path.suffix == ".spacy":
        raise ValueError(
            f"{path} is a file of spaCy's own. Give a list: [(doc.text, {{'entities': [(e.start_char, e.end_char, "
            "e.label_) for e in doc.ents]}) for doc in DocBin().from_disk(path).get_docs(nlp.vocab)]."
        )
    text = read_text(path)
    lines = [(n, line) for n, line in enumerate(text.split("\n"), 1) if not is_blank(line)]
    if not lines:
        raise ValueError(f"{path} is empty.")
    if len(lines) > 1 and _is_json(lines[0][1]):
        for n, line in lines:
            yield Record(_parsed(line, f"{path}, line {n}", 0), f"{path}, line {n}")
        return
    value = _parsed(text, str(path), 1)
    values = value if isinstance(value, list) and not _is_pair(value) else [value]
    for i, one in enumerate(values):
        yield Record(one, f"{path}, record {i}")


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def _parsed(text: str, source: str, first_line: int) -> Any:
    """The value in a text; errors name the line in it where ``first_line`` is not 0."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError(f"{source}: is nested too deeply for an export of annotations.") from None
    except json.JSONDecodeError as error:
        line = f", line {error.lineno}" if first_line else ""
        raise ValueError(
            f"{source}{line}, column {error.colno}: is no JSON ({error.msg}). A file with a word a line is read with "
            "read_conll."
        ) from error


def _unpacked(records: Iterable[Record]) -> Iterator[Record]:
    """The records; those of an object that holds a list of pairs, as annotators for spaCy write it, one by one."""
    for record in records:
        inner = record.value.get("annotations") if isinstance(record.value, Mapping) else None
        pairs = [pair for pair in inner if pair is not None] if isinstance(inner, list) else []
        if pairs and all(map(_is_pair, pairs)):
            for i, pair in enumerate(pairs):
                yield Record(pair, f"{record.source}, annotation {i}")
        else:
            yield record


# --- Formats


def _is_pair(value: Any) -> bool:
    is_pair = isinstance(value, list | tuple) and len(value) == 2
    return is_pair and isinstance(value[0], str) and isinstance(value[1], Mapping)


def _recognised(records: list[Record], name: str) -> str:
    """The format that a record has."""
    for format, has_format in _MARKS.items():
        if any(has_format(record.value) for record in records):
            return format
    example = f" It begins with {records[0].value!r:.200}." if records else ""
    raise ValueError(
        f"{name} holds no records of a known format ({', '.join(_READERS)}).{example} If it is one of these, say so "
        "with format=...; a file with a word a line is read with read_conll."
    )


def _is_spacy(value: Any) -> bool:
    return (_is_pair(value) and "entities" in value[1]) or (isinstance(value, Mapping) and "ents" in value)


def _is_label_studio(value: Any) -> bool:
    if not isinstance(value, Mapping):
        return False
    if isinstance(value.get("data"), Mapping) or "annotation_id" in value:
        return True
    return any(isinstance(part, Mapping) and "labels" in part for part in _lists_in(value))


def _is_prodigy(value: Any) -> bool:
    if not isinstance(value, Mapping):
        return False
    # doccano's records may have a field "answer" of their own.
    return "spans" in value or "_input_hash" in value or ("answer" in value and not _is_doccano(value))


def _is_doccano(value: Any) -> bool:
    return isinstance(value, Mapping) and any(key in value for key in _DOCCANO_SPANS)


def _is_doccanos_span(part: Any) -> bool:
    """Whether a part of a list is a span as doccano writes it, which no region of Label Studio is."""
    if isinstance(part, Mapping):
        return "start_offset" in part
    is_triple = isinstance(part, list | tuple) and len(part) >= 3
    return is_triple and is_whole(part[0]) and is_whole(part[1]) and isinstance(part[2], str)


def _lists_in(value: Mapping[str, Any]) -> Iterator[Any]:
    """What the lists among the values of an object hold."""
    for part in value.values():
        if isinstance(part, list):
            yield from part


_DOCCANO_SPANS = ("entities", "label", "labels", "annotations")
# Of each format what only its records have. The order counts: Label Studio's may have what Prodigy's and doccano's do.
_MARKS: dict[str, Callable[[Any], bool]] = {
    "spacy": _is_spacy,
    "label-studio": _is_label_studio,
    "prodigy": _is_prodigy,
    "doccano": _is_doccano,
}


def _spacy(record: Record, told: Counter[str]) -> tuple[str, list[Any]]:
    value = record.value
    if _is_pair(value):
        if "entities" not in value[1]:
            raise _of_another_tool(record, value[1], "entities")
        return value[0], _list(value[1]["entities"], record, "entities")
    value = _object(record)
    if "ents" not in value:
        # What doc.to_json() writes of a doc without entities has tokens; its "spans" are an object, with groups.
        is_doc = "tokens" in value and not _is_doccano(value) and not isinstance(value.get("spans"), list)
        if not is_doc and set(value) - {"text"}:
            raise _of_another_tool(record, value, "ents")
    return _text(record, "text"), _list(value.get("ents", []), record, "ents")


def _doccano(record: Record, told: Counter[str]) -> tuple[str, list[Any]]:
    value = _object(record)
    key = next((key for key in _DOCCANO_SPANS if key in value), None)
    if key is None:
        raise ValueError(f"{record.source}: has no 'label', 'labels' or 'entities'; it has {_keys(value)}.")
    return _text(record, "text", "data"), _list(value[key], record, key)


def _prodigy(record: Record, told: Counter[str]) -> tuple[str, list[Any]]:
    value = _object(record)
    answer = value.get("answer", "accept")
    if answer != "accept":
        raise LeftOut(f'its "answer" is {answer!r}')
    if "spans" not in value and (_is_doccano(value) or _is_spacy(value) or _is_label_studio(value)):
        raise _of_another_tool(record, value, "spans")
    return _text(record, "text"), _list(value.get("spans") or [], record, "spans")


class _LabelStudio:
    """Reads Label Studio's tasks: JSON, or JSON-MIN, which has a record for each annotation of a task."""

    def __init__(self, records: list[Record]):
        self.read_tasks: set[Any] = set()
        # What the texts are called is seen in the tasks that have regions, most of which would not fit another text.
        fits = Counter(key for record in records for key in _texts_of_regions(record)).most_common(2)
        is_tie = len(fits) == 2 and fits[0][1] == fits[1][1]
        self.key = fits[0][0] if fits and not is_tie else None

    def __call__(self, record: Record, told: Counter[str]) -> tuple[str, list[Any]]:
        value = _object(record)
        data, regions, names = _regions(record, told)
        texts = {key: text for key, text in data.items() if isinstance(text, str)}
        only = list(texts) if len(texts) == 1 else []
        key = next((name for name in (*names, self.key, *only) if name in texts), None)
        if key is None:
            raise ValueError(
                f"{record.source}: its text is not found; there are {', '.join(map(str, data)) or 'no data'}. Call it "
                '"text" in the data of each task.'
            )
        if data is value:  # JSON-MIN
            task = json.dumps(value.get("id", record.source), default=str), texts[key]
            if task in self.read_tasks:
                raise LeftOut("another annotation of its task is read")
            self.read_tasks.add(task)
        return texts[key], [_in_characters(region, texts[key], told) for region in regions]


def _texts_of_regions(record: Record) -> list[str]:
    """The names of the texts in which all regions of a task are; none if it has no regions, or cannot be read."""
    try:
        data, regions, _ = _regions(record, Counter())
    except (ValueError, LeftOut):
        return []
    texts = {key: text for key, text in data.items() if isinstance(text, str)} if regions else {}
    return [key for key, text in texts.items() if all(_place(region, text) for region in regions)]


def _regions(record: Record, told: Counter[str]) -> tuple[Mapping[str, Any], list[Mapping[str, Any]], list[str]]:
    """The data of Label Studio's task, the regions in its text, and what this text may be called."""
    value = _object(record)
    if not isinstance(value.get("data"), Mapping):  # JSON-MIN
        regions = [part for part in _lists_in(value) if isinstance(part, Mapping) and "start" in part]
        if not regions and any(map(_is_doccanos_span, _lists_in(value))):
            raise ValueError(
                f"{record.source}: has spans that are not Label Studio's; it has {_keys(value)}. {_ONE_TOOL}"
            )
        return value, regions, ["text"]
    annotations = value.get("annotations", value.get("completions", []))
    done = [one for one in _objects(annotations, record, "annotations") if not one.get("was_cancelled")]
    if not done:
        raise LeftOut("nobody annotated it")
    if len(done) > 1:
        told["with several annotations, of which one is read"] += 1
    chosen = next((one for one in done if one.get("ground_truth")), done[0])
    regions, names = [], list[str]()
    for result in _objects(chosen.get("result", []), record, "result"):
        kind = str(result.get("type", ""))
        if kind in ("hypertextlabels", "paragraphlabels"):
            raise ValueError(
                f"{record.source}: has {kind}, whose places are not in a plain text. Label a Text instead."
            )
        if kind == "labels":
            regions += _objects([result.get("value")], record, "value")
            names += [str(result["to_name"])] if result.get("to_name") else []
    if len(set(names)) > 1:
        raise ValueError(
            f"{record.source}: has labels in several texts ({', '.join(dict.fromkeys(names))}). Keep the results of "
            "one of them, or make a task of each text."
        )
    return value["data"], regions, [*names[:1], "text"]


# For each format what makes, of all records, a reader of one.
_READERS: dict[str, Callable[[list[Record]], Callable[[Record, Counter[str]], tuple[str, list[Any]]]]] = {
    "spacy": lambda records: _spacy,
    "doccano": lambda records: _doccano,
    "prodigy": lambda records: _prodigy,
    "label-studio": _LabelStudio,
}


# --- Parts of records

# What to do about a record of another tool.
_ONE_TOOL = "If it is another tool's, read each tool's records by themselves; format=... names the tool."


def _of_another_tool(record: Record, value: Mapping[str, Any], key: str) -> ValueError:
    """The error for a record without its format's key, which would seem to have no spans."""
    return ValueError(
        f"{record.source}: has no {key!r}; it has {_keys(value)}. {_ONE_TOOL} If nothing is marked in it, give it an "
        f"empty list {key!r}."
    )


def _keys(value: Mapping[str, Any]) -> str:
    return ", ".join(map(str, value)) or "nothing"


def _object(record: Record) -> Mapping[str, Any]:
    if not isinstance(record.value, Mapping):
        raise ValueError(f"{record.source}: is {record.value!r:.100}, not an object as the others are.")
    return record.value


def _text(record: Record, *keys: str) -> str:
    value = _object(record)
    for key in keys:
        if isinstance(value.get(key), str):
            return str(value[key])
    raise ValueError(f"{record.source}: has no {keys[0]!r} that is a text; it has {_keys(value)}.")


def _list(value: Any, record: Record, key: str) -> list[Any]:
    if not isinstance(value, list | tuple):
        raise ValueError(f"{record.source}: {key} is {value!r:.100}, not a list.")
    return list(value)


def _objects(value: Any, record: Record, key: str) -> list[Mapping[str, Any]]:
    for part in _list(value, record, key):
        if not isinstance(part, Mapping):
            raise ValueError(f"{record.source}: {key} holds {part!r:.100}, which is no object.")
    return list(value)


def _in_characters(region: Mapping[str, Any], text: str, told: Counter[str]) -> Mapping[str, Any]:
    """A region of Label Studio whose place counts the characters of the text, as far as its own text tells it."""
    if not isinstance(region.get("text"), str):
        return region
    place = _place(region, text)
    if place is None:
        told["with a span at whose place another text stands"] += 1
        return region
    return {**region, "start": place[0], "end": place[1]}


def _place(region: Mapping[str, Any], text: str) -> tuple[int, int] | None:
    """Where a region's own text stands: where it says, or where a browser's count of it leads.

    Browsers count UTF-16 units, of which an emoji has two, and one character for the two that end a line on Windows.
    In a region's text line ends are written as a backslash and an n, and spaces may be lost.
    """
    start, end, marked = (region.get(name) for name in ("start", "end", "text"))
    if not isinstance(start, int) or not isinstance(end, int) or not isinstance(marked, str):
        return None
    if text[start:end] == marked:
        return start, end
    places = list(_possible_places(text, start, end))
    same = (place for place in places if text[slice(*place)] == marked)
    alike = (place for place in places if _words(text[slice(*place)]) == _words(marked))
    return next(same, next(alike, None))


def _possible_places(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    for kept in (range(len(text)), [i for i in range(len(text)) if text[i : i + 2] != "\r\n"]):
        counted = "".join(text[i] for i in kept)
        units = counted.encode("utf-16-le", "surrogatepass")
        before, inside = (
            len(units[2 * i : 2 * j].decode("utf-16-le", "replace")) for i, j in ((0, start), (start, end))
        )
        for first, last in ((start, end), (before, before + inside)):
            if 0 <= first < last <= len(kept):
                yield kept[first], kept[last - 1] + 1


def _words(text: str) -> list[str]:
    return text.replace("\\n", " ").split()


def _checked(span: Any, text: str, source: str) -> Span:
    """A span as (start, end, label), within its text."""
    if isinstance(span, Mapping):
        labels = span.get("label", span.get("labels"))
        start, end = (span.get(key, span.get(f"{key}_offset")) for key in ("start", "end"))
        if isinstance(labels, list) and len(labels) != 1:
            raise ValueError(
                f"{source}: the span from {start} to {end} has {len(labels)} labels, where one is expected: {labels}."
            )
        label = labels[0] if isinstance(labels, list) else labels
    elif isinstance(span, list | tuple) and len(span) >= 3:  # a fourth is the entry in spaCy's knowledge base
        start, end, label = span[:3]
    else:
        raise ValueError(f"{source}: {span!r:.100} is no span of start, end and label.")
    if isinstance(label, int):
        raise ValueError(
            f"{source}: the label {label} is a number. Export the labels' names, or replace it by its name."
        )
    if not isinstance(label, str) or not is_whole(start) or not is_whole(end):
        raise ValueError(f"{source}: {span!r:.100} is no span of start, end and label.")
    if not 0 <= start < end <= len(text):
        raise ValueError(
            f"{source}: the span {(start, end, label)} is not within its text, which has {len(text)} characters. Start "
            "is to be at least 0 and less than end, which is exclusive."
        )
    return int(start), int(end), label
