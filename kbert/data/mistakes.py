"""X and y that cannot be meant: y among the columns of X, X and y exchanged, lists of labels in strings. No Keras here.

Each message has the line to write instead, with the user's own column names.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Sequence
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kbert.data.frames import Table, column_names, is_missing, is_scalar, is_sparse, read_table, refuse_what_has_no_rows
from kbert.errors import LabelsWarning
from kbert.metrics.entities import hint_for_scheme, is_bio_tag
from kbert.values.printable import listed, shown
from kbert.warn import warn_user

# Two words beside each other, or so many letters of a script that writes no spaces.
_WORDS = re.compile(r"[^\W\d_]\W*\s\W*[^\W\d_]|[^\W\d_\x00-\u02ff]{6}")
_LETTER = re.compile(r"[^\W\d_]")
# A column of texts this long is one of texts even if many of them are the same, as the premises of pairs are.
_LONG = 40
# Rows that are looked at to tell what a column holds.
_LOOKED_AT = 1000
# In fewer rows, labels that are nearly all different say nothing yet: a first try has two or three.
_LEAST_ROWS = 10
_LEAST_ROWS_OF_SWAPPED = 4
_NEARLY_ALL = 0.9
# Where texts come two times or so, this share of the rows has a text that is not in the rows before.
_TWICE_OR_SO = 0.4
# A number is far from the others if the standard deviation with it is so many times that without it. So may a few be
# together: up to 2% of the rows.
_FAR = 3.0
_FAR_SHARE, _MOST_FAR = 0.02, 5


def looks_like_text(values: Sequence[Any]) -> bool:
    """Whether a column holds texts, to go by its first rows: several words, and most rows different or long."""
    some = _strings(values)
    return _has_words(values) and (_are_mostly_different(values) or _mean_length(some) >= _LONG)


def _has_words(values: Sequence[Any]) -> bool:
    """Whether most rows hold several words. Labels may too: "account locked"."""
    some = _strings(values)
    n_words = sum(_WORDS.search(value) is not None for value in some)
    return len(some) >= max(1, len(values[:_LOOKED_AT]) / 2) and n_words >= len(some) / 2


def _are_mostly_different(values: Sequence[Any]) -> bool:
    """Whether most rows hold a string with a letter, and most of these another one than all other rows."""
    some = [value for value in _strings(values) if _LETTER.search(value)]
    return len(some) >= max(1, len(values[:_LOOKED_AT]) / 2) and len(set(some)) > len(some) / 2


def _strings(values: Sequence[Any]) -> list[str]:
    """Those of the first values that are texts and not empty."""
    return [value for value in values[:_LOOKED_AT] if isinstance(value, str) and value]


def texts_of(table: Table) -> str | None:
    """The expression for those columns of a DataFrame that look like texts, one or two; None if none do."""
    for seems_right in (looks_like_text, _has_words):
        found = [i for i, column in enumerate(table.columns) if seems_right(column.values)]
        if len(found) > 2:  # which of them belong together is not known: the longest
            found = [max(found, key=lambda i: _mean_length(table.columns[i].values[:_LOOKED_AT]))]
        if found:
            labels = [shown(table.labels[i]) for i in found]
            return f"df[{labels[0]}]" if len(found) == 1 else f"df[[{', '.join(labels)}]]"
    return None


def check_y_in_X(X: Any, y: Any, call: str) -> None:
    """Refuse an X of which a column is y, from which the model would read the answer, or warn of it.

    That is a column with the same values; or one with the name of y, unless it holds texts, several words a row or one
    that hardly any other row has: y may have been made from them by ``map``, which keeps the name. Of a table of more
    columns, it is refused where others look like texts; else by what reads it. Of two columns, one with another value
    for each label of y, as before a LabelEncoder, is warned of: in a toy it may be meant.

    Parameters
    ----------
    X, y : array-like
        As the user gave them. What cannot be read is left to what reads it.
    call : str
        The user's call as messages write it, such as "clf.fit".

    Raises
    ------
    ValueError

    Warns
    -----
    LabelsWarning
    """
    tables = _tables(X, y)
    if tables is None:
        return
    of_x, of_y = tables
    columns, names = [column.values for column in of_x.columns], column_names(y)
    answers = [column.values for column in of_y.columns]
    if not answers or not len(answers[0]):
        return
    rows = answers[0] if len(answers) == 1 else list(zip(*answers, strict=True))
    renamed = [_is_one_to_one(column, rows) for column in columns]
    for j, column in enumerate(columns):
        same_name = len(columns) > 1 and j < len(of_x.labels) and of_x.labels[j] in names
        only_warned_of, otherwise = False, ""
        if len(answers) == 1 and _are_equal(column, rows):
            what, labels = "is y", _label_of(of_x, j)
        elif same_name and not _has_words(column) and not _are_mostly_different(column):
            what, labels = "has the name of y", "y" if len(names) == 1 else ""
            if len(names) == 1 and _strings(column):
                otherwise = " If it holds texts that the model is to read, give y without a name: y.rename(None)."
        elif renamed[j] and not all(renamed):
            what, labels = "tells y: it has another value for each of y's", _expression(y, "y")
            only_warned_of = len(columns) <= 2
        else:
            continue
        message = _y_in_X(of_x, j, what, labels or _expression(y, "y"), call)
        if message is None:
            continue
        if not only_warned_of:
            raise ValueError(message + otherwise)
        warn_user(message, LabelsWarning)


def _label_of(table: Table, j: int) -> str:
    return f"df[{_quoted(table.labels[j])}]" if table.labels else ""


def _y_in_X(table: Table, j: int, what: str, labels: str, call: str) -> str | None:
    """The message for a column of X that is y; None where no other one is known to hold the texts."""
    read = "so the model would read the answer there, and its scores would mean nothing."
    if len(table.columns) == 1:
        return f"X {what}: the same values in every row, {read} Give the texts as X: {call}(texts, {labels})."
    if len(table.columns) == 2:
        texts = f"df[{_quoted(table.labels[1 - j])}]" if table.labels else f"[row[{1 - j}] for row in X]"
    else:
        others = [k for k in range(len(table.columns)) if k != j]
        rest = [table.columns[k] for k in others]
        if not table.labels or (found := texts_of(Table(rest, table.shape, [table.labels[k] for k in others]))) is None:
            return None
        texts = found
    column = f"X's column {shown(table.labels[j])}" if table.labels else f"Column {j} of X"
    return f"{column} {what}, {read} Give the texts alone: {call}({texts}, {labels})."


def refuse_swapped(X: Any, y: Any, call: str) -> None:
    """Refuse labels as X and texts, or pairs of them, as y.

    X holds few values or no texts; y texts that are nearly all different, or most of which come two times or so, and
    which are far more than the values of X.

    Raises
    ------
    ValueError
    """
    tables = _tables(X, y)
    if tables is None or len(tables[0].columns) != 1 or len(tables[1].columns) not in (1, 2):
        return
    labels, texts = tables[0].columns[0].values, max((column.values for column in tables[1].columns), key=_mean_length)
    n_rows = len(texts)
    if len(labels) != n_rows or n_rows < _LEAST_ROWS_OF_SWAPPED or not _has_words(texts):
        return
    if not all(isinstance(text, str) for column in tables[1].columns for text in column.values):
        return
    labels = [label for label in labels if not is_missing(label) and (not isinstance(label, str) or label.strip())]
    strings = [label for label in labels if isinstance(label, str)]
    n_labels, n_texts = len(set(map(str, labels))), len(set(texts))
    repeat_rarely = n_texts >= max(2 * n_labels, _TWICE_OR_SO * n_rows)
    if len(labels) < _LEAST_ROWS_OF_SWAPPED or not (n_texts >= _NEARLY_ALL * n_rows or repeat_rarely):
        return
    few = n_labels <= n_rows / 2 and _mean_length(strings) < _mean_length(texts)
    if not strings or few:
        raise ValueError(
            f"X and y are exchanged: X holds {n_labels} different values, such as {shown(labels[0])}, and y {n_texts} "
            f"different texts, such as {shown(texts[0])}. Texts go first: {call}({_expression(y, 'y')}, "
            f"{_expression(X, 'X')})."
        )


def refuse_answers_as_questions(X: Any, y: Any, call: str) -> None:
    """Refuse answers as X and questions as y: of two columns each, X has one of whole numbers and y has texts alone.

    Raises
    ------
    ValueError
    """
    tables = _tables(X, y, of_texts=False)
    if tables is None:
        return
    of_x, of_y = tables
    if len(of_x.columns) != 2 or len(of_y.columns) != 2 or not len(of_x.columns[0].values):
        return
    has_starts = any(all(isinstance(value, Integral) for value in column.values) for column in of_x.columns)
    if has_starts and all(isinstance(value, str) for column in of_y.columns for value in column.values):
        raise ValueError(
            "X and y are exchanged: X has a column of whole numbers, as the starts of answers are, and y holds texts "
            f"alone. Questions and contexts go first: {call}({_expression(y, 'y')}, {_expression(X, 'X')})."
        )


def warn_of_other_order(X: Any, values: Any, what: str = "y", of: str = "") -> None:
    """Warn of labels or weights that have the index of X in another order, or a part of it and other rows.

    Rows are taken by their position, as in scikit-learn. An index that has nothing in common with that of X may be
    that of new objects, and so may one that counts the rows from 0, unless the other is a slice of such.

    Parameters
    ----------
    X, values : array-like
        As the user gave them.
    what : str
        The parameter that ``values`` are of.
    of : str
        What stands before it, and before X, in messages: "eval_set's ".
    """
    of_X: Any = getattr(X, "index", None)
    other: Any = getattr(values, "index", None)
    if not hasattr(of_X, "nlevels") or not hasattr(other, "nlevels") or of_X.equals(other):  # lists have a method
        return
    try:
        if len(of_X) != len(other) or of_X.nlevels != other.nlevels or not of_X.is_unique or not other.is_unique:
            return
        n_shared = int(other.isin(of_X).sum())
    except (TypeError, ValueError):  # of values that do not compare, or have no hash
        return
    if 0 < n_shared < len(other) and not _is_renumbered(of_X, other):
        warn_user(
            f"{of}{what} shares {n_shared} of its {len(other)} index labels with {of}X: they seem to be other rows of "
            "one table. Rows are taken by their position, whatever the index says. Take both from the same rows; if "
            f"they are, write {what} = {what}.set_axis(X.index).",
            LabelsWarning,
        )
    if n_shared == len(other):
        warn_user(
            f"{of}{what} has the index of {of}X, in another order. Rows are taken by their position, whatever the "
            f"index says. If it says which belong together, write {what} = {what}.loc[X.index].",
            LabelsWarning,
        )


def _is_renumbered(one: Any, other: Any) -> bool:
    """Whether one of two indexes counts the rows from 0, and the other is no slice of such, which has a start."""
    counted = [index.nlevels == 1 and np.array_equal(index, np.arange(len(index))) for index in (one, other)]
    pairs = zip(counted, (one, other), strict=True)
    return any(counted) and any(not is_counted and not hasattr(index, "start") for is_counted, index in pairs)


def warn_of_unknown_labels(labels: np.ndarray, classes: np.ndarray) -> None:
    """Warn where a model is scored by labels of which it knows none.

    Warns
    -----
    LabelsWarning
    """
    found = list(dict.fromkeys(labels.tolist()))
    if len(labels) >= _LEAST_ROWS_OF_SWAPPED and set(found).isdisjoint(classes.tolist()):
        warn_user(
            f"y has no label that the model knows: y has {listed(found, shown, 3)}, and the model "
            f"{listed(classes.tolist(), shown, 3)}. So no answer can be right.",
            LabelsWarning,
        )


def check_labels(labels: np.ndarray, y: Any) -> None:
    """Refuse or warn of labels that look like something else: lists of labels in strings, free text, numbers.

    Parameters
    ----------
    labels : ndarray of shape (n_rows,)
        One for each row.
    y : array-like
        As the user gave it.

    Raises
    ------
    ValueError
        Where most labels are Python lists in strings, "['a', 'b']": a CSV file that was read again has such.

    Warns
    -----
    LabelsWarning
    """
    n_rows, classes = len(labels), sorted(set(labels.tolist()))
    if isinstance(classes[0], str):
        _check_lists_in_strings(labels.tolist(), classes, y)
    if n_rows >= _LEAST_ROWS and len(classes) > n_rows / 2:
        instead = (
            "If it holds free text or an id, choose the column with the labels."
            if isinstance(classes[0], str)
            else "If these are numbers to predict, use BertRegressor instead."
        )
        counts = Counter(labels.tolist()).values()
        once = ", most of them once" if sum(n == 1 for n in counts) > len(classes) / 2 else ""
        line = _applied(y, "{}.astype(str)", "pd.Series(y).astype(str)")
        join = f" Rare labels can be joined into one: y = {line}; y = y.where(y.map(y.value_counts()) > 2, 'other')."
        warn_user(
            f"y holds {len(classes)} different labels in {n_rows} rows{once}: a label is learned from several rows "
            f"that have it. {instead}{join if max(counts) > 2 else ''}",
            LabelsWarning,
        )


def _check_lists_in_strings(labels: list[str], classes: list[str], y: Any) -> None:
    """Refuse "['a', 'b']" where most rows are like that, and warn of "a,b" where they are or it has labels as parts."""
    lists = {label for label in classes if _is_list(label)}
    if all(map(_is_interval, lists)):
        lists = set()
    if sum(label in lists for label in labels) > len(labels) / 2:
        arrays = {label for label in lists if _ARRAY.fullmatch(label)}
        example = next(label for label in labels if label in (arrays or lists))
        if not arrays:
            line = "import ast; y = " + _applied(
                y, "{}.apply(ast.literal_eval)", "[ast.literal_eval(labels) for labels in y]"
            )
        elif "'" in example or '"' in example:
            pattern = """r"'([^']+)'\""""
            line = _applied(y, f"y = {{}}.str.findall({pattern})", f"y = [re.findall({pattern}, row) for row in y]")
        else:
            line = "y = " + _applied(
                y, 'np.array({}.str.strip("[]").str.split().tolist(), float)',
                'np.array([row.strip("[]").split() for row in y], float)',
            )  # fmt: skip
        raise ValueError(
            f"The labels of y are {'NumPy arrays' if arrays else 'lists'} written as strings, such as "
            f"{shown(example)}. Make lists of them, for several labels a row: {line}."
        )
    for mark in (",", ";", "|"):
        joined = [label for label in classes if mark in label]
        if not joined:
            continue
        in_most = sum(map(set(joined).__contains__, labels)) > len(labels) / 2
        are_joined = in_most and _are_joined(classes, mark)
        if are_joined or _come_again(classes, joined, mark) or _has_a_label_as_part(classes, joined, mark):
            spaced = {part[:1] == " " for label in joined for part in label.split(mark)[1:]}
            if len(spaced) > 1:
                pattern = rf'r"\s*{re.escape(mark)}\s*"'
                line = _applied(
                    y, f"{{}}.str.split({pattern}, regex=True)", f"[re.split({pattern}, labels) for labels in y]"
                )
            else:
                separator = f'"{mark} "' if spaced == {True} else f'"{mark}"'
                line = _applied(y, f"{{}}.str.split({separator})", f"[labels.split({separator}) for labels in y]")
            warn_user(
                f"The labels of y look like several labels in one string, such as {shown(joined[0])}, and each such "
                f"string is learned as a label of its own. For several labels a row write y = {line}.",
                LabelsWarning,
            )
            return


