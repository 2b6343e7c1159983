"""Quote user input in error messages: whole if it is short, and never longer than a line."""

from typing import Final

MAX_CHARACTERS: Final = 120


def short_repr(value: object) -> str:
    """``repr(value)`` cut to ``MAX_CHARACTERS``; an integer with too many digits for Python is described instead."""
    try:
        # Cut a long text before repr: repr of the whole text would take time in proportion to its length.
        text = repr(value[:MAX_CHARACTERS] if isinstance(value, str) and len(value) > MAX_CHARACTERS else value)
    except ValueError:
        return "a number with very many digits"
    fits = len(text) <= MAX_CHARACTERS
    return text if fits else text[: MAX_CHARACTERS - 3] + "..."


def short_text(value: object) -> str:
    """Like ``short_repr``, but a string has no quotation marks."""
    if isinstance(value, str):
        return value if len(value) <= MAX_CHARACTERS else value[: MAX_CHARACTERS - 3] + "..."
    return short_repr(value)
