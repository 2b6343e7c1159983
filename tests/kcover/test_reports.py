"""Sums of reports: they agree with each other, and with a count of every minute."""

from collections import Counter
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest
from hypothesis import given, settings, strategies as st

from kcover.reports import downtime, lemons, rescues, sums
from kcover.reports.downtime import Phase
from kcover.reports.intervals import Between, Share
from kcover.reports.records import By, Fault, Isolation, Place, Records, Repair, Run, Span, Work
from kcover.reports.survival import Lasted, times

START = datetime(2026, 1, 1, tzinfo=UTC)
MINUTE, HOUR, DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)
END = 60  # minutes of a generated history
CODES = st.sampled_from((("xid", "79"), ("sxid", "12028"), ("check", "ib_port")))
POLICIES = st.sampled_from(("", "base", "gpu"))


def at(minute: int) -> datetime:
    return START + minute * MINUTE


@st.composite
def spans(draw: st.DrawFn) -> Span:
    since = draw(st.integers(0, END - 1))
    until = draw(st.none() | st.integers(since, END + 5))
    return Span(at(since), None if until is None else at(until))


@st.composite
def places(draw: st.DrawFn, node: int) -> Place:
    listed = Span(at(draw(st.integers(-5, 10))), draw(st.none() | st.just(at(50))))
    cluster, pool = draw(st.sampled_from(("a", "b"))), draw(st.sampled_from(("", "h100")))
    price = Decimal("2.35")
    return Place(
        node=node,
        name=f"gpu-{node}",
        cluster=cluster,
        pool=pool,
        gpus=draw(st.integers(0, 8)),
        listed=listed,
        price=price,
    )


@st.composite
def faults(draw: st.DrawFn) -> Fault:
    kind, code = draw(CODES)
    device = draw(st.sampled_from(("", "0000:0a", "0000:0b")))
    node, stops, policy = draw(st.integers(1, 3)), draw(st.booleans()), draw(POLICIES)
    ruled = {"policy": policy, "rule": policy and f"{policy}#{draw(st.integers(1, 2))}"}
    return Fault(node=node, kind=kind, code=code, device=device, open=draw(spans()), stops=stops, **ruled)


@st.composite
def works(draw: st.DrawFn) -> Work:
    runs = draw(
        st.lists(st.builds(Run, st.sampled_from(("cordon", "drain", "reboot")), st.just("done"), spans()), max_size=3)
    )
    return Work(
        pk=1,
        node=draw(st.integers(1, 3)),
        cause=draw(st.just("") | CODES.map(" ".join)),
        policy=draw(POLICIES),
        rule=draw(st.sampled_from(("", "base#1", "gpu#2"))),
        by_hand=draw(st.booleans()),
        open=draw(spans()),
        state=draw(st.sampled_from(("succeeded", "failed", "cancelled"))),
        outcome=draw(st.sampled_from(("healed", "isolated"))),
        held=draw(st.lists(spans(), max_size=1)),
        runs=runs,
    )


@st.composite
def histories(draw: st.DrawFn) -> Records:
    done = draw(st.lists(works(), max_size=5))
    isolated = [Isolation(work.node, span, work) for work in done for span in draw(st.lists(spans(), max_size=1))]
    repairs = draw(st.lists(st.builds(Repair, st.integers(1, 3), spans()), max_size=2))
    return Records(
        places=[draw(places(node)) for node in (1, 2, 3)],
        faults=draw(st.lists(faults(), max_size=8)),
        works=done,
        isolations=isolated,
        repairs=repairs,
    )


def goes_on(span: Span, minute: int) -> bool:
    return span.since <= at(minute) and (span.until is None or at(minute) < span.until)


def gpus_lost(records: Records, place: Place, minute: int) -> int:
    """The definition, minute by minute."""
    isolated = any(one.node == place.node and goes_on(one.time, minute) for one in records.isolations)
    devices = {
        one.device for one in records.faults if one.stops and one.node == place.node and goes_on(one.open, minute)
    }
    if not goes_on(place.listed, minute):
        return 0
    return place.gpus if isolated or "" in devices else min(place.gpus, len(devices))


@settings(max_examples=40, deadline=None)
@given(records=histories(), since=st.integers(0, 20), until=st.integers(21, END))
def test_the_sums_agree_with_each_other_and_with_a_count_of_every_minute(
    records: Records, since: int, until: int
) -> None:
    period = {"since": at(since), "until": at(until)}
    pieces = downtime.lost(records, **period)
    counted = sum(gpus_lost(records, place, minute) for place in records.places for minute in range(since, until))
    whole = sums.total(records, pieces, **period)
    assert whole.gpu_time == counted * MINUTE
    assert whole.cost == pytest.approx(Decimal("2.35") * counted / 60)
    for by in By:
        rows = sums.by_group(records, pieces, by, **period)
        assert len({row.key for row in rows}) == len(rows)
        assert sum((row.gpu_time for row in rows), timedelta(0)) == whole.gpu_time
        assert sum((row.priced for row in rows), Counter()) == +whole.priced
        if by is not By.PHASE:
            totals = [sum(getattr(row, name) for row in rows) for name in ("faults", "recovered", "ended", "succeeded")]
            assert totals == [whole.faults, whole.recovered, whole.ended, whole.succeeded]
        if by in (By.POOL, By.CLUSTER) and len(rows) == len({(one.cluster, one.pool) for one in records.places}):
            assert sum((row.exposure for row in rows), timedelta(0)) == whole.exposure
    starts = [at(minute) for minute in range(since, until, 7)]
    buckets = sums.cut(pieces, starts, at(until))
    assert sum(sum(bucket.values()) for bucket in buckets) == whole.gpu_time // timedelta(microseconds=1)


