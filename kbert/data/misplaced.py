"""The message for an answer that does not stand in its context where it should. No Keras here."""

import re

_UNITS = (
    ("utf-8", 1, "UTF-8 bytes", "byte offsets"),
    ("utf-16-le", 2, "UTF-16 units", "offsets of JavaScript or Java"),
)


def misplaced(text: str, start: int, context: str, question: str, where: str) -> str:
    """The message for an answer that does not begin at ``start``; it says where the answer might be.

    Parameters
    ----------
    text : str
        The answer.
    start : int
        The start that was given, in characters.
    context, question : str
        Those of the answer's row.
    where : str
        What messages call this start; it begins the message.
    """
    if start == -1:
        message = f"{where} is -1, which stands for an unanswerable question, and the answer is {_quoted(text)}."
    elif start < 0:
        message = f"{where} is {start}, and characters count from 0; the answer is {_quoted(text)}."
    elif start >= len(context):
        message = (
            f"{where} is {start}, past the end of the context, which has {len(context)} characters; the answer is "
            f"{_quoted(text)}."
        )
    else:
        there = context[start : start + len(text)]
        message = f"{where} is {start}, where the context has {_quoted(there)}, and the answer is {_quoted(text)}."
    return f"{message} {_nearest(text, start, context, question)}{_encoding(text, start, context)}"


def _quoted(text: str, most: int = 60) -> str:
    # Not printable.shown, which makes all white space alike: it may be all that differs.
    return repr(text) if len(text) <= most else f"{text[: most - 3]!r}..."


def _nearest(text: str, start: int, context: str, question: str) -> str:
    """Where the answer is found, or one that is nearly the same, and what to do about it."""
    start = min(max(start, 0), len(context))
    before, after = context.rfind(text, 0, start + len(text)), context.find(text, start)
    matches = [match for match in (before, after) if match >= 0]
    if matches:
        nearest = min(matches, key=lambda match: abs(match - start))
        if context.find(text) == context.rfind(text):
            return f"It stands at {nearest}: correct the answer_start."
        return f"Its nearest occurrence is at {nearest}: correct the answer_start."
    alike = re.compile(r"\s+".join(map(re.escape, text.split())), re.IGNORECASE)
    match = min(alike.finditer(context), key=lambda match: abs(match.start() - start), default=None)
    if match:
        return (
            f"The nearest that differs in case or white space only is {_quoted(match[0])} at {match.start()}: take "
            "this text and this answer_start."
        )
    if text in question:
        return "It is not in the context, but in the question: are question and context in the right order?"
    return "It is not in the context: drop the row, or give the answer as the context has it."


def _encoding(text: str, start: int, context: str) -> str:
    """A note if the start would be right in bytes or in UTF-16 units, of which some characters have several."""
    for encoding, unit, units, called in _UNITS:
        head = context.encode(encoding, "surrogatepass")[: max(start, 0) * unit].decode(encoding, "replace")
        # The start is in this unit only if the head ends with a whole character, and is no longer than the context.
        counted = context.startswith(head) and len(head.encode(encoding, "surrogatepass")) == start * unit
        if counted and context.startswith(text, len(head)):
            end = "answer_start" if unit == 1 else "2 * answer_start"
            return (
                f" These look like {called}: counted in {units}, {start} is right, and in characters, as Python counts "
                f"them, it is {len(head)}, or len(context.encode({encoding!r})[:{end}].decode({encoding!r}))."
            )
    return ""
