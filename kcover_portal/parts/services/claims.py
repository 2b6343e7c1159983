"""Decides who has a part that two nodes report: it moved, or one serial number is wrong.

A node that reports another node's part takes nothing over: its placement is in doubt, and counts for nothing, until
the other node stops reporting the part or falls silent. If both go on, that is a conflict, which people settle.
"""

from datetime import datetime

from django.db import transaction

from kcover import reasons
from kcover.machines import parts
from kcover.machines.parts import Claim
from kcover_portal.fleet.models import Agent
from kcover_portal.parts import queries
from kcover_portal.parts.models import Part, Placement
from kcover_portal.parts.services import flags

MAX_CLAIMS = 200  # in one sweep


def settle_claims(*, now: datetime) -> int:
    """Decides what can be decided. Returns the number of placements that are no longer claims."""
    keys = queries.claimed().order_by("pk").values_list("pk", "part_id")[:MAX_CLAIMS]
    return sum(_settle(pk, part, now=now) for pk, part in keys)


@transaction.atomic
def _settle(pk: int, part: int, *, now: datetime) -> bool:
    Part.objects.select_for_update().get(pk=part)
    row = queries.claimed().select_related("part", "node", "cluster").filter(pk=pk).first()
    if row is None:
        return False
    history = list(row.part.placements.exclude(pk=pk).select_related("node", "part").order_by("-since", "-pk"))
    held = [one for one in history if one.until is None and one.node_id != row.node_id]
    seen = dict(Agent.objects.filter(node__in=[one.node_id for one in held]).values_list("node_id", "seen_at"))
    found = {one.pk: _claim(row, one, seen, now=now) for one in held}
    if Claim.CONFLICT in found.values():
        row.doubt = Placement.Doubt.CONFLICT
        row.save(update_fields=["doubt"])
        flags.set_flags(row, [reasons.of("part_on_two_nodes", serial=row.part.serial)], now=now)
        return True
    if Claim.OPEN in found.values():
        return False
    for one in held:
        gone = (one.node.gone_at if one.node is not None else None) or seen.get(one.node_id or 0) or row.since
        Placement.objects.filter(pk=one.pk, until=None).update(until=max(one.since, min(gone, row.since)))
        one.until = max(one.since, min(gone, row.since))
    row.doubt = Placement.Doubt.NONE
    row.save(update_fields=["doubt"])
    flags.set_flags(row, flags.returned(row, history), now=now)
    return True


def _claim(row: Placement, other: Placement, seen: dict[int, datetime], *, now: datetime) -> Claim:
    gone = other.node is None or other.node.gone_at is not None
    other_seen_at = None if gone else seen.get(other.node_id or 0)
    return parts.claim(claimed_at=row.since, other_seen_at=other_seen_at, now=now)
