"""Node and GPU health from faults, checks and silence."""

import itertools
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, strategies as st

from kcover.faults.fault import CHECK_STATUSES
from kcover.nodes import health, silence

NOW = datetime(2026, 11, 21, 8, 0, tzinfo=UTC)
FRESH = NOW - timedelta(seconds=10)
LONG_AGO = NOW - timedelta(hours=1)


def node(*faults: health.Fault, checks: tuple[health.Check, ...] = (), **more: object) -> health.Health:
    given = {"ready": True, "seen_at": FRESH, **more}
    return health.of_node(faults=faults, checks=checks, now=NOW, **given)


def fault(severity: str = "fatal", **more: object) -> health.Fault:
    return health.Fault(kind="xid", code="79", severity=severity, **more)


def moved(*minutes_ago: float) -> tuple[datetime, ...]:
    return tuple(NOW - timedelta(minutes=ago) for ago in minutes_ago)


@pytest.mark.parametrize(
    ("seconds", "heard"),
    [
        (0, "fresh"),
        (60, "fresh"),
        (60.1, "late"),
        (120, "late"),
        (120.1, "silent"),
        (1e6, "silent"),
        (-86_400, "fresh"),
    ],
)
def test_an_agent_is_late_after_two_intervals_and_silent_after_four(seconds: float, heard: str) -> None:
    assert silence.of(NOW - timedelta(seconds=seconds), now=NOW) == heard


def test_silence_counts_in_the_agents_own_interval() -> None:
    seen_at = NOW - timedelta(seconds=130)
    assert silence.of(seen_at, now=NOW, interval=timedelta(seconds=60)) == "late"
    assert silence.of(None, now=NOW) == "never"


def test_a_node_without_findings_is_healthy() -> None:
    assert node() == health.Health(state="healthy")


@pytest.mark.parametrize(
    ("severity", "state"),
    [
        ("fatal", "unhealthy"),
        ("degraded", "degraded"),
        ("warning", "degraded"),
        ("info", "healthy"),
    ],
)
def test_a_fault_counts_by_its_severity(severity: str, state: str) -> None:
    assert node(fault(severity)).state == state


@pytest.mark.parametrize("last", CHECK_STATUSES)
def test_inv_42_only_a_check_that_failed_speaks_against_the_node(last: str) -> None:
    """Whatever came before: five results, a minute apart, in every order. What broke or was skipped tells nothing, and
    is as if nobody had looked."""
    for before in itertools.product(CHECK_STATUSES, repeat=4):
        reported = (*before, last)
        at = [NOW - timedelta(minutes=4 - n) for n in range(5)]
        changes = [(reported[n - 1], reported[n], at[n]) for n in range(1, 5) if reported[n - 1] != reported[n]]
        check = health.Check(name="remapped", status=last, moves=health.status_moves(changes))
        bad = [status == "fail" for status in reported if status not in ("error", "skipped")]
        flaps = sum(one != other for one, other in itertools.pairwise(bad)) == 4
        found = node(checks=(check,))
        assert found.state == ("degraded" if last == "fail" or flaps else "healthy"), reported
        assert [cause.kind for cause in found.causes] == (["flapping"] if flaps else ["check"] * (last == "fail")), (
            reported
        )


@pytest.mark.parametrize(
    ("ready", "seen_at", "state"),
    [
        (True, LONG_AGO, "unknown"),
        (None, LONG_AGO, "unknown"),  # the portal cannot reach the cluster: invariant 34
        (False, LONG_AGO, "unhealthy"),
        (False, FRESH, "unhealthy"),
        (True, None, "unknown"),
        (None, FRESH, "healthy"),
    ],
)
def test_silence_is_a_fault_only_if_the_node_is_not_ready(
    ready: bool | None, seen_at: datetime | None, state: str
) -> None:
    assert node(ready=ready, seen_at=seen_at).state == state


def test_silence_during_an_outage_of_the_portal_is_unconfirmed() -> None:
    found = node(ready=None, seen_at=LONG_AGO, out_of_reach=True)
    assert [(cause.kind, cause.about, cause.state) for cause in found.causes] == [("silence", "unconfirmed", "unknown")]
    assert node(ready=None, seen_at=None, out_of_reach=True).causes[0].about == "never"
    assert node(ready=None, out_of_reach=True).state == "healthy"


