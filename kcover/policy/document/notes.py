"""Reading small things while collecting problems: words, labels, waits. Nothing here stops at the first mistake."""

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any

from kcover import waits
from kcover.policy.document.values import Path, Problem
from kcover.quoting import plain, shown

LABEL_KEY = re.compile(r"([a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?")
LABEL_VALUE = re.compile(r"([A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?)?")


class Notes:
    """The problems found so far, and what is shared by everything that finds them."""

    def __init__(self, *, own: bool) -> None:
        self.problems: list[Problem] = []
        self.own = own  # apiVersion kcover.io/v1

    def problem(self, path: Path, message: str) -> None:
        """Notes one mistake."""
        self.problems.append(Problem(path, message))

    def only(self, mapping: Mapping[Any, Any], allowed: Iterable[str], at: Path) -> None:
        """Notes every key that is not allowed, with the one that it resembles."""
        known = tuple(allowed)
        for key in mapping:
            if key not in known:
                message = f"unknown key {shown(key)}: known here are {', '.join(known)}{meant(key, known)}"
                self.problem((*at, key), message)

    def choice(self, mapping: Mapping[Any, Any], key: str, allowed: Sequence[str], default: str, at: Path) -> str:
        """One of the allowed words."""
        value = mapping.get(key, default)
        if value not in allowed:
            message = f"unknown {key} {shown(value)}: use one of {', '.join(allowed)}{meant(value, allowed)}"
            self.problem((*at, key), message)
            return default
        return str(value)

    def wait(self, key: str, value: object, at: Path) -> timedelta:
        """A wait in KCE's grammar, longer than nothing; nothing where it is a mistake."""
        if not isinstance(value, str):
            self.problem(at, f"{key} must be a string: {quoted(key, value)}")
            return timedelta()
        try:
            wait = waits.parse(value) or timedelta()
        except waits.WaitError as error:
            self.problem(at, str(error))
            return timedelta()
        if not wait:
            self.problem(at, f'{key} must be longer than nothing: write "20min" for example, or take it out')
        return wait

    def mappings(self, items: list[Any], at: Path, message: str) -> Iterator[tuple[int, Path, dict[Any, Any]]]:
        """The mappings of a list, with their places in it; ``message`` is the mistake of everything else there."""
        for index, item in enumerate(items):
            if isinstance(item, dict):
                yield index, (*at, index), item
            else:
                self.problem((*at, index), message)

    def labels(self, labels: object, at: Path) -> Mapping[str, str]:
        """A mapping of labels as Kubernetes takes them."""
        if not isinstance(labels, dict):
            self.problem(at, "labels is a mapping of label names to strings")
            return {}
        for key, wanted in labels.items():
            if not isinstance(key, str) or not LABEL_KEY.fullmatch(key):
                self.problem((*at, key), f"{shown(key)} is no label name")
            elif not isinstance(wanted, str) or not LABEL_VALUE.fullmatch(wanted):
                self.problem((*at, key), f'a label\'s value is a short string, "true" for example: {shown(wanted)}')
        return labels


def quoted(key: str, value: object) -> str:
    """What to write instead of a value that YAML did not read as a string."""
    if key in ("waittime", "within", "cooldown", "expires"):
        return f'write "{plain(value)}min"' if type(value) is int else 'write "20min" for example'
    return f'write "{plain(value).lower()}"' if isinstance(value, bool | int | float) else "write it in quotes"


def meant(word: object, known: Iterable[str]) -> str:
    """The end of a message about an unknown word: the known one that it resembles, if any."""
    spelled = {one.lower(): one for one in known}
    close = difflib.get_close_matches(plain(word).lower(), spelled)
    return f" (did you mean {spelled[close[0]]}?)" if close else ""
