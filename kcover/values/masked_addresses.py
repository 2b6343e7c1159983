"""Masks what may be a key in web addresses: user names, passwords, queries, fragments and random parts of the path.

Addresses of chat services have their key in the path. A part of the path is masked if it is long and not made of words
and short numbers. A key of fewer than 16 characters, or one that looks like words, is not recognized.
"""

import re
from collections.abc import Mapping
from typing import Any, Final

MASK: Final = "…"
ADDRESS: Final = re.compile(r"(?i)\b(https?://)([^\s\"'<>`]+)")
PARTS: Final = re.compile(r"(?:[^/?#]*@)?([^?#]*)(\?[^#]*)?(#.*)?", re.DOTALL)

SHORTEST_KEY: Final = 16  # characters of a part of the path
SEPARATORS: Final = re.compile(r"[-_.~+=:,;@%!$]+")
WORD: Final = re.compile(
    r"[0-9]{0,8}|[0-9A-Za-z]{1,5}|[a-z]{1,19}|[A-Z]{1,19}|(?=[A-Za-z]{1,30}$)[A-Z]?[a-z]+([A-Z][a-z]{2,})+"
)


def has_key(address: str) -> bool:
    """Returns whether an address has parts that are masked."""
    return mask_text(address) != address


def contains_key(value: Any) -> bool:
    """Returns whether an address in the texts of a JSON value has parts that are masked."""
    if isinstance(value, Mapping):
        return any(map(contains_key, value.values()))
    if isinstance(value, list | tuple):
        return any(map(contains_key, value))
    return isinstance(value, str) and has_key(value)


def mask_text(text: str) -> str:
    """Returns the text with each address in it masked: ``https://…@host/path?…``."""
    return ADDRESS.sub(_masked, text)


def mask(value: Any) -> Any:
    """Returns a JSON value with all addresses in its texts masked; keys stay."""
    if isinstance(value, str):
        return mask_text(value)
    if isinstance(value, Mapping):
        return {key: mask(part) for key, part in value.items()}
    return [mask(part) for part in value] if isinstance(value, list | tuple) else value


def _masked(found: "re.Match[str]") -> str:
    scheme, rest = found.groups()
    parts = PARTS.fullmatch(rest)
    if parts is None:
        return f"{scheme}{MASK}"
    user = f"{MASK}@" if "@" in re.split(r"[/?#]", rest, maxsplit=1)[0] else ""
    tail = [f"{part[0]}{MASK}" if part[1:] else part for part in (parts[2] or "", parts[3] or "")]
    host, *path = parts[1].split("/")
    shown = "/".join([host, *(MASK if _may_be_key(part) else part for part in path)])
    return f"{scheme}{user}{shown}" + "".join(tail)


def _may_be_key(part: str) -> bool:
    """Returns whether a part of a path is long and not made of words and short numbers."""
    return len(part) >= SHORTEST_KEY and not all(map(WORD.fullmatch, SEPARATORS.split(part)))
