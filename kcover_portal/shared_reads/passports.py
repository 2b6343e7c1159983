"""The hardware passport of a part, as far as the reader may see it: places, faults, repairs, tests, risk."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from django.db.models import Q

from kcover import reasons
from kcover.machines import parts, risk
from kcover_portal.accounts import queries as accounts
from kcover_portal.checks.models import ValidatedNode
from kcover_portal.fleet.models import CheckChange
from kcover_portal.incidents.models import Incident
from kcover_portal.parts import queries
from kcover_portal.parts.models import Part, Placement
from kcover_portal.parts.queries import risks
from kcover_portal.repairs.models import Repair

MAX_ROWS = 100  # of each kind, the newest
MAX_FAULTS = 1000  # that are looked at


@dataclass(frozen=True, slots=True, kw_only=True)
class Test:
    """A test of the part: a check of it, or a validation of its node (``validation``: its id)."""

    __test__ = False

    at: datetime
    cluster: str
    node: str
    name: str
    status: str
    validation: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Passport:
    """What is known about a part. ``follows``: whether its faults follow the part or the slot; None: unknown."""

    part: Part
    placements: Sequence[Placement]
    faults: Sequence[Incident]
    repairs: Sequence[Repair]
    tests: Sequence[Test]
    risk: risk.Risk | None
    follows: reasons.Reason | None


def placements_of(who: accounts.Principal, part: Part) -> list[Placement]:
    """The placements that the reader may see, newest first."""
    rows = accounts.visible(who, Placement.objects.filter(part=part))
    return list(rows.select_related("part", "node", "cluster")[:MAX_ROWS])


def of(who: accounts.Principal, part: Part, *, now: datetime) -> Passport:
    """The passport of a part that the reader may see."""
    placements = placements_of(who, part)
    faults = list(queries.faults_of(placements)[:MAX_FAULTS])
    return Passport(
        part=part,
        placements=placements,
        faults=faults[:MAX_ROWS],
        repairs=list(accounts.visible(who, queries.repairs_of(part))[:MAX_ROWS]),
        tests=_tests(placements),
        risk=risks.of(part.kind, [fault.opened_at for fault in faults], now=now),
        follows=_follows(who, part, placements),
    )


def _follows(who: accounts.Principal, part: Part, placements: Sequence[Placement]) -> reasons.Reason | None:
    """Faults of the part by slot, and of the other parts in these slots."""
    if part.kind in queries.WHOLE_NODE:
        return None
    rows = accounts.visible(who, queries.in_slots_of(placements))
    found = []
    for row in rows[:MAX_ROWS]:
        if queries.faults_of([row]).exists():
            found.append(parts.FaultAt(serial=row.part.serial, slot=f"{row.node_name} {row.slot}"))
    return parts.follows(part.serial, found)


def _tests(placements: Sequence[Placement]) -> list[Test]:
    checks, validations = Q(pk__in=()), Q(pk__in=())
    for row in placements:
        if row.node_id is None:
            continue
        in_checks = Q(node=row.node_id, at__gte=row.since)
        in_validations = Q(node=row.node_id, validation__requested_at__gte=row.since)
        if (until := row.ended_at) is not None:
            in_checks &= Q(at__lt=until)
            in_validations &= Q(validation__requested_at__lt=until)
        if row.device:
            checks |= in_checks & Q(device__in=row.device.split(","))
        validations |= in_validations
    found = [
        Test(at=row.at, cluster=row.node.cluster.name, node=row.node.name, name=row.name, status=row.status)
        for row in CheckChange.objects.filter(checks).select_related("node__cluster")[:MAX_ROWS]
    ]
    found += [
        Test(
            at=row.validation.requested_at,
            cluster=row.node.cluster.name,
            node=row.node.name,
            name=row.validation.profile,
            status=row.state,
            validation=row.validation_id,
        )
        for row in ValidatedNode.objects.filter(validations)
        .select_related("validation", "node__cluster")
        .order_by("-pk")[:MAX_ROWS]
    ]
    return sorted(found, key=lambda test: test.at, reverse=True)[:MAX_ROWS]
