"""What a happening is to a pager: which alert it opens, which it takes up, which it ends.

A pager wakes somebody once for an alert, and lets them sleep when it is over. So each happening that somebody has to
look at opens an alert, named after what it is about, and what ends that (a proof, an answer, a rescue that goes on)
ends the alert as well, whether or not anybody asked to be told of the end.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from kcover import catalog, notices

TRIGGER: Final = "trigger"
ACKNOWLEDGE: Final = "acknowledge"  # a person is at it: nobody else is woken
RESOLVE: Final = "resolve"

# What may wake somebody. The rest are ends and answers, which come by themselves, or nothing to get up for: a program's
# fault is its owner's, and a rescue that was opened is automation at work.
KINDS = tuple(kind for kind in notices.KINDS[: notices.KINDS.index("agent.silent") + 1])

# What the alert of a kind is about; those that are missing are each their own, and a person ends them.
_ABOUT: Final[Mapping[str, str]] = {
    "approval.waiting": "question",
    "rescue.human": "rescue",
    "rescue.failed": "rescue",
    "storm.opened": "incident",
    "incident.opened": "incident",
    "agent.silent": "incident",
    "automation.paused": "pause",
}
_ENDS: Final[Mapping[str, tuple[str, ...]]] = {
    "incident.closed": ("incident", "asked"),
    "agent.back": ("incident",),
    "rescue.healed": ("question", "rescue"),
    "rescue.ended": ("question", "rescue"),
    "rescue.human": ("question",),  # nobody answered in time, or it stopped elsewhere: it waits for no answer any more
    "rescue.failed": ("question",),
    "automation.resumed": ("pause",),
}
# How bad it is where the happening does not say; a rescue that waits for a person takes capacity away meanwhile.
_SEVERITIES: Final[Mapping[str, str]] = {"storm.opened": "fatal", "automation.paused": "warning"}
_ELSE: Final = "degraded"


@dataclass(frozen=True, slots=True)
class Move:
    """One change of one alert. ``alert`` names it within the installation: "incident-41"."""

    action: str
    alert: str


def name(about: str, record: int | str) -> str:
    """An alert's name."""
    return f"{about}-{record}"


def moves(happening: notices.Happening, *, key: str) -> tuple[Move, ...]:
    """What the happening does to alerts; ``key`` is its own name, for what is about nothing that ends."""
    found = []
    if happening.kind in KINDS:
        found.append(Move(TRIGGER, _named(_ABOUT.get(happening.kind, ""), happening) or key))
    for about in _ENDS.get(happening.kind, ()):
        alert = _named(about, happening)
        if alert:
            found.append(Move(RESOLVE, alert))
    return tuple(found)


def _named(about: str, happening: notices.Happening) -> str:
    """The alert that is about this; "" where it is about nothing that has an end."""
    if about == "pause":
        return name(about, happening.cluster)
    return name(about, happening.record) if about and happening.record is not None else ""


def severity(happening: notices.Happening) -> str:
    """One of ``catalog.SEVERITIES``. A drill is the least of them: nobody is woken for a fault that is made up."""
    if happening.drill:
        return catalog.SEVERITIES[0]
    known = happening.severity in catalog.SEVERITIES
    return happening.severity if known else _SEVERITIES.get(happening.kind, _ELSE)
