"""Quoting: what somebody wrote, in a message about it; whole where it is short, and never longer than a line."""

from typing import Final

LONGEST: Final = 120


def shown(value: object) -> str:
    """The value as Python writes it, cut to ``LONGEST`` characters; a number of too many digits is not written out."""
    try:
        # A long text is cut first: writing all of it out to show its beginning would take as long as it is.
        text = repr(value[:LONGEST] if isinstance(value, str) and len(value) > LONGEST else value)
    except ValueError:
        return "a number of very many digits"
    whole = len(text) <= LONGEST
    return text if whole else text[: LONGEST - 3] + "..."


def plain(value: object) -> str:
    """As ``shown``, a text without its quotation marks."""
    if isinstance(value, str):
        return value if len(value) <= LONGEST else value[: LONGEST - 3] + "..."
    return shown(value)
