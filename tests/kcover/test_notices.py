"""Who is told of what, and how a burst becomes a few lines."""

from datetime import UTC, datetime, timedelta

import pytest

from kcover import catalog, notices
from kcover.notices import Happening, Route

NOW = datetime(2026, 11, 21, 8, 0, tzinfo=UTC)


def happening(kind: str = "incident.opened", **more: object) -> Happening:
    return Happening(**{"kind": kind, "at": NOW, "cluster": "c1", "node": "gpu-1", "what": "xid 79", **more})


@pytest.mark.parametrize(
    ("route", "severity", "wanted"),
    [
        (Route(kinds={"incident.opened"}), "info", True),
        (Route(kinds={"rescue.failed"}), "fatal", False),
        (Route(kinds={"incident.opened"}, cluster="c1"), "info", True),
        (Route(kinds={"incident.opened"}, cluster="c2"), "fatal", False),
        (Route(kinds={"incident.opened"}, least="degraded"), "warning", False),
        (Route(kinds={"incident.opened"}, least="degraded"), "degraded", True),
        (Route(kinds={"incident.opened"}, least="degraded"), "fatal", True),
        (Route(kinds={"incident.opened"}, least="fatal"), "never-heard-of", True),
    ],
)
def test_a_route_wants_kinds_of_a_cluster_from_a_severity_on(route: Route, severity: str, wanted: bool) -> None:
    assert notices.wanted(route, happening(severity=severity)) is wanted


def test_what_has_no_severity_passes_the_bound() -> None:
    route = Route(kinds={"approval.waiting", "agent.silent"}, least="fatal")
    assert notices.wanted(route, happening("approval.waiting"))
    assert notices.wanted(route, happening("agent.silent", severity="warning"))


def test_what_is_about_everything_goes_to_the_routes_of_every_cluster() -> None:
    assert notices.wanted(Route(kinds={"automation.paused"}, cluster="c2"), happening("automation.paused", cluster=""))


def test_every_graded_kind_and_every_urgent_one_is_a_kind() -> None:
    assert set(notices.GRADED) < set(notices.KINDS)
    assert set(notices.URGENT) < set(notices.KINDS)
    assert len(set(notices.KINDS)) == len(notices.KINDS)


def test_three_hundred_alike_are_one_line_that_names_a_few() -> None:
    (line,) = notices.lines(happening(node=f"gpu-{n}") for n in range(300))
    assert (line.count, line.nodes[0], len(line.nodes), line.more) == (300, "gpu-0", notices.NAMED, 300 - notices.NAMED)
    assert not line.alone


def test_a_node_that_failed_twice_is_named_once() -> None:
    (line,) = notices.lines([happening(), happening()])
    assert (line.count, line.nodes, line.more) == (2, ("gpu-1",), 0)


@pytest.mark.parametrize(
    "other",
    [
        {"kind": "incident.closed"},
        {"cluster": "c2"},
        {"what": "xid 62"},
        {"severity": "fatal"},
        {"drill": True},
    ],
)
def test_what_is_not_alike_has_a_line_of_its_own(other: dict[str, object]) -> None:
    assert len(notices.lines([happening(), happening(**other)])) == 2


def test_two_words_of_rules_are_not_thrown_together() -> None:
    words = [happening("rule.notify", because=text) for text in ("look at the fan", "call Bo", "call Bo")]
    assert [line.count for line in notices.lines(words)] == [1, 2]


def test_the_most_urgent_comes_first_then_the_oldest() -> None:
    later = NOW + timedelta(seconds=1)
    found = notices.lines(
        [
            happening("incident.closed"),
            happening("rescue.failed", what="late", at=later),
            happening("rescue.failed", what="early"),
            happening("approval.waiting"),
        ]
    )
    assert [(one.first.kind, one.first.what) for one in found] == [
        ("approval.waiting", "xid 79"),
        ("rescue.failed", "early"),
        ("rescue.failed", "late"),
        ("incident.closed", "xid 79"),
    ]


def test_tries_come_ever_later_and_end() -> None:
    tries = [notices.next_try(n, now=NOW) for n in range(1, len(notices.BACK_OFF) + 1)]
    assert tries[0] == NOW + timedelta(seconds=5)
    assert tries == sorted(tries)
    assert notices.next_try(len(notices.BACK_OFF) + 1, now=NOW) is None


def test_severities_are_compared_as_the_catalogue_orders_them() -> None:
    for index, severity in enumerate(catalog.SEVERITIES):
        assert [notices.at_least(severity, least) for least in catalog.SEVERITIES] == [
            place <= index for place in range(len(catalog.SEVERITIES))
        ]
    assert notices.at_least("info", "")


def test_who_asks_for_time_gets_it_and_not_more_than_the_longest() -> None:
    assert notices.next_try(1, now=NOW, wait=2) == NOW + notices.BACK_OFF[0]
    assert notices.next_try(1, now=NOW, wait=90) == NOW + timedelta(seconds=90)
    assert notices.next_try(1, now=NOW, wait=86_400) == NOW + notices.BACK_OFF[-1]
    assert notices.next_try(7, now=NOW, wait=90) is None


@pytest.mark.parametrize(
    ("after", "hours"), [(None, 12.0), (0, None), (3600, 1.0), (24 * 3600, None), (24 * 3600 - 36, 23.99)]
)
def test_when_to_remind_of_a_question(after: int | None, hours: float | None) -> None:
    at = notices.remind_at(NOW, NOW + timedelta(days=1), after=after)
    assert at == (None if hours is None else NOW + timedelta(hours=hours))
    assert notices.remind_at(NOW, NOW, after=after) is None
