"""Reviews of flagged parts by people."""

from datetime import datetime

from django.db import transaction

from kcover import audit, reasons
from kcover_portal.ledger import services as ledger
from kcover_portal.lib import doorbell
from kcover_portal.lib.errors import Refused
from kcover_portal.parts.models import Placement


class ReviewRefused(Refused):
    """The placement is not flagged, or no longer."""


@transaction.atomic
def review(placement: int, *, actor: str, reason: str, now: datetime) -> Placement:
    """Records that a person has looked at the part in this place. Raises ReviewRefused if nothing is to be reviewed.

    If no other node reports the part any more, a conflict ends. Otherwise it stays: the placement counts for nothing.
    """
    rows = Placement.objects.select_for_update(of=("self",)).select_related("part", "cluster", "node")
    row = rows.get(pk=placement)
    settled = row.reviewed_at is not None and (row.doubt != Placement.Doubt.CONFLICT or _is_elsewhere(row))
    if row.flagged_at is None or settled or row.until is not None:
        raise ReviewRefused(reasons.of("part_not_flagged"))
    row.reviewed_at, row.reviewed_by = now, actor
    if row.doubt == Placement.Doubt.CONFLICT and not _is_elsewhere(row):
        row.doubt = Placement.Doubt.NONE
    row.save(update_fields=["reviewed_at", "reviewed_by", "doubt"])
    act = audit.PartReviewed(
        part=row.part_id,
        kind=row.part.kind,
        serial=row.part.serial,
        node=row.node_name,
        slot=row.slot,
        reason=reason,
    )
    ledger.record(row.cluster.name, act, actor=actor, now=now)
    doorbell.publish("part", row.part_id, cluster=row.cluster.name)
    return row


def _is_elsewhere(row: Placement) -> bool:
    """Returns whether another node reports the part, too."""
    others = Placement.objects.filter(part=row.part_id, until=None).exclude(node=row.node_id)
    return others.exclude(node__gone_at__isnull=False).exists()
