"""Sources of faults."""

from collections.abc import Mapping
from dataclasses import field
from typing import Any

from kcover.audit.base import Act
from kcover.audit.fleet import Change


class SourceAct(Act, subject="source {source}"):
    """An act on a source of faults."""

    source: str


class SourceCreated(SourceAct, verb="source.created"):
    """A source was added. ``settings``: without its token."""

    kind: str
    settings: Mapping[str, Any] = field(default_factory=dict)


class SourceChanged(SourceAct, verb="source.changed"):
    """Settings of a source were changed, or it was switched on or off. The token is named without its value."""

    changed: Mapping[str, Change]
    reason: str = ""


class SourceDeleted(SourceAct, verb="source.deleted"):
    """A source was removed."""

    kind: str
    reason: str = ""