def refuse_lists_as_texts(texts: list[str], name: str) -> None:
    """Refuse texts of which most are lists of words that were written into a file: "['Ada', 'went']".

    Raises
    ------
    ValueError
    """
    some = texts[:_LOOKED_AT]
    found = [text for text in some if _is_list_of_words(text)]
    if len(found) > len(some) / 2:
        if _ARRAY.fullmatch(found[0]):  # Python would read it as one word
            line = f"""import re; {name} = [re.findall(r"'([^']+)'", row) for row in {name}]"""
        else:
            line = f"import ast; {name} = [ast.literal_eval(row) for row in {name}]"
        raise ValueError(
            f"The rows of {name} are lists of words written as strings, such as {shown(found[0])}. Make lists of them: "
            f"{line}."
        )


def hint_for_list_as_text(value: Any) -> str:
    """What to do about a str that looks like a list, for the end of a message; "" for any other value."""
    if isinstance(value, str) and value.lstrip().startswith("["):
        return " A list that was written into a file as text is read again by ast.literal_eval or json.loads."
    return ""


# An array of NumPy as a CSV file has it, which Python reads as no list, or as one string: "['a' 'b']", "[0 1 0]".
_QUOTED, _NUMBER = r"""(?:'[^']*'|"[^"]*")""", r"[-+.\de]+"
_ARRAY = re.compile(rf"\s*\[\s*(?:{_QUOTED}(?:\s+{_QUOTED})+|{_NUMBER}(?:\s+{_NUMBER})+)\s*\]\s*")
# Two numbers with a comma between them, in brackets of either kind: "[0, 17]", "(0, 10]".
_INTERVAL = re.compile(rf"\s*[\[(]\s*({_NUMBER})\s*,\s*({_NUMBER})\s*[\])]\s*")


