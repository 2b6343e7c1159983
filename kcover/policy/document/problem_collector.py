"""Collect the problems of a document, and parse its small values: choices, labels, durations.

Nothing here stops at the first problem.
"""

import difflib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any

from kcover import reasons
from kcover.policy.document.model import Path, Problem
from kcover.reasons import Reason, Value
from kcover.values import durations
from kcover.values.kube_names import LABEL_KEY, LABEL_VALUE
from kcover.values.quote import short_repr, short_text


class ProblemCollector:
    """The problems found so far, and methods that add to them. ``own``: the apiVersion is kcover.io/v1."""

    def __init__(self, *, own: bool) -> None:
        self.found: list[Problem] = []
        self.own = own  # apiVersion kcover.io/v1

    def add(self, path: Path, code: str, /, **params: Value) -> None:
        """Adds one problem, with the reason of that code."""
        self.found.append(Problem(path, reasons.of(code, **params)))

    def check_keys(
        self, mapping: Mapping[Any, Any], allowed: Iterable[str], at: Path, *, deeper: Collection[str] = ()
    ) -> None:
        """Adds a problem for every key that is not allowed, with the most similar allowed key.

        ``deeper``: keys that each rule has; the problem says so.
        """
        known = tuple(allowed)
        for key in mapping:
            if key not in known:
                in_rule = reasons.of("belongs_in_rule", key=str(key))
                hint = in_rule if key in deeper else did_you_mean(key, known)
                self.add((*at, key), "unknown_key", key=short_repr(key), known=", ".join(known), hint=hint)

    def choice(self, mapping: Mapping[Any, Any], key: str, allowed: Sequence[str], default: str, at: Path) -> str:
        """The value of a key, one of ``allowed``; ``default`` if it is absent or invalid."""
        value = mapping.get(key, default)
        if value not in allowed:
            named = {"key": key, "value": short_repr(value), "known": ", ".join(allowed)}
            self.add((*at, key), "unknown_choice", hint=did_you_mean(value, allowed), **named)
            return default
        return str(value)

    def duration(self, key: str, value: object, at: Path) -> timedelta:
        """A duration, greater than zero; zero if it is invalid."""
        if not isinstance(value, str):
            self.add(at, "not_a_string", key=key, instead=quoting_hint(key, value))
            return timedelta()
        try:
            duration = durations.read(value) or timedelta()
        except durations.DurationError as error:
            self.found.append(Problem(at, error.reason))
            return timedelta()
        if not duration:
            self.add(at, "duration_zero", key=key)
        return duration

    def mappings(self, items: list[Any], at: Path, code: str) -> Iterator[tuple[int, Path, dict[Any, Any]]]:
        """The mappings of a list with index and path; ``code`` is the problem of any other item."""
        for index, item in enumerate(items):
            if isinstance(item, dict):
                yield index, (*at, index), item
            else:
                self.add((*at, index), code)

    def labels(self, labels: object, at: Path) -> Mapping[str, str]:
        """A mapping of labels that Kubernetes accepts."""
        if not isinstance(labels, dict):
            self.add(at, "labels_type")
            return {}
        for key, label in labels.items():
            if not isinstance(key, str) or not LABEL_KEY.fullmatch(key):
                self.add((*at, key), "label_name_invalid", name=short_repr(key))
            elif not isinstance(label, str) or not LABEL_VALUE.fullmatch(label):
                self.add((*at, key), "label_value_invalid", value=short_repr(label))
        return labels


def quoting_hint(key: str, value: object) -> Reason:
    """The text to write instead of a value that YAML did not parse as a string."""
    if key in ("waittime", "within", "cooldown", "expires", "probation"):
        if type(value) is int:
            return reasons.of("write_value", text=f"{short_text(value)}min")
        return reasons.of("write_example", text="20min")
    if isinstance(value, bool | int | float):
        return reasons.of("write_value", text=short_text(value).lower())
    return reasons.of("write_in_quotes")


def did_you_mean(word: object, known: Iterable[str]) -> Value:
    """The end of a message about an unknown name: the most similar known name, or ""."""
    spellings = {name.lower(): name for name in known}
    close = difflib.get_close_matches(short_text(word).lower(), spellings)
    return reasons.of("did_you_mean", name=spellings[close[0]]) if close else ""
