"""Sources of faults."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from kcover.audit.base import Act, register
from kcover.audit.fleet import Change


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceAct(Act):
    """An act on a source of faults."""

    source: str

    @property
    def subject(self) -> str:
        """The source."""
        return f"source {self.source}"


@register
@dataclass(frozen=True, slots=True, kw_only=True)
class SourceCreated(SourceAct):
    """A source was added. ``settings``: without its token."""

    VERB: ClassVar[str] = "source.created"

    kind: str
    settings: Mapping[str, Any] = field(default_factory=dict)


@register
@dataclass(frozen=True, slots=True, kw_only=True)
class SourceChanged(SourceAct):
    """Settings of a source were changed, or it was switched on or off. The token is named without its value."""

    VERB: ClassVar[str] = "source.changed"

    changed: Mapping[str, Change]
    reason: str = ""


@register
@dataclass(frozen=True, slots=True, kw_only=True)
class SourceDeleted(SourceAct):
    """A source was removed."""

    VERB: ClassVar[str] = "source.deleted"

    kind: str
    reason: str = ""