def _is_list(label: str) -> bool:
    if not label.strip().startswith(("[", "(", "{")):
        return False
    if _ARRAY.fullmatch(label):
        return True
    try:
        return isinstance(ast.literal_eval(label.strip()), list | tuple | set)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return False


def _is_interval(label: str) -> bool:
    """Whether a label is two numbers in ascending order, which may be the bounds of an age or a price: "[18, 64]"."""
    bounds = _INTERVAL.fullmatch(label)
    try:
        return bounds is not None and float(bounds[1]) <= float(bounds[2])
    except ValueError:
        return False


def _is_list_of_words(text: str) -> bool:
    """Whether a text is a list of strings, as Python or NumPy writes it. "[1]" and "(a)" are texts."""
    return text.strip().startswith(("['", '["')) and _is_list(text)


def _are_joined(classes: list[str], mark: str) -> bool:
    """Whether labels are several names with a mark between them: without spaces, or with names that come again.

    "Paris, France" is one label, and "1,5" is a number.
    """
    if _are_numbers(classes, mark):
        return False
    if not any(re.search(r"\s", label) for label in classes):
        return True
    parts = [{part.strip() for part in label.split(mark)} for label in classes]
    return len(set().union(*parts)) < len(classes)


def _are_numbers(classes: list[str], mark: str) -> bool:
    """Whether the mark is a decimal point: "1,5"."""
    return mark == "," and all(re.fullmatch(r"[-+]?\d+(,\d+)?", label) for label in classes)


