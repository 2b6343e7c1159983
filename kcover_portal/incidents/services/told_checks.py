"""Several checks of one source that tell one fault: two alerts about one Xid, say. It ends when all have passed.

The incident has the code of the check that told it first. Kept are all checks, once there is a second one, each with
the time of its last fault by the source's clock, or when that arrived if the clock was ahead: a clock that is put right
must not keep a fault open for ever.
"""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from django.db.models import Max
from django.db.models.functions import Least

from kcover.faults import fault
from kcover.sources.observation import is_of_check
from kcover_portal.incidents.models import Incident
from kcover_portal.incidents.services.source_fault import SourceFault
from kcover_portal.incidents.services.timed_fault import STATES

KINDS: Final = (*STATES, "health")  # whose sources tell the end of each check
MAX_CHECKS: Final = 20  # of an incident; a source that has more ends it with any of them

Told = tuple[str, str, str]  # the witness, the code, and when it told its last fault


def columns_of(incident: Incident, fresh: Sequence[fault.Fault], *, now: datetime) -> dict[str, Any]:
    """The columns of an open incident that these faults of it change; {} while each source has one check."""
    seen = [one for one in fresh if isinstance(one, SourceFault) and one.kind == incident.kind in KINDS]
    if not any(incident.told_checks or str(one.code) != incident.code for one in seen):
        return {}
    kept = {(witness, code): at for witness, code, at in incident.told_checks}
    if not kept:  # the first check has told faults before
        told = incident.occurrences.exclude(witness="").order_by().values("witness")
        lasts = told.annotate(last=Max(Least("seen_at", "at")))
        kept = {(row["witness"], incident.code): _text(row["last"]) for row in lasts}
    for one in seen:
        key = one.witness, str(one.code)
        if key in kept or len(kept) < MAX_CHECKS:
            kept[key] = max(kept.get(key, ""), _text(one.seen_at and min(one.seen_at, now)))
    return {"told_checks": [[*key, at] for key, at in kept.items()]}


def has(incident: Incident, witness: str, check: str) -> bool:
    """Whether the source told the fault of the incident by this check, which may not be the one of its code."""
    return any(by == witness and is_of_check(code, check) for by, code, _ in incident.told_checks)


def pass_all(incident: Incident, witness: str, passed: Iterable[tuple[str, datetime | None]]) -> bool | None:
    """Takes the checks of the source that have passed from the incident. ``passed``: check and time of each.

    Returns whether all of them have passed now; None if the source told the fault by one check only.
    """
    own = [told for told in incident.told_checks if told[0] == witness]
    if not own:
        return None
    ended = [told for told in own if any(_has_passed(told, check, at) for check, at in passed)]
    if ended:
        left = [told for told in incident.told_checks if told not in ended]
        Incident.objects.filter(pk=incident.pk, state=Incident.State.OPEN).update(told_checks=left)
    return len(ended) == len(own)


def _has_passed(told: Told | Sequence[str], check: str, at: datetime | None) -> bool:
    return is_of_check(told[1], check) and (at is None or told[2] <= _text(at))


def _text(at: datetime | None) -> str:
    return at.astimezone(UTC).isoformat() if at is not None else ""  # which sorts as the times do
