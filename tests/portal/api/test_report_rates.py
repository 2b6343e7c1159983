"""The reports of one node are bounded: at once, in the long run, and by the distinct faults in them."""

from datetime import UTC, datetime

import pytest

from kcover.faults.fault import Fault
from kcover_portal.accounts import services as accounts
from kcover_portal.api import leaky_buckets
from kcover_portal.api.agent import app
from kcover_portal.api.agent.problem_responses import Refusal
from kcover_portal.api.agent.report_rates import (
    BURST_REPORTS,
    BYTES_PER_REPORT,
    DISTINCT_FAULTS_PER_REPORT,
    SUSTAINED_REPORTS_PER_SECOND,
    ReportRates,
)
from kcover_portal.api.leaky_buckets import LeakyBuckets
from kcover_portal.fleet.models import Cluster
from tests.portal.api.door import Door, fault, report

NODE = (1, "gpu-1")


class Clock:
    def __init__(self) -> None:
        self.at = 1_000.0

    def __call__(self) -> float:
        return self.at


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def rates(clock: Clock) -> ReportRates:
    return ReportRates(clock)


def accepted(rates: ReportRates, count: int, node: tuple[int, str] = NODE) -> int:
    """How many of so many reports at once are accepted."""
    return sum(wait_of(rates, node) == 0 for _ in range(count))


def wait_of(rates: ReportRates, node: tuple[int, str] = NODE) -> int:
    """Sends a report; returns the seconds to wait, 0 if it is accepted."""
    try:
        rates.admit(node)
    except Refusal as refusal:
        return refusal.retry_after or 0
    return 0


def test_a_burst_is_bounded_by_node(rates: ReportRates) -> None:
    assert accepted(rates, 2 * BURST_REPORTS) == BURST_REPORTS
    assert accepted(rates, 2 * BURST_REPORTS, (1, "gpu-2")) == BURST_REPORTS
    assert accepted(rates, 2 * BURST_REPORTS, (2, "gpu-1")) == BURST_REPORTS
    with pytest.raises(Refusal) as refused:
        rates.admit(NODE)
    assert (refused.value.status, refused.value.reason.code) == (429, "report_rate")


def test_the_sustained_rate_is_bounded(rates: ReportRates, clock: Clock) -> None:
    accepted(rates, BURST_REPORTS)
    total = 0
    for _ in range(600):  # a minute, ten reports each tenth of a second
        clock.at += 0.1
        total += accepted(rates, 10)
    assert total == pytest.approx(60 * SUSTAINED_REPORTS_PER_SECOND, abs=2)


def test_a_report_is_accepted_after_the_wait(rates: ReportRates, clock: Clock) -> None:
    accepted(rates, BURST_REPORTS)
    clock.at += wait_of(rates)
    assert wait_of(rates) == 0


def test_a_heartbeat_every_half_minute_is_never_refused(rates: ReportRates, clock: Clock) -> None:
    for _ in range(1_000):
        assert wait_of(rates) == 0
        clock.at += 30


def faults(count: int) -> list[Fault]:
    return [Fault(kind="other", code=f"c{number}") for number in range(count)]


def test_many_distinct_faults_count_as_several_reports(rates: ReportRates, clock: Clock) -> None:
    rates.charge(NODE, faults(1_000))
    extra = 1_000 // DISTINCT_FAULTS_PER_REPORT
    assert accepted(rates, BURST_REPORTS) == max(0, BURST_REPORTS - extra)
    rates.charge((1, "gpu-2"), [Fault(kind="xid", code=79)] * 1_000)
    rates.charge((1, "gpu-2"), faults(DISTINCT_FAULTS_PER_REPORT))
    assert accepted(rates, 2 * BURST_REPORTS, (1, "gpu-2")) == BURST_REPORTS


def test_a_large_body_counts_as_several_reports_before_it_is_decoded(rates: ReportRates, clock: Clock) -> None:
    rates.admit_body(NODE, b" " * (BYTES_PER_REPORT - 1))
    assert accepted(rates, 2 * BURST_REPORTS) == BURST_REPORTS
    clock.at += 60
    rates.admit(NODE)
    rates.admit_body(NODE, b" " * 32 * BYTES_PER_REPORT)
    with pytest.raises(Refusal) as refused:
        rates.admit_body(NODE, b" " * BYTES_PER_REPORT)
    assert refused.value.status == 429
    clock.at += refused.value.retry_after or 0
    rates.admit(NODE)
    clock.at += 60
    rates.admit_body(NODE, b"{}," * 300_000)  # takes a third of a second to decode: a quiet node may send one a minute
    assert wait_of(rates) > 50