def _has_a_label_as_part(classes: list[str], joined: list[str], mark: str) -> bool:
    """Whether a label without spaces has another label as one of its parts: "a,b" beside "a"."""
    known, tight = set(classes), [label for label in joined if not re.search(r"\s", label)]
    return not _are_numbers(classes, mark) and any(part in known for label in tight for part in label.split(mark))


def _come_again(classes: list[str], joined: list[str], mark: str) -> bool:
    """Whether labels with a mark are made of others: of nothing but parts that other labels have too.

    Most of several are, or one that has a whole label as a part: "a, b" beside "a" and "b, c". "Paris, France" is not,
    beside "Lyon, France".
    """
    if _are_numbers(classes, mark):
        return False
    known = set(classes)
    parts = {label: {part.strip() for part in label.split(mark)} for label in classes}
    counts = Counter(part for of_label in parts.values() for part in of_label)
    made = [label for label in joined if all(part and counts[part] > 1 for part in parts[label])]
    return (len(made) >= 2 and len(made) > len(joined) / 2) or any(parts[label] & known for label in made)


def warn_of_untidy_labels(classes: Sequence[Any], y: Any) -> None:
    """Warn of several labels a row in which "" is a label, or labels differ in the spaces around them alone.

    ``"a, b".split(",")`` gives the second, and ``"".split(",")`` and ``get_dummies`` give the first.

    Warns
    -----
    LabelsWarning
    """
    names = [label for label in classes if isinstance(label, str)]
    alike = next(([label, label.strip()] for label in names if label.strip() != label and label.strip() in names), None)
    if alike:
        found = f"{alike[0]!r} and {alike[1]!r} are two labels of y, which differ in spaces alone"
        line = "[[label.strip() for label in row] for row in y]"
    elif "" in names:
        found, line = '"" is a label of y', "[[label for label in row if label] for row in y]"
    else:
        return
    if hasattr(y, "columns"):
        line = "y.T.groupby(y.columns.str.strip()).max().T" if alike else 'y.drop(columns="")'
        line = line if hasattr(y, "iloc") else f"y.to_pandas(); y = {line}"
    warn_user(f"{found}. If that is not meant, write y = {line}; a row may have no label at all.", LabelsWarning)


