"""Which conditions of a node are faults."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from kcover.faults import fault
from kcover.sources import conditions
from kcover.sources.conditions import Condition, ConditionRule
from kcover.sources.observation import Unreadable


@pytest.fixture
def now() -> datetime:
    """Mutants run without the fixtures of tests/conftest.py."""
    return datetime(2026, 11, 21, 8, 0, tzinfo=UTC)


def read(*found: Condition, rows: tuple[ConditionRule, ...], now: datetime) -> list[tuple[str, str | int, bool]]:
    seen = conditions.read("gpu-1", found, rows, now=now)
    return [(one.kind, one.check if one.healthy else one.code, one.healthy) for one in seen]


def test_a_row_makes_a_fault_and_its_absence_a_pass(now: datetime) -> None:
    rows = (ConditionRule(type="KernelDeadlock"), ConditionRule(type="KernelReady", status="False"))
    found = (
        Condition(type="KernelDeadlock", status="True", reason="DockerHung", message="task hung"),
        Condition(type="KernelReady", status="True"),
        Condition(type="Ready", status="False"),
    )
    assert read(*found, rows=rows, now=now) == [
        ("condition", "KernelDeadlock=True/DockerHung", False),
        ("condition", "KernelReady=False", True),
    ]


@pytest.mark.parametrize("kind", ["KernelDeadlock", "KernelReady"])
def test_unknown_is_never_proof(kind: str, now: datetime) -> None:
    rows = (ConditionRule(type="KernelDeadlock"), ConditionRule(type="KernelReady", status="False"))
    assert read(Condition(type=kind, status="Unknown"), rows=rows, now=now) == []


def test_a_condition_counts_once_it_has_lasted(now: datetime) -> None:
    rows = (ConditionRule(type="Slow", lasts=timedelta(seconds=60)),)
    one = Condition(type="Slow", status="True", since=now)
    assert read(one, rows=rows, now=now + timedelta(seconds=59)) == []
    assert conditions.is_waiting([one], rows, now=now + timedelta(seconds=59))
    assert read(one, rows=rows, now=now + timedelta(seconds=60)) == [("condition", "Slow=True", False)]
    assert not conditions.is_waiting([one], rows, now=now + timedelta(seconds=60))


def test_a_clock_that_is_ahead_hides_no_condition(now: datetime) -> None:
    rows = (ConditionRule(type="Slow"),)
    one = Condition(type="Slow", status="True", since=now + timedelta(hours=3))
    assert read(one, rows=rows, now=now) == [("condition", "Slow=True", False)]


def test_the_own_table_goes_before_the_presets() -> None:
    entry = {"type": "KernelDeadlock", "status": "True", "reason": "", "for": 5, "severity": "fatal"}
    first, *others = conditions.rows_of({"table": [entry], "presets": ["node-problem-detector"]})
    assert (first.severity, first.lasts) == ("fatal", timedelta(seconds=5))
    assert {row.type for row in others} >= {"KernelDeadlock", "ReadonlyFilesystem"}
    assert len(conditions.rows_of({})) == sum(len(rows) for rows in conditions.PRESETS.values())


def test_the_presets_give_valid_codes(now: datetime) -> None:
    for rows in conditions.PRESETS.values():
        for row in rows:
            [one] = conditions.read("n", [Condition(type=row.type, status=row.status, reason="A b\n")], rows, now=now)
            assert not one.healthy
            assert fault.CODE_PHRASE.fullmatch(str(one.code))


@pytest.mark.parametrize(
    ("table", "path"),
    [
        ({}, ""),
        ([7], "0"),
        ([{}], "0/type"),
        ([{"type": "Ready"}], "0/type"),
        ([{"type": "kcover.io/Rescue"}], "0/type"),
        ([{"type": "A", "status": "Unknown"}], "0/status"),
        ([{"type": "A", "reason": "a b"}], "0/reason"),
        ([{"type": "A", "for": -1}], "0/for"),
        ([{"type": "A", "severity": "bad"}], "0/severity"),
        ([{"type": "A"}, {"type": "A", "colour": 1}], "1/colour"),
        ([{"type": "A"}] * 101, ""),
    ],
)
def test_an_invalid_table_is_refused_by_its_path(table: Any, path: str) -> None:
    with pytest.raises(Unreadable) as raised:
        conditions.table_of(table)
    assert raised.value.path == path


@pytest.mark.parametrize(
    ("told", "message", "severity", "stands"),
    [
        ({}, "task hung", "warning", True),
        ({"since": None}, "task hung", "warning", False),
        ({}, "Xid 79 in the journal", "warning", False),
        ({}, "task hung", "info", False),
        ({"status": "False"}, "task hung", "warning", False),
    ],
)
def test_a_standing_state_has_its_own_time(
    told: dict[str, Any], message: str, severity: str, stands: bool, now: datetime
) -> None:
    stated = Condition(**{"type": "Stuck", "status": "True", "message": message, "since": now, **told})
    rows = (ConditionRule(type="Stuck", severity=severity),)
    later = now + timedelta(minutes=9)
    seen = conditions.standing("gpu-1", [stated], rows, now=later)
    assert [(one.seen_at, one.earliest) for one in seen] == ([(later, now)] if stands else [])


@pytest.mark.parametrize(
    ("reason", "message", "is_own", "weight"),
    [
        ("VMEventScheduled", "Freeze Scheduled: 7 Jan 2026 12:00 GMT, DurationInSeconds: 5", False, "info"),
        ("FreezeScheduled", "", False, "info"),
        ("VMEventScheduled", "Redeploy Scheduled: 7 Jan 2026 12:00 GMT", False, "node"),
        ("VMEventScheduled", "Freeze Scheduled: 7 Jan; Redeploy Scheduled: 8 Jan", False, "node"),
        ("VMEventScheduled", "Reboot Scheduled: host freezes", False, "node"),
        ("VMEventScheduled", "Freeze Scheduled", True, "node"),
    ],
)
def test_a_pause_of_the_cloud_is_no_fault(reason: str, message: str, is_own: bool, weight: str, now: datetime) -> None:
    stated = Condition(type="VMEventScheduled", status="True", reason=reason, message=message)
    rows = (ConditionRule(type="VMEventScheduled", is_own=is_own),)
    assert [one.weight for one in conditions.read("gpu-1", [stated], rows, now=now)] == [weight]


def test_a_message_can_be_stored_whatever_its_kubelet_writes(now: datetime) -> None:
    """PostgreSQL takes no NUL: one node's message kept the conditions of all nodes out."""
    written = Condition(type="KernelDeadlock", status="True", message="a\0b", since=now)
    [seen] = conditions.read("gpu-1", [written], (ConditionRule(type="KernelDeadlock"),), now=now)
    assert seen.message == "a\N{REPLACEMENT CHARACTER}b"
