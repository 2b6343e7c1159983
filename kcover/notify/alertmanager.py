"""The alerts that a portal has at an Alertmanager: their names and labels.

Alertmanager knows an alert by its labels alone. So they are fixed when the alert opens, and its end carries the same.
"""

from typing import Final

from kcover.notify import events, pager

# The name of the portal that sent an alert. A portal takes no alert with it as a fault: it would answer itself.
PORTAL_LABEL: Final = "kcover_portal"
ALERT_LABEL: Final = "kcover_alert"  # the portal's own name of the alert; two faults of a node are two alerts
SEVERITIES: Final = {"info": "info", "warning": "warning", "degraded": "error", "fatal": "critical"}
TEST: Final = "KcoverTest"


def alert_name(kind: str) -> str:
    """The ``alertname`` of events of this kind: "KcoverIncidentOpened" of "incident.opened"."""
    return "Kcover" + "".join(word.capitalize() for word in kind.split("."))


def labels(event: events.Event, *, page: str, portal: str) -> dict[str, str]:
    """The labels of the alert that this event opens as ``page``; Alertmanager leaves out empty ones."""
    found = {
        "alertname": alert_name(event.kind),
        "severity": SEVERITIES[pager.severity(event)],
        "cluster": event.cluster,
        "node": event.node,
        "fault": event.what,
        PORTAL_LABEL: portal,
        ALERT_LABEL: page,
    }
    return {name: value for name, value in found.items() if value}
