"""Which happenings wake somebody, and what lets them sleep again."""

from datetime import UTC, datetime

import pytest

from kcover import catalog, notices, paging
from kcover.notices import Happening
from kcover.paging import Move

NOW = datetime(2026, 11, 21, 8, 0, tzinfo=UTC)


def happening(kind: str, **more: object) -> Happening:
    return Happening(**{"kind": kind, "at": NOW, "cluster": "c1", "record": 7, **more})


@pytest.mark.parametrize(
    ("kind", "moves"),
    [
        ("incident.opened", [("trigger", "incident-7")]),
        ("agent.silent", [("trigger", "incident-7")]),
        ("storm.opened", [("trigger", "incident-7")]),
        ("incident.closed", [("resolve", "incident-7"), ("resolve", "asked-7")]),
        ("agent.back", [("resolve", "incident-7")]),
        ("approval.waiting", [("trigger", "question-7")]),
        ("approval.answered", []),  # of two who must say yes, this may be the first
        ("rescue.human", [("trigger", "rescue-7"), ("resolve", "question-7")]),
        ("rescue.failed", [("trigger", "rescue-7"), ("resolve", "question-7")]),
        ("rescue.healed", [("resolve", "question-7"), ("resolve", "rescue-7")]),
        ("rescue.ended", [("resolve", "question-7"), ("resolve", "rescue-7")]),
        ("automation.paused", [("trigger", "pause-c1")]),
        ("automation.resumed", [("resolve", "pause-c1")]),
        ("rule.notify", [("trigger", "its-own-key")]),
        ("breaker.tripped", [("trigger", "its-own-key")]),
        ("rescue.opened", []),
        ("program.fault", []),
    ],
)
def test_what_a_happening_does_to_alerts(kind: str, moves: list[tuple[str, str]]) -> None:
    assert paging.moves(happening(kind), key="its-own-key") == tuple(Move(*one) for one in moves)


def test_what_is_about_no_record_is_its_own_alert_and_ends_none() -> None:
    assert paging.moves(happening("rescue.human", record=None), key="k") == (Move("trigger", "k"),)
    assert paging.moves(happening("rescue.healed", record=None), key="k") == ()


def test_a_cluster_is_paused_apart_from_the_whole() -> None:
    assert paging.moves(happening("automation.paused", cluster=""), key="k") == (Move("trigger", "pause-"),)


def test_each_kind_that_may_wake_opens_an_alert_and_no_other_does() -> None:
    opening = [
        kind for kind in notices.KINDS if any(m.action == "trigger" for m in paging.moves(happening(kind), key="k"))
    ]
    assert tuple(opening) == paging.KINDS
    assert set(notices.URGENT) <= set(paging.KINDS)


@pytest.mark.parametrize(
    ("one", "severity"),
    [
        (happening("incident.opened", severity="fatal"), "fatal"),
        (happening("incident.opened", severity="never-heard-of"), "degraded"),
        (happening("agent.silent", severity="warning"), "warning"),
        (happening("approval.waiting"), "degraded"),
        (happening("storm.opened"), "fatal"),
        (happening("incident.opened", severity="fatal", drill=True), "info"),
    ],
)
def test_how_bad_it_is(one: Happening, severity: str) -> None:
    assert paging.severity(one) == severity
    assert severity in catalog.SEVERITIES
