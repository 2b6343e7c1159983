"""The faults of a report by their identity, without those that were counted before."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from django.db.models import Max

from kcover.faults import fault
from kcover_portal.fleet.models import Node
from kcover_portal.incidents.models import Incident
from kcover_portal.incidents.services import dedup
from kcover_portal.incidents.services.fault_columns import Identity
from kcover_portal.lib.prepared import Prepared


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
    for reported in seen:
        count, counted = dedup.count(counted, reported, boot_id=boot_id)
        if count:
            fresh.append(replace(reported, count=count))
    return FaultGroup(identity=identity, incident=incident, fresh=fresh, counted=counted)


def latest_incidents(node: Node, identities: Collection[Identity]) -> dict[Identity, Incident]:
    """The latest incident of each identity, open or closed; one query."""
    if len(identities) == 1:
        [(kind, code, device)] = identities
        rows = _LATEST.rows(node=node.pk, kind=kind, code=code, device=device)
    else:
        kinds, codes, devices = (set(parts) for parts in zip(*identities, strict=True))
        of_node = Incident.objects.filter(node=node, kind__in=kinds, code__in=codes, device__in=devices).order_by()
        latest = of_node.values("kind", "code", "device").annotate(latest=Max("pk")).values("latest")
        rows = list(Incident.objects.filter(pk__in=latest).order_by())
    return {(row.kind, row.code, row.device): row for row in rows}


_LATEST = Prepared(
    lambda node, **identity: Incident.objects.filter(node=node, **identity).order_by("-pk")[:1],
    node=int,
    kind=str,
    code=str,
    device=str,
)
