"""Halves of surrogate pairs, which JSON can write and no file of UTF-8 can hold."""

from __future__ import annotations


def require_no_surrogates(text: str, where: str) -> None:
    """Raise a ValueError if a text holds half of a surrogate pair, which is no character and has no UTF-8.

    Parameters
    ----------
    text : str
    where : str
        What the message calls the text; it begins the message.
    """
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise ValueError(
            f"{where} holds a lone surrogate, {text[error.start]!r} at character {error.start}, which is no character. "
            "Repair the text: text.encode('utf-16', 'surrogatepass').decode('utf-16', 'replace')."
        ) from None