def warn_of_other_schemes(rows: Sequence[Sequence[str]], name: str) -> None:
    """Warn of tags that look as if they were to mark entities, and are not in BIO.

    Such are tags of BIOES or BILOU, any others beside B- or I-, and LOC beside O alone: O is the most frequent then,
    and LOC comes several times in a row. Parts of speech have an O too, and so have marks of punctuation.

    Parameters
    ----------
    rows : sequence of sequences of str
        The tags of the words of each row.
    name : str
        What messages call y.

    Warns
    -----
    LabelsWarning
    """
    counts = Counter(tag for row in rows for tag in row)
    others = sorted(tag for tag in counts if not is_bio_tag(tag))
    marks = sorted(tag for tag in counts if tag.startswith(("B-", "I-")))
    if not others:
        return
    hint = next(filter(None, map(hint_for_scheme, others)), "")
    if not marks and not (hint and "O" in counts):
        repeated = {one for row in rows for one, other in zip(row, row[1:], strict=False) if one == other}
        if counts.most_common(1)[0][0] != "O" or repeated.isdisjoint(others):
            return
    hint = hint or (
        f"{shown(others[0])} stands beside {shown([*marks, 'O'][0])}. In BIO the first word of an entity has the tag "
        "B-LOC, say, each other word of it I-LOC, and all other words O."
    )
    warn_user(
        f"{name}: the tags are not BIO tags, so they mark no entities: each is learned as the tag of one word. {hint}",
        LabelsWarning,
    )


