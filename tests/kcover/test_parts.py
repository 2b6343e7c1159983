"""Who has a part that two nodes report, and whether faults follow the part or the slot."""

from datetime import UTC, datetime, timedelta

import pytest

from kcover.machines import parts
from kcover.machines.parts import Claim, FaultAt

AT = datetime(2026, 11, 21, 8, tzinfo=UTC)
SECOND = timedelta(seconds=1)


@pytest.mark.parametrize(
    ("other_seen_at", "now", "claim"),
    [
        (None, AT, Claim.MOVED),
        (AT, AT, Claim.OPEN),
        (AT + parts.RECHECK_AFTER - SECOND, AT + parts.RECHECK_AFTER, Claim.OPEN),
        (AT + parts.RECHECK_AFTER, AT + parts.RECHECK_AFTER, Claim.CONFLICT),
        (AT + parts.RECHECK_AFTER, AT + 9 * parts.SILENT_FOR, Claim.CONFLICT),
        (AT, AT + parts.SILENT_FOR - SECOND, Claim.OPEN),
        (AT, AT + parts.SILENT_FOR, Claim.MOVED),
        (AT - parts.SILENT_FOR, AT, Claim.MOVED),
    ],
)
def test_a_claim(other_seen_at: datetime | None, now: datetime, claim: Claim) -> None:
    assert parts.claim(claimed_at=AT, other_seen_at=other_seen_at, now=now) is claim


@pytest.mark.parametrize(
    ("faults", "code"),
    [
        ([], None),
        ([("A", "1")], None),
        ([("A", "1"), ("A", "1")], None),
        ([("A", "1"), ("A", "2")], "fault_follows_part"),
        ([("A", "1"), ("A", "2"), ("B", "3")], "fault_follows_part"),
        ([("A", "1"), ("A", "2"), ("B", "2")], None),
        ([("A", "1"), ("B", "1")], "fault_follows_slot"),
        ([("B", "1"), ("C", "1")], None),
    ],
)
def test_faults_follow_a_part_or_stay_with_its_slot(faults: list[tuple[str, str]], code: str | None) -> None:
    found = parts.follows("A", [FaultAt(serial=serial, slot=slot) for serial, slot in faults])
    assert (found and found.code) == code
