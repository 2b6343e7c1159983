"""Several checks that tell one fault: two alerts about one Xid, or an alert and a health event. It ends when all have.

The incident has the kind and the code of the check that told it first. Kept are all checks, once there is a second one
or one of several sources has told its end. The times are those of the sources, or of the arrival where a clock was
ahead: a clock that is put right must not keep a fault open for ever.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from django.db.models import Max
from django.db.models.functions import Coalesce, Least

from kcover.faults import fault
from kcover.sources.observation import is_of_check
from kcover_portal.incidents.models import Incident
from kcover_portal.incidents.services.source_fault import SourceFault
from kcover_portal.incidents.services.timed_fault import STATES

KINDS: Final = (*STATES, "health")  # whose sources tell the end of each check
MAX_CHECKS: Final = 20  # of an incident; what further ones tell is not awaited


class Told(NamedTuple):
    """A check as an incident keeps it. ``at``: its last fault. ``ended_at``: its end; "": it stands."""

    witness: str
    kind: str
    code: str
    at: str
    ended_at: str = ""


@dataclass(frozen=True, slots=True)
class Ended:
    """A check of a source has passed. ``at``: by the source's clock; None: it tells no time."""

    witness: str
    kind: str
    check: str
    at: datetime | None

    def is_of(self, told: Told) -> bool:
        """Returns whether this check reported the fault."""
        return (told.witness, told.kind) == (self.witness, self.kind) and is_of_check(told.code, self.check)


def columns_of(incident: Incident, fresh: Sequence[fault.Fault], *, now: datetime) -> dict[str, Any]:
    """The columns of an open incident that these faults of it change; {} while one check tells them.

    Locks the incident, because another process may keep another check at the same time.
    """
    seen = [one for one in fresh if isinstance(one, SourceFault) and one.kind in KINDS]
    is_another = any((one.kind, str(one.code)) != (incident.kind, incident.code) for one in seen)
    if not seen or not (incident.told_checks or is_another):
        return {}
    kept = _kept(incident)
    for one in seen:
        key = one.witness, one.kind, str(one.code)
        at = _text(min(one.seen_at or now, now))
        if key in kept or len(kept) < MAX_CHECKS:
            # It stands again: a fault from before its end has been left out.
            kept[key] = Told(*key, at=max(at, kept[key].at) if key in kept else at)
    return {"told_checks": [list(told) for told in kept.values()]}


def is_awaited(incident: Incident, ended: Ended) -> bool:
    """Returns whether the incident waits for the end of this check, whatever its own kind and code."""
    return any(ended.is_of(Told(*told)) for told in incident.told_checks)


def end(incident: Incident, ended: Sequence[Ended], *, witnesses: set[str], now: datetime) -> bool:
    """Keeps the ends of these checks. Returns whether every check of all ``witnesses`` has ended; they are sources.

    Locks the incident. A check that it does not keep is that of its own kind and code.
    """
    kept = _kept(incident)
    over = {
        key: told._replace(ended_at=max(_text(min(one.at or now, now)) for one in own))
        for key, told in kept.items()
        if (own := [one for one in ended if one.is_of(told) and (one.at is None or told.at <= _text(one.at))])
    }
    if over:
        kept |= over
        columns = {"told_checks": [list(told) for told in kept.values()]}
        Incident.objects.filter(pk=incident.pk, state=Incident.State.OPEN).update(**columns)
    return all(told.ended_at for told in kept.values()) and witnesses <= {told.witness for told in kept.values()}


def _kept(incident: Incident) -> dict[tuple[str, str, str], Told]:
    """The checks of the incident by witness, kind and code; at first those that told faults by its own code."""
    rows = Incident.objects.select_for_update(no_key=True).select_related(None).filter(pk=incident.pk)
    kept = [Told(*told) for told in rows.values_list("told_checks", flat=True).get()]
    if not kept:
        told_by = incident.occurrences.exclude(witness="").order_by().values("witness")
        lasts = told_by.annotate(last=Max(Coalesce(Least("seen_at", "at"), "at")))
        kept = [Told(row["witness"], incident.kind, incident.code, _text(row["last"])) for row in lasts]
    return {told[:3]: told for told in kept}


def _text(at: datetime | None) -> str:
    return at.astimezone(UTC).isoformat() if at is not None else ""  # which sorts as the times do
