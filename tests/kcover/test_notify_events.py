"""Which events a route selects, and how a burst becomes a few lines."""

from datetime import UTC, datetime, timedelta

import pytest

from kcover import reasons
from kcover.faults import catalog
from kcover.needs import Need
from kcover.notify import events, retries
from kcover.notify.events import Event, Route

NOW = datetime(2026, 11, 21, 8, 0, tzinfo=UTC)


def event(kind: str = "incident.opened", **more: object) -> Event:
    return Event(**{"kind": kind, "at": NOW, "cluster": "c1", "node": "gpu-1", "what": "xid 79", **more})


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
def test_a_route_matches_kind_cluster_and_severity(route: Route, severity: str, wanted: bool) -> None:
    assert events.matches(route, event(severity=severity)) is wanted


def test_events_without_a_severity_match_any_minimum() -> None:
    route = Route(kinds={"approval.waiting", "agent.silent"}, least="fatal")
    assert events.matches(route, event("approval.waiting"))
    assert events.matches(route, event("agent.silent", severity="warning"))


def test_events_of_the_installation_match_routes_of_every_cluster() -> None:
    assert events.matches(Route(kinds={"automation.paused"}, cluster="c2"), event("automation.paused", cluster=""))


def test_kinds_with_severity_and_urgent_kinds_are_kinds() -> None:
    assert set(events.KINDS_WITH_SEVERITY) < set(events.KINDS)
    assert set(events.URGENT_KINDS) < set(events.KINDS)
    assert len(set(events.KINDS)) == len(events.KINDS)


def test_three_hundred_similar_events_are_one_line() -> None:
    (line,) = events.lines(event(node=f"gpu-{n}") for n in range(300))
    assert (line.count, line.nodes[0], len(line.nodes), line.more) == (
        300,
        "gpu-0",
        events.MAX_NAMED_NODES,
        300 - events.MAX_NAMED_NODES,
    )
    assert not line.is_single


def test_a_node_that_failed_twice_is_named_once() -> None:
    (line,) = events.lines([event(), event()])
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
def test_different_events_have_separate_lines(other: dict[str, object]) -> None:
    assert len(events.lines([event(), event(**other)])) == 2


def test_different_messages_of_rules_have_separate_lines() -> None:
    texts = ("look at the fan", "call Bo", "call Bo")
    words = [event("rule.notify", because=reasons.of("quoted_text", text=text)) for text in texts]
    assert [line.count for line in events.lines(words)] == [1, 2]


def test_lines_are_sorted_by_urgency_then_age() -> None:
    later = NOW + timedelta(seconds=1)
    found = events.lines(
        [
            event("incident.closed"),
            event("rescue.failed", what="late", at=later),
            event("rescue.failed", what="early"),
            event("approval.waiting"),
        ]
    )
    assert [(one.first.kind, one.first.what) for one in found] == [
        ("approval.waiting", "xid 79"),
        ("rescue.failed", "early"),
        ("rescue.failed", "late"),
        ("incident.closed", "xid 79"),
    ]


def test_retry_delays_grow_and_end() -> None:
    tries = [retries.retry_at(n, now=NOW) for n in range(1, len(retries.RETRY_DELAYS) + 1)]
    assert tries[0] == NOW + timedelta(seconds=5)
    assert tries == sorted(tries)
    assert retries.retry_at(len(retries.RETRY_DELAYS) + 1, now=NOW) is None


def test_severities_are_compared_in_the_order_of_the_catalog() -> None:
    for index, severity in enumerate(catalog.SEVERITIES):
        assert [events.reaches(severity, least) for least in catalog.SEVERITIES] == [
            place <= index for place in range(len(catalog.SEVERITIES))
        ]
    assert events.reaches("info", "")


def test_a_requested_wait_is_granted_up_to_the_longest_delay() -> None:
    assert retries.retry_at(1, now=NOW, wait=2) == NOW + retries.RETRY_DELAYS[0]
    assert retries.retry_at(1, now=NOW, wait=90) == NOW + timedelta(seconds=90)
    assert retries.retry_at(1, now=NOW, wait=86_400) == NOW + retries.RETRY_DELAYS[-1]
    assert retries.retry_at(7, now=NOW, wait=90) is None


@pytest.mark.parametrize(
    ("after", "hours"), [(None, 12.0), (0, None), (3600, 1.0), (24 * 3600, None), (24 * 3600 - 36, 23.99)]
)
def test_the_reminder_of_an_approval_request_has_a_time(after: int | None, hours: float | None) -> None:
    at = events.reminder_at(NOW, NOW + timedelta(days=1), after=after)
    assert at == (None if hours is None else NOW + timedelta(hours=hours))
    assert events.reminder_at(NOW, NOW, after=after) is None


# The events that announce each kind of need. Each urgent event announces one, or has a reason why it does not.
ANNOUNCEMENTS = {
    Need.LEDGER: ("ledger.diverged",),
    Need.STORM: ("storm.opened",),
    Need.RESCUE: ("rescue.human", "rescue.failed"),
    Need.APPROVAL: ("approval.waiting",),
    # A fault is announced when it opens. Whether a rescue handles it is known later: then rescue.human says so.
    Need.INCIDENT: ("incident.opened", "agent.silent"),
    Need.JOB: ("job.human",),
    Need.REPAIR: ("repair.overdue",),
    Need.PART: ("part.flagged",),
    Need.WATCH: ("watch.failing",),
    Need.SOURCE: ("source.failing",),
}
URGENT_WITHOUT_NEED = {
    "breaker.tripped": "The breaker resets by itself. The faults that it holds back are needs of their own.",
    "automation.paused": "A pause is deliberate. It lasts until somebody resumes, and nothing is left undone.",
    "rule.notify": "The author of the rule decides what it is about.",
}


def test_each_kind_of_need_is_announced() -> None:
    assert set(ANNOUNCEMENTS) == set(Need)
    announcing = [kind for kinds in ANNOUNCEMENTS.values() for kind in kinds]
    assert all(ANNOUNCEMENTS.values())
    assert len(set(announcing)) == len(announcing)  # an event announces one kind of need
    assert set(announcing) <= set(events.KINDS)


def test_each_urgent_event_announces_a_need_or_has_a_documented_reason() -> None:
    announcing = {kind for kinds in ANNOUNCEMENTS.values() for kind in kinds}
    assert set(events.URGENT_KINDS) - announcing == set(URGENT_WITHOUT_NEED)
    assert all(reason.endswith(".") for reason in URGENT_WITHOUT_NEED.values())
