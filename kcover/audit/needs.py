"""Acts about what needs attention."""

from datetime import datetime

from kcover.audit.base import Act


class NeedAct(Act, subject="need {need}"):
    """An act about a need. ``need``: the id of its cause; ``kind``: its kind; ``nodes``: those it had."""

    need: str
    kind: str
    nodes: tuple[str, ...]
    reason: str = ""


class NeedAcknowledged(NeedAct, verb="need.acknowledged"):
    """Somebody has seen it and takes care."""


class NeedUnacknowledged(NeedAct, verb="need.unacknowledged"):
    """Nobody takes care any more: an acknowledgement was taken back."""


class NeedAssigned(NeedAct, verb="need.assigned"):
    """Somebody was made responsible. ``assignee`` "": nobody any more."""

    assignee: str


class NeedSnoozed(NeedAct, verb="need.snoozed"):
    """It is out of sight until then, or until it gets worse. ``until`` None: it is back."""

    until: datetime | None


class NeedNoted(NeedAct, verb="need.noted"):
    """Somebody wrote a note: the reason."""
