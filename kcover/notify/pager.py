"""Maps notification events to the alerts of a pager that they open, acknowledge or resolve.

A pager pages once per alert and stops when the alert is resolved. So each event that needs attention opens an alert,
named after its subject. The event that ends the subject (a proof of health, an answer, a rescue that continues)
resolves the alert, whether or not a route selects that event.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from kcover.faults import catalog
from kcover.notify import events

TRIGGER: Final = "trigger"
ACKNOWLEDGE: Final = "acknowledge"  # a person is working on it: nobody else is woken
RESOLVE: Final = "resolve"

# The kinds that may wake somebody. The others are ends and answers, which resolve alerts, or need nobody at night: a
# user program's fault concerns its owner, and an opened rescue is automation at work.
KINDS = tuple(kind for kind in events.KINDS[: events.KINDS.index("agent.silent") + 1])

# The subject of the alert that a kind opens. Kinds that are missing here open an alert of their own, which a person
# resolves.
_ALERT_SUBJECTS: Final[Mapping[str, str]] = {
    "approval.waiting": "question",
    "rescue.human": "rescue",
    "rescue.failed": "rescue",
    "job.human": "job",
    "storm.opened": "incident",
    "incident.opened": "incident",
    "agent.silent": "incident",
    "automation.paused": "pause",
    "watch.failing": "watch",
    "source.failing": "source",
    "repair.overdue": "repair",
}
_RESOLVED_SUBJECTS: Final[Mapping[str, tuple[str, ...]]] = {
    "incident.closed": ("incident", "decision"),
    "agent.back": ("incident",),
    "rescue.healed": ("question", "rescue"),
    "rescue.ended": ("question", "rescue"),
    "rescue.human": ("question",),  # the request expired, or the rescue stopped elsewhere: it needs no answer any more
    "rescue.failed": ("question",),
    "job.ended": ("job",),
    "automation.resumed": ("pause",),
    "watch.cleared": ("watch",),
    "source.cleared": ("source",),
    "repair.cleared": ("repair",),
}
# The severity of kinds whose events carry none. A rescue that waits for a person withholds capacity meanwhile.
_SEVERITIES: Final[Mapping[str, str]] = {
    "ledger.diverged": "fatal",
    "storm.opened": "fatal",
    "automation.paused": "warning",
    "source.failing": "warning",
    "repair.overdue": "warning",
}
_DEFAULT_SEVERITY: Final = "degraded"


@dataclass(frozen=True, slots=True)
class AlertChange:
    """One change of one alert. ``alert`` is its name, unique in the installation: "incident-41"."""

    action: str
    alert: str


def alert_name(subject: str, record: int | str) -> str:
    """The name of the alert about a record of this kind of subject, or about a cluster."""
    return f"{subject}-{record}"


def alert_changes(event: events.Event, *, key: str) -> tuple[AlertChange, ...]:
    """The effect of the event on alerts; ``key`` names the alert of an event without a subject."""
    changes = []
    if event.kind in KINDS:
        changes.append(AlertChange(TRIGGER, _alert(_ALERT_SUBJECTS.get(event.kind, ""), event) or key))
    for subject in _RESOLVED_SUBJECTS.get(event.kind, ()):
        alert = _alert(subject, event)
        if alert:
            changes.append(AlertChange(RESOLVE, alert))
    return tuple(changes)


def _alert(subject: str, event: events.Event) -> str:
    """The name of the alert about the subject of this event; "" if the event names no record."""
    if subject == "pause":
        return alert_name(subject, event.cluster)
    return alert_name(subject, event.record) if subject and event.record is not None else ""


def severity(event: events.Event) -> str:
    """One of ``catalog.SEVERITIES``. A drill has the lowest, because its fault is not real."""
    if event.drill:
        return catalog.SEVERITIES[0]
    known = event.severity in catalog.SEVERITIES
    return event.severity if known else _SEVERITIES.get(event.kind, _DEFAULT_SEVERITY)
