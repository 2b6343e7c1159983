"""Acts about what needs a person."""

from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar

from kcover.audit.base import Act, register


@dataclass(frozen=True, slots=True, kw_only=True)
class NeedAct(Act):
    """An act about a need. ``need``: the id of its cause; ``kind``: its kind; ``nodes``: those it had."""

    need: str
    kind: str
    nodes: tuple[str, ...]
    reason: str = ""

    @property
    def subject(self) -> str:
        """The need."""
        return f"need {self.need}"


@register
@dataclass(frozen=True, slots=True, kw_only=True)
class NeedAcknowledged(NeedAct):
    """Somebody has seen it and takes care."""

    VERB: ClassVar[str] = "need.acknowledged"


@register
@dataclass(frozen=True, slots=True, kw_only=True)
class NeedUnacknowledged(NeedAct):
    """Nobody takes care any more: an acknowledgement was taken back."""

    VERB: ClassVar[str] = "need.unacknowledged"


@register
@dataclass(frozen=True, slots=True, kw_only=True)
class NeedAssigned(NeedAct):
    """Somebody was made responsible. ``assignee`` "": nobody any more."""

    VERB: ClassVar[str] = "need.assigned"

    assignee: str


@register
@dataclass(frozen=True, slots=True, kw_only=True)
class NeedSnoozed(NeedAct):
    """It is out of sight until then, or until it gets worse. ``until`` None: it is back."""

    VERB: ClassVar[str] = "need.snoozed"

    until: datetime | None


@register
@dataclass(frozen=True, slots=True, kw_only=True)
class NeedNoted(NeedAct):
    """Somebody wrote a note: the reason."""

    VERB: ClassVar[str] = "need.noted"
