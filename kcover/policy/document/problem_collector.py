"""Collect the problems of a document, and parse its small values: choices, labels, durations.

Nothing here stops at the first problem.
"""

import difflib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any

from kcover import durations
from kcover.kube_names import LABEL_KEY, LABEL_VALUE
from kcover.policy.document.model import Path, Problem
from kcover.quote import short_repr, short_text


class ProblemCollector:
    """The problems found so far, and methods that add to them. ``own``: the apiVersion is kcover.io/v1."""

    def __init__(self, *, own: bool) -> None:
        self.found: list[Problem] = []
        self.own = own  # apiVersion kcover.io/v1

    def add(self, path: Path, message: str) -> None:
        """Adds one problem."""
        self.found.append(Problem(path, message))

    def check_keys(self, mapping: Mapping[Any, Any], allowed: Iterable[str], at: Path) -> None:
        """Adds a problem for every key that is not allowed, with the most similar allowed key."""
        known = tuple(allowed)
        for key in mapping:
            if key not in known:
                message = f"unknown key {short_repr(key)}: known keys are {', '.join(known)}{did_you_mean(key, known)}"
                self.add((*at, key), message)

    def choice(self, mapping: Mapping[Any, Any], key: str, allowed: Sequence[str], default: str, at: Path) -> str:
        """The value of a key, one of ``allowed``; ``default`` if it is absent or invalid."""
        value = mapping.get(key, default)
        if value not in allowed:
            message = (
                f"unknown {key} {short_repr(value)}: use one of {', '.join(allowed)}{did_you_mean(value, allowed)}"
            )
            self.add((*at, key), message)
            return default
        return str(value)

    def duration(self, key: str, value: object, at: Path) -> timedelta:
        """A duration in KCE's grammar, greater than zero; zero if it is invalid."""
        if not isinstance(value, str):
            self.add(at, f"{key} must be a string: {quoting_hint(key, value)}")
            return timedelta()
        try:
            duration = durations.parse(value) or timedelta()
        except durations.DurationError as error:
            self.add(at, str(error))
            return timedelta()
        if not duration:
            self.add(at, f'{key} must be greater than zero: write "20min" for example, or remove it')
        return duration

    def mappings(self, items: list[Any], at: Path, message: str) -> Iterator[tuple[int, Path, dict[Any, Any]]]:
        """The mappings of a list with index and path; ``message`` is the problem of any other item."""
        for index, item in enumerate(items):
            if isinstance(item, dict):
                yield index, (*at, index), item
            else:
                self.add((*at, index), message)

    def labels(self, labels: object, at: Path) -> Mapping[str, str]:
        """A mapping of labels that Kubernetes accepts."""
        if not isinstance(labels, dict):
            self.add(at, "labels must be a mapping of label names to strings")
            return {}
        for key, label in labels.items():
            if not isinstance(key, str) or not LABEL_KEY.fullmatch(key):
                self.add((*at, key), f"{short_repr(key)} is not a label name")
            elif not isinstance(label, str) or not LABEL_VALUE.fullmatch(label):
                self.add(
                    (*at, key), f'a label value must be a short string, "true" for example, not {short_repr(label)}'
                )
        return labels


def quoting_hint(key: str, value: object) -> str:
    """What to write instead of a value that YAML did not parse as a string."""
    if key in ("waittime", "within", "cooldown", "expires"):
        return f'write "{short_text(value)}min"' if type(value) is int else 'write "20min" for example'
    return f'write "{short_text(value).lower()}"' if isinstance(value, bool | int | float) else "write it in quotes"


def did_you_mean(word: object, known: Iterable[str]) -> str:
    """The end of a message about an unknown word: the most similar known word, or ""."""
    spellings = {name.lower(): name for name in known}
    close = difflib.get_close_matches(short_text(word).lower(), spellings)
    return f" (did you mean {spellings[close[0]]}?)" if close else ""