def warn_of_one_hot(indicator: np.ndarray, y: Any) -> None:
    """Warn of an indicator matrix in which each row has exactly one label.

    Warns
    -----
    LabelsWarning
    """
    if indicator.shape[1] > 1 and len(indicator) > 1 and (indicator.sum(axis=1) == 1).all():
        if hasattr(y, "idxmax"):
            line = "y.idxmax(axis=1)"
        elif is_sparse(y):
            line = "np.asarray(y.argmax(axis=1)).ravel()"
        else:
            line = "y.argmax(axis=1)" if isinstance(y, np.ndarray) else "np.argmax(y, axis=1)"
        warn_user(
            "Each row of y has exactly one label. It is learned as several labels a row, a yes or no for each; if a "
            f"row never has more than one, a plain column of labels trains a better model: y = {line}.",
            LabelsWarning,
        )


def warn_of_far_number(numbers: NDArray[np.float64], name: str = "y") -> None:
    """Warn of a few numbers that are far from all others, as slips of the decimal point are.

    The others lie close together then.

    Parameters
    ----------
    numbers : ndarray of float64, shape (n_rows,)
    name : str, default="y"
        What messages call them.

    Warns
    -----
    LabelsWarning
        Where the standard deviation is more than three times that without one of the numbers, or a few.
    """
    if len(numbers) < _LEAST_ROWS:
        return
    logarithm = "" if numbers.min() < 0 else "; if it is right, learn the logarithm (np.log1p where some are 0)"
    with np.errstate(over="ignore", invalid="ignore"):
        numbers = numbers[np.argsort(np.abs(numbers - np.median(numbers)), kind="stable")]
        n_far, deviation = 0, numbers.std()
        for n in range(1, 1 + min(_MOST_FAR, max(1, int(_FAR_SHARE * len(numbers))))):
            others = numbers[:-n]
            if np.ptp(others) > 0 and deviation > _FAR * others.std():
                n_far, deviation = n, others.std()
    if not n_far:
        return
    others, far, times = numbers[:-n_far], numbers[-n_far:], numbers.std() / deviation
    warn_user(
        f"{name} holds {', '.join(f'{number:g}' for number in far)}, and all others are from {others.min():g} to "
        f"{others.max():g}. All are scaled by their standard deviation, which is {times:.0f} times as large as "
        f"without what is far, so that little is learned of the others. Correct it, or leave such rows out{logarithm}.",
        LabelsWarning,
    )


