"""The preflight gate: silence, another machine and old results are unknown, never passed."""

from datetime import UTC, datetime, timedelta

import pytest

from kcover.preflight import gate
from kcover.preflight.gate import Gate

NOW = datetime(2026, 11, 24, tzinfo=UTC)


@pytest.mark.parametrize(
    ("failed", "age", "same_machine", "found"),
    [
        (False, timedelta(0), True, Gate.PASSED),
        (False, gate.GATE_AGE - timedelta(seconds=1), True, Gate.PASSED),
        (False, gate.GATE_AGE, True, Gate.UNKNOWN),
        (False, timedelta(0), False, Gate.UNKNOWN),
        (False, None, True, Gate.UNKNOWN),
        (True, timedelta(0), True, Gate.FAILED),
        (True, None, False, Gate.FAILED),
    ],
)
def test_the_gate(failed: bool, age: timedelta | None, same_machine: bool, found: Gate) -> None:
    passed_at = None if age is None else NOW - age
    assert gate.state(failed=failed, passed_at=passed_at, same_machine=same_machine, now=NOW) is found


def test_only_known_gates_have_a_label() -> None:
    assert {one: gate.label(one) for one in Gate} == {Gate.PASSED: "passed", Gate.FAILED: "failed", Gate.UNKNOWN: None}