def test_the_worst_comes_first_and_is_the_answer() -> None:
    found = node(fault("warning"), fault("fatal"), seen_at=LONG_AGO)
    assert [cause.state for cause in found.causes] == ["unhealthy", "degraded", "unknown"]
    assert found.state == "unhealthy"


@pytest.mark.parametrize(
    ("check", "hours", "counts"),
    [
        ("temperature", 2, True),
        ("temperature", 4, False),  # a probe tells again each hour
        ("ping", 20, True),
        ("ping", 25, False),
        ("dcgm", 1000, True),  # not run again: nobody knows that it recovered
        ("gpumem", 1000, True),
    ],
)
def test_a_check_counts_until_its_next_report_is_overdue(check: str, hours: int, counts: bool) -> None:
    assert health.counts(check, seen_at=NOW - timedelta(hours=hours), reported_at=NOW) is counts
    assert health.counts(check, seen_at=NOW - timedelta(hours=hours), reported_at=None)


@pytest.mark.parametrize(
    ("statuses", "turned"),
    [
        ("pass fail pass fail", [1, 2, 3]),
        ("pass error pass error skipped pass", []),  # invariant 42
        ("pass warn pass warn", []),
        ("pass error fail skipped warn", [2, 4]),
        ("error fail error fail", []),
        ("error pass", []),
        ("fail", []),
    ],
)
def test_a_check_turns_between_good_and_bad_only(statuses: str, turned: list[int]) -> None:
    reported = statuses.split()
    at = [NOW + timedelta(minutes=n) for n in range(len(reported))]
    changes = [(reported[n - 1], reported[n], at[n]) for n in range(1, len(reported))]
    assert health.status_moves(changes) == tuple(at[n] for n in turned)


@pytest.mark.parametrize(
    ("minutes_ago", "flaps"),
    [
        ((), False),
        ((1, 2, 3), False),
        ((1, 2, 3, 4), True),
        ((9, 12, 20, 38), True),
        ((9, 12, 20, 40), False),  # one move is too long before the last
        ((10.1, 11, 12, 13), False),  # still for long enough
    ],
)
def test_a_check_flaps_until_it_has_kept_still(minutes_ago: tuple[float, ...], flaps: bool) -> None:
    assert health.flapping(moved(*minutes_ago), now=NOW) is flaps
    found = node(checks=(health.Check(name="ping", status="pass", moves=moved(*minutes_ago)),))
    assert found.state == ("degraded" if flaps else "healthy")


def test_a_fault_that_comes_and_goes_counts_until_it_has_kept_still() -> None:
    def closed(*minutes_ago: float) -> health.Health:
        return node(fault("fatal", open=False, moves=moved(*minutes_ago)))

    assert closed(1).state == "healthy"
    assert closed(1, 3, 6).state == "healthy"
    found = closed(1, 3, 6, 9)
    assert found.state == "degraded"
    assert [(cause.kind, cause.about) for cause in found.causes] == [("flapping", "xid 79")]
    assert closed(11, 13, 16, 19).state == "healthy"
    assert node(fault("info", open=False, moves=moved(1, 2, 3, 4))).state == "healthy"
    assert node(fault("fatal", moves=moved(1, 3, 6, 9))).state == "unhealthy"  # open again


def test_a_gpu_has_the_faults_and_checks_under_each_of_its_names() -> None:
    gpus = [health.Gpu(uuid=f"GPU-{n}", names=frozenset({f"GPU-{n}", f"0000:0{n}:00"})) for n in (1, 2)]
    faults = [fault(devices=frozenset({"0000:01:00"})), fault()]
    checks = [health.Check(name="remapped", status="fail", device="GPU-2")]
    whole = node(*faults, checks=tuple(checks))
    found = [health.of_gpu(gpu, node=whole, faults=faults, checks=checks, now=NOW).state for gpu in gpus]
    assert found == ["unhealthy", "degraded"]


def test_gpus_of_a_silent_node_are_unknown() -> None:
    gpu = health.Gpu(uuid="GPU-1", names=frozenset({"GPU-1"}))
    whole = node(seen_at=LONG_AGO)
    assert health.of_gpu(gpu, node=whole, faults=[], checks=[], now=NOW).state == "unknown"


@given(st.lists(st.sampled_from(["fatal", "degraded", "warning", "info"])), st.randoms())
def test_the_order_of_faults_does_not_matter(severities: list[str], rng: object) -> None:
    faults = [fault(severity) for severity in severities]
    shuffled = faults.copy()
    rng.shuffle(shuffled)
    assert node(*faults) == node(*shuffled)