def work(**more: object) -> Work:
    base = {
        "pk": 1,
        "node": 1,
        "cause": "xid 79",
        "policy": "gpu",
        "by_hand": False,
        "state": "succeeded",
        "outcome": "healed",
    }
    return Work(**{**base, "open": Span(at(2), at(40)), **more})  # type: ignore[arg-type]


def test_each_moment_has_one_phase_and_the_cause_of_its_isolation() -> None:
    place = Place(node=1, name="n", cluster="c", pool="", gpus=8, listed=Span(at(0)))
    runs = [
        Run("cordon", "done", Span(at(4), at(5))),
        Run("drain", "done", Span(at(5), at(9))),
        Run("reboot", "failed", Span(at(9), at(30))),
    ]
    rescue = work(runs=runs, held=[Span(at(20), at(30))])
    records = Records(
        places=[place],
        faults=[
            Fault(node=1, kind="xid", code="79", device="a", open=Span(at(0), at(50)), stops=True),
            Fault(node=1, kind="xid", code="48", device="b", open=Span(at(1), at(3)), stops=True),
            Fault(node=1, kind="xid", code="63", device="", open=Span(at(1), at(3)), stops=False),
        ],
        works=[rescue],
        isolations=[Isolation(1, Span(at(5), at(55)), rescue)],
        repairs=[Repair(1, Span(at(45), at(50)))],
    )
    found = [
        ((one.since - START) // MINUTE, one.gpus, str(one.phase), one.cause, one.policy)
        for one in downtime.lost(records, since=START, until=at(60))
    ]
    assert found == [
        (0, 1, "no_rescue", "xid 79", ""),
        (1, 2, "no_rescue", "xid 79", ""),
        (2, 2, "waiting", "xid 79", "gpu"),
        (3, 1, "waiting", "xid 79", "gpu"),
        (4, 1, "isolate", "xid 79", "gpu"),
        (5, 8, "move", "xid 79", "gpu"),
        (9, 8, "repair", "xid 79", "gpu"),
        (20, 8, "waiting", "xid 79", "gpu"),
        (30, 8, "waiting", "xid 79", "gpu"),
        (40, 8, "after_rescue", "xid 79", "gpu"),
        (45, 8, "desk", "xid 79", "gpu"),
        (50, 8, "after_rescue", "xid 79", "gpu"),
    ]


def test_every_stage_of_a_plan_has_a_phase() -> None:
    assert set(downtime.OF_STAGES) == set(downtime.Stage)
    assert set(downtime.OF_STAGES.values()) < set(Phase)


def test_isolations_follow_the_events_that_begin_and_end_them() -> None:
    first, second = work(pk=1), work(pk=2)
    events = [
        (at(1), first, True),
        (at(2), second, True),
        (at(3), second, False),
        (at(4), first, False),
        (at(5), second, True),
    ]
    found = downtime.isolations(events, gone=at(9))
    assert [(one.time, one.work) for one in found] == [(Span(at(1), at(3)), first), (Span(at(5), at(9)), second)]


def test_open_recoveries_are_censored() -> None:
    known = times(
        [Lasted(1 * HOUR), Lasted(2 * HOUR), Lasted(3 * HOUR, False), Lasted(4 * HOUR), Lasted(9 * HOUR, False)]
    )
    assert (known.number, known.ended, known.open) == (5, 3, 2)
    assert [share for _, share in known.curve] == pytest.approx([0.2, 0.4, 0.7])
    assert (known.median, known.p90) == (4 * HOUR, None)
    whole = times(Lasted(minutes * MINUTE) for minutes in range(1, 1001))
    assert (whole.median, whole.p90) == (500 * MINUTE, 900 * MINUTE)
    assert times([]).median is None


def test_intervals_are_those_of_the_tables() -> None:
    share = Share(8, 10)  # Wilson: .490 to .943
    assert (share.low, share.high) == (pytest.approx(0.490, abs=0.001), pytest.approx(0.943, abs=0.001))
    assert (Share(0, 5).low, Share(5, 5).high) == (0, 1)
    assert (Share(0, 0).value, Share(0, 0).low, Share(0, 0).high) == (None, None, None)
    mean = Between(1000, 10)  # exact Poisson: 4.80 to 18.39 events
    assert (mean.value, mean.low, mean.high) == (
        100,
        pytest.approx(1000 / 18.39, rel=0.01),
        pytest.approx(1000 / 4.80, rel=0.01),
    )
    assert (Between(1000, 0).value, Between(1000, 0).high) == (None, None)
    assert Between(1000, 0).low == pytest.approx(1000 / 3.69, rel=0.02)


def test_a_reboot_within_a_day_of_another_one_is_a_second_one() -> None:
    def reboot(since: int, until: int, state: str = "done", name: str = "reboot") -> Run:
        return Run(name, state, Span(at(since), at(until)))

    day = 24 * 60
    found = [
        work(runs=[reboot(0, 5), reboot(6, 10), reboot(11, 15, "failed")]),
        work(node=2, runs=[reboot(0, 5)]),
        work(node=2, by_hand=True, runs=[reboot(day, day + 5, name="power_cycle")]),  # by another rescue
        work(node=3, runs=[reboot(0, 5)]),
        work(node=3, runs=[reboot(day, day + 6), Run("reboot", "done", Span(at(day + 7)))]),  # a minute too late
    ]
    assert rescues.second_reboots(found, START, at(2 * day)) == Share(2, 6)
    assert rescues.second_reboots(found, at(60), at(2 * day)) == Share(1, 2), "what came before the period counts"
    assert rescues.second_reboots(found, START, at(60)) == Share(1, 4)
    assert rescues.second_reboots([], START, at(60)) == Share(0, 0)


def test_an_isolation_is_false_if_nothing_was_repaired_and_the_node_stays_sound() -> None:
    needed = [
        work(runs=[Run("reboot", "done", Span(at(5), at(9)))]),
        work(by_hand=True),  # not counted at all
        work(node=2),  # fails again
        work(node=3),  # had a repair
        work(node=4),
    ]
    records = Records(
        faults=[Fault(node=2, kind="xid", code="79", device="", open=Span(at(90)), stops=True)],
        isolations=[Isolation(one.node, Span(at(5), at(50)), one) for one in needed],
        repairs=[Repair(3, Span(at(10), at(20)))],
    )
    assert rescues.false_isolations(records, START, at(60)) == Share(1, 4)
    assert rescues.false_isolations(records, START, at(50)) == Share(0, 0)


def test_success_automation_and_steps_count_rescues_that_ended_in_the_period() -> None:
    done, broken = Span(at(1), at(2)), Span(at(3), at(4))
    found = [
        work(runs=[Run("reboot", "failed", done), Run("reboot", "done", broken), Run("drain", "skipped", done)]),
        work(touched=True),
        work(by_hand=True),
        work(outcome="isolated"),
        work(state="failed", outcome=""),
        work(state="cancelled", outcome=""),
        work(open=Span(at(2), at(70))),
        work(open=Span(at(2))),
    ]
    assert len(rescues.ended_in(found, START, at(60))) == 4
    assert rescues.automation(found, START, at(60)) == Share(1, 3)
    assert [(one.name, one.success) for one in rescues.steps(found, START, at(60))] == [("reboot", Share(1, 2))]
    waits = rescues.approval_waits([work(approvals=[HOUR, 3 * HOUR])], START, at(60))
    assert (waits.median, waits.p90) == (HOUR, 3 * HOUR)
    assert rescues.restart_times([(at(1), MINUTE), (at(90), HOUR)], START, at(60)).median == MINUTE
    early = Fault(node=1, kind="xid", code="79", device="", open=Span(at(1)), stops=True, happened_at=at(2))
    late = Fault(node=1, kind="xid", code="79", device="", open=Span(at(9)), stops=True, happened_at=at(2))
    assert rescues.detection([early, late, late]).median == 7 * MINUTE


def test_lemons_are_nodes_with_repeated_episodes_outside_of_storms() -> None:
    now = START + 365 * DAY

    def node(pk: int, days: list[int], *, storm: bool = False, gone: bool = False) -> tuple[Place, list[Fault]]:
        listed = Span(START, now - DAY if gone else None)
        place = Place(node=pk, name=f"n{pk}", cluster="c", pool="", gpus=8, listed=listed)
        opened = [now - day * DAY + more * MINUTE for day in days for more in (0, 30)]  # two faults, one episode
        return place, [
            Fault(node=pk, kind="xid", code="79", device="", open=Span(at_), stops=True, in_storm=storm)
            for at_ in opened
        ]

    nodes = [
        node(1, [3]),
        node(2, [5, 3]),
        node(3, [50, 40, 3]),
        node(4, [50, 9, 5, 3]),
        node(5, [5, 3], storm=True),
        node(6, [5, 3], gone=True),
    ]
    records = Records(places=[place for place, _ in nodes], faults=[one for _, made in nodes for one in made])
    found = lemons.lemons(records, downtime.lost(records, since=now - 56 * DAY, until=now), now=now)
    assert [(one.place.name, one.faults, one.faults_long, one.advice.code) for one in found] == [
        ("n4", 3, 4, "lemon_hold"),
        ("n2", 2, 2, "lemon_validate"),
        ("n3", 1, 3, "lemon_propose"),
    ]
    assert found[0].causes == (("xid 79", 8),)
    assert found[0].gpu_time == 8 * 50 * DAY
    assert found[0].risk.probability == found[1].risk.probability > found[2].risk.probability > found[0].risk.base