# --- Reading and writing


def _tables(X: Any, y: Any, of_texts: bool = True) -> tuple[Table, Table] | None:
    """X, perhaps of texts, and y as columns; None where either cannot be read."""
    try:
        for values, name in ((X, "X"), (y, "y")):
            refuse_what_has_no_rows(values, name)
        return read_table(X, "X", of_texts=of_texts), read_table(y, "y")
    except (TypeError, ValueError):
        return None


def _are_equal(values: Sequence[Any], answers: Sequence[Any]) -> bool:
    """Whether two columns have the same values, of the same types."""
    if len(values) != len(answers) or not len(values):
        return False
    return all(
        type(one) is type(other) and is_scalar(one) and (one is other or bool(one == other))
        for one, other in zip(values, answers, strict=True)
    )


def _is_one_to_one(values: Sequence[Any], answers: Sequence[Any]) -> bool:
    """Whether each value goes with one answer and each answer with one value, and both come again."""
    if len(values) != len(answers) or len(values) < _LEAST_ROWS:
        return False
    of_value: dict[Any, Any] = {}
    of_answer: dict[Any, Any] = {}
    try:
        for value, answer in zip(values, answers, strict=True):
            if of_value.setdefault(value, answer) != answer or of_answer.setdefault(answer, value) != value:
                return False
    except TypeError:  # values that cannot be compared
        return False
    return 1 < len(of_answer) <= len(answers) / 2


def _mean_length(values: Sequence[Any]) -> float:
    lengths = [len(value) for value in values if isinstance(value, str)]
    return sum(lengths) / max(len(lengths), 1)


def _expression(values: Any, otherwise: str) -> str:
    """How messages write one column or several: by name, if they have one."""
    names = column_names(values)
    if len(names) == 1:
        return f"df[{_quoted(names[0])}]"
    return f"df[[{', '.join(map(_quoted, names))}]]" if names else otherwise


def _applied(y: Any, of_series: str, of_others: str) -> str:
    """An expression of pandas's on y, for a Series; for other containers the other one."""
    expression = _expression(y, "")
    if expression:
        return of_series.format(expression if hasattr(y, "iloc") else f"{expression}.to_pandas()")
    return of_series.format("y") if hasattr(y, "str") else of_others


def _quoted(label: Any) -> str:
    return f'"{label}"' if isinstance(label, str) and '"' not in label else repr(label)
