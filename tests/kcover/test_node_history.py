"""The history of a node: marks by day, and times out of service."""

from datetime import UTC, datetime, timedelta

from kcover.nodes import node_history
from kcover.nodes.node_history import DAY, MAX_NAMED, NODE, Happening, Kind, Out, Span

NOW = datetime(2026, 11, 27, 2, 13, 5, tzinfo=UTC)
SINCE, UNTIL = node_history.window(NOW)
HOUR = timedelta(hours=1)


def happening(
    at: datetime, *, lane: str = NODE, kind: Kind = Kind.FAULT, number: int = 1, bad: bool = False
) -> Happening:
    return Happening(at=at, lane=lane, kind=kind, about="incident", id=number, bad=bad)


def test_the_window_ends_with_the_hour_and_lasts_thirty_days() -> None:
    assert (datetime(2026, 11, 27, 3, tzinfo=UTC), 30 * DAY) == (UNTIL, UNTIL - SINCE)
    assert node_history.window(UNTIL - timedelta(microseconds=1)) == (SINCE, UNTIL)


def test_a_burst_is_one_mark_that_names_the_newest() -> None:
    burst = [happening(SINCE + timedelta(seconds=number), number=number) for number in range(400)]
    others = [
        happening(SINCE + DAY, number=1),
        happening(SINCE, lane="GPU-1", bad=True),
        happening(SINCE, kind=Kind.PROOF),
        happening(SINCE - HOUR),
        happening(UNTIL),
    ]
    found = node_history.marks([*burst, *others], since=SINCE)
    assert [(mark.lane, mark.kind, mark.day, mark.count, mark.bad) for mark in found] == [
        (NODE, Kind.FAULT, 0, 400, False),
        (NODE, Kind.FAULT, 1, 1, False),
        (NODE, Kind.PROOF, 0, 1, False),
        ("GPU-1", Kind.FAULT, 0, 1, True),
    ]
    assert [one.id for one in found[0].named] == list(range(399, 399 - MAX_NAMED, -1))


def test_times_that_overlap_or_nearly_touch_are_one() -> None:
    def out(since: float, until: float | None, lane: str = NODE) -> Span:
        return Span(lane, Out.FAULT, SINCE + since * HOUR, None if until is None else SINCE + until * HOUR)

    times = [
        out(5, 6),
        out(1, 3),
        out(2, 2.5),
        out(3.5, 4),
        out(20, None),
        out(30, 31),
        out(-9, -5),
        out(1, 2, "GPU-1"),
    ]
    assert node_history.spans(times, since=SINCE, until=UNTIL) == [out(1, 6), out(20, None), out(1, 2, "GPU-1")]
    assert out(-5, 72).share(since=SINCE, until=UNTIL) == (-0.0, 10.0)
    assert out(648, None).share(since=SINCE, until=UNTIL) == (90.0, 10.0)


def test_an_isolation_lasts_until_the_node_returns() -> None:
    events = [(SINCE + 3 * HOUR, False), (SINCE, True), (SINCE + HOUR, True), (SINCE - HOUR, False), (UNTIL, True)]
    assert node_history.isolations(events) == [
        Span(NODE, Out.ISOLATED, SINCE, SINCE + 3 * HOUR),
        Span(NODE, Out.ISOLATED, UNTIL, None),
    ]