def test_a_node_never_waits_for_longer_than_it_is_remembered(rates: ReportRates, clock: Clock) -> None:
    for _ in range(100):
        rates.charge(NODE, faults(1_000))
    assert 0 < wait_of(rates) < leaky_buckets.RETENTION_SECONDS / 2


def test_the_memory_is_bounded(rates: ReportRates, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leaky_buckets, "MAX_SENDERS", 100)
    for number in range(1_000):
        rates.admit((1, f"gpu-{number}"))
        assert len(rates) <= 200
    for _ in range(2):
        clock.at += leaky_buckets.RETENTION_SECONDS + 1
        rates.admit(NODE)
    assert len(rates) <= 2


def test_a_busy_node_is_not_forgotten(rates: ReportRates, clock: Clock) -> None:
    accepted(rates, BURST_REPORTS)
    clock.at = 1_000.0 + leaky_buckets.RETENTION_SECONDS - 1
    accepted(rates, BURST_REPORTS)
    clock.at += 1.5  # the generations change
    assert accepted(rates, BURST_REPORTS) <= 1.5 * SUSTAINED_REPORTS_PER_SECOND < BURST_REPORTS


def test_an_agent_sends_its_spool_within_half_an_hour(rates: ReportRates, clock: Clock) -> None:
    began, spooled = clock.at, 10_000
    while spooled:
        spooled -= wait_of(rates) == 0
        clock.at += 0.05
    assert clock.at - began <= 1_800


@pytest.mark.django_db(transaction=True)
def test_an_agent_that_sends_too_much_gets_429_with_retry_after(
    now: datetime, rates: ReportRates, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app, "report_rates", rates)  # time stands still
    app.known_credentials.forget()
    east = Cluster.objects.create(name="east", created_at=now)

    def door(**bound: str) -> Door:
        return Door(accounts.make_token("agent", cluster=east, created_by="t", now=datetime.now(UTC), **bound)[1])

    loud = door(node="gpu-1")
    answers = [loud.report(report()) for _ in range(BURST_REPORTS + 5)]
    last = answers[-1]
    assert {answer.status for answer in answers[:BURST_REPORTS]} == {202}
    last.problem(429)
    assert last.body["code"] == "report_rate"
    assert int(last.headers["retry-after"]) >= 1
    assert door(node="gpu-2").report(report(node="gpu-2")).status == 202
    assert door(node="gpu-1").report(report()).status == 429  # another credential of the same node
    assert loud.commands("wait=0").status == 200
    enrolling = door()
    assert {enrolling.report(report()).status for _ in range(BURST_REPORTS + 1)} == {403}  # not 429: it may not report


@pytest.mark.django_db(transaction=True)
def test_an_agent_that_sends_many_distinct_faults_may_send_fewer_reports(
    now: datetime, rates: ReportRates, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app, "report_rates", rates)  # time stands still
    app.known_credentials.forget()
    east = Cluster.objects.create(name="east", created_at=now)
    agent = Door(accounts.make_token("agent", cluster=east, node="gpu-1", created_by="t", now=datetime.now(UTC))[1])
    many = [fault(kind="other", code=f"c{number}") for number in range(BURST_REPORTS * DISTINCT_FAULTS_PER_REPORT)]
    assert agent.report(report(*many)).status == 202
    assert agent.report(report()).status == 429


def test_a_sender_is_remembered_until_its_bucket_is_empty(clock: Clock) -> None:
    events: LeakyBuckets[int] = LeakyBuckets(rate=1 / 3600, burst=20, retention=72 * 3600, clock=clock)
    events.add(1, 30)
    for hour in range(11):
        assert events.take(1, count=0) == pytest.approx((11 - hour) * 3600), hour
        clock.at += 3600
    assert events.take(1, count=0) == 0


def test_a_retention_that_would_forget_a_full_bucket_is_refused() -> None:
    with pytest.raises(ValueError, match="burst"):
        LeakyBuckets(rate=1 / 3600, burst=20)
