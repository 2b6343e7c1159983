"""Which events open alerts, and which events resolve them."""

from datetime import UTC, datetime

import pytest

from kcover.faults import catalog
from kcover.notify import events, pager
from kcover.notify.events import Event
from kcover.notify.pager import AlertChange

NOW = datetime(2026, 11, 21, 8, 0, tzinfo=UTC)


def event(kind: str, **more: object) -> Event:
    return Event(**{"kind": kind, "at": NOW, "cluster": "c1", "record": 7, **more})


@pytest.mark.parametrize(
    ("kind", "moves"),
    [
        ("incident.opened", [("trigger", "incident-7")]),
        ("agent.silent", [("trigger", "incident-7")]),
        ("storm.opened", [("trigger", "incident-7")]),
        ("incident.closed", [("resolve", "incident-7"), ("resolve", "decision-7")]),
        ("agent.back", [("resolve", "incident-7")]),
        ("approval.waiting", [("trigger", "question-7")]),
        ("approval.answered", []),  # of two who must say yes, this may be the first
        ("rescue.human", [("trigger", "rescue-7"), ("resolve", "question-7")]),
        ("rescue.failed", [("trigger", "rescue-7"), ("resolve", "question-7")]),
        ("rescue.healed", [("resolve", "question-7"), ("resolve", "rescue-7")]),
        ("rescue.ended", [("resolve", "question-7"), ("resolve", "rescue-7")]),
        ("automation.paused", [("trigger", "pause-c1")]),
        ("automation.resumed", [("resolve", "pause-c1")]),
        ("watch.failing", [("trigger", "watch-7")]),
        ("watch.cleared", [("resolve", "watch-7")]),
        ("source.failing", [("trigger", "source-7")]),
        ("source.cleared", [("resolve", "source-7")]),
        ("repair.overdue", [("trigger", "repair-7")]),
        ("repair.cleared", [("resolve", "repair-7")]),
        ("ledger.diverged", [("trigger", "its-own-key")]),
        ("rule.notify", [("trigger", "its-own-key")]),
        ("breaker.tripped", [("trigger", "its-own-key")]),
        ("rescue.opened", []),
        ("program.fault", []),
    ],
)
def test_each_event_changes_its_alerts(kind: str, moves: list[tuple[str, str]]) -> None:
    assert pager.alert_changes(event(kind), key="its-own-key") == tuple(AlertChange(*one) for one in moves)


def test_an_event_without_a_record_opens_its_own_alert_and_resolves_none() -> None:
    assert pager.alert_changes(event("rescue.human", record=None), key="k") == (AlertChange("trigger", "k"),)
    assert pager.alert_changes(event("rescue.healed", record=None), key="k") == ()


def test_pauses_of_cluster_and_installation_are_separate_alerts() -> None:
    assert pager.alert_changes(event("automation.paused", cluster=""), key="k") == (AlertChange("trigger", "pause-"),)


def test_exactly_the_pager_kinds_open_alerts() -> None:
    opening = [
        kind for kind in events.KINDS if any(m.action == "trigger" for m in pager.alert_changes(event(kind), key="k"))
    ]
    assert tuple(opening) == pager.KINDS
    assert set(events.URGENT_KINDS) <= set(pager.KINDS)


@pytest.mark.parametrize(
    ("one", "severity"),
    [
        (event("incident.opened", severity="fatal"), "fatal"),
        (event("incident.opened", severity="never-heard-of"), "degraded"),
        (event("agent.silent", severity="warning"), "warning"),
        (event("approval.waiting"), "degraded"),
        (event("storm.opened"), "fatal"),
        (event("ledger.diverged"), "fatal"),
        (event("watch.failing"), "degraded"),
        (event("source.failing"), "warning"),
        (event("repair.overdue"), "warning"),
        (event("incident.opened", severity="fatal", drill=True), "info"),
    ],
)
def test_severities(one: Event, severity: str) -> None:
    assert pager.severity(one) == severity
    assert severity in catalog.SEVERITIES
