"""The faults of a report by their identity, without those that were counted before."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from django.db.models import Max

from kcover.faults import fault
from kcover_portal.fleet.models import Node
from kcover_portal.incidents.models import Incident
from kcover_portal.incidents.services import dedup
from kcover_portal.incidents.services.fault_readings import Identity


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultGroup:
    """The faults of one identity that were not counted before, each with the number of its new log lines.

    ``incident``: the latest of this identity. ``counted``: its counted log records, including those of these faults.
    """

    identity: Identity
    incident: Incident | None
    fresh: Sequence[fault.Fault]
    counted: dedup.Counted

    @property
    def is_open(self) -> bool:
        return self.incident is not None and self.incident.state == Incident.State.OPEN


def group_of(
    identity: Identity, seen: Sequence[fault.Fault], latest: Mapping[Identity, Incident], *, boot_id: str
) -> FaultGroup:
    """The faults of this identity. ``latest``: the incidents of ``latest_incidents``."""
    # An agent that lost its position reads the log of its boot again. Old lines are not new faults, even if their
    # incident was closed meanwhile.
    incident = latest.get(identity)
    counted: dedup.Counted = incident.counted_records if incident is not None else []
    fresh = []
    for occurrence in seen:
        count, counted = dedup.count(counted, occurrence, boot_id=boot_id)
        if count:
            fresh.append(replace(occurrence, count=count))
    return FaultGroup(identity=identity, incident=incident, fresh=fresh, counted=counted)


def latest_incidents(node: Node, identities: Collection[Identity]) -> dict[Identity, Incident]:
    """The latest incident of each identity, open or closed; one query."""
    kinds, codes, devices = (set(parts) for parts in zip(*identities, strict=True))
    rows = Incident.objects.filter(node=node, kind__in=kinds, code__in=codes, device__in=devices).order_by()
    latest = rows.values("kind", "code", "device").annotate(latest=Max("pk")).values("latest")
    return {(row.kind, row.code, row.device): row for row in Incident.objects.filter(pk__in=latest).order_by()}
