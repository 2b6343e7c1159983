"""Bounds the open incidents of a node. One overflow incident counts the faults beyond the bounds.

An agent's credential can report any number of distinct faults. Without bounds, one node would delay the ingest and the
decisions of all nodes. No rule acts on the overflow incident unless it names its kind.
"""

import hashlib
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from django.db.models import Count, Q, QuerySet

from kcover import reasons
from kcover.faults import fault
from kcover_portal.fleet.models import Node
from kcover_portal.incidents.models import Incident
from kcover_portal.incidents.services.fault_columns import FaultColumns, Identity, message_columns, weight, worst_of
from kcover_portal.incidents.services.fault_groups import FaultGroup
from kcover_portal.lib.prepared import Prepared

MAX_OPEN_INCIDENTS_PER_KIND = 64  # of one node; twice: of real faults, and of the others together
MAX_OPEN_INCIDENTS_PER_KIND_OF_PARKED_NODE = 8  # of a node that the cluster does not list; twice as well
MAX_FAULTS_PER_REPORT = 64  # distinct faults that get or update incidents of their own
MAX_DISTINCT_FAULTS = 1_024  # that an overflow incident tells apart
DIGEST_BYTES = 5  # of a fault's identity

IDENTITY: Identity = (fault.OVERFLOW, "distinct-faults", "")
Place = tuple[str, bool]  # the kind of an incident, and whether it is of a real fault


def open_by_kind(nodes: Collection[int]) -> dict[int, Counter[Place]]:
    """The number of open incidents of nodes (by key) by place; one query. Nodes without incidents are left out."""
    found: dict[int, Counter[Place]] = {}
    rows = _OPEN_ON_NODE.rows(node=next(iter(nodes))) if len(nodes) == 1 else _counted(Q(node__in=nodes))
    for node, kind, is_user_fault, severity, drill, count in rows:
        is_real = _is_real({"is_user_fault": is_user_fault, "severity": severity}, drill=drill)
        found.setdefault(node or 0, Counter())[kind, is_real] += count
    return found


def _counted(nodes: Q) -> QuerySet[Incident, tuple[Any, ...]]:
    """The open incidents of nodes: their number by node, kind, and what tells whether a fault is real."""
    rows = Incident.objects.filter(nodes, state=Incident.State.OPEN).order_by()
    return rows.values_list("node_id", "kind", "is_user_fault", "severity", "drill").annotate(count=Count("pk"))


_OPEN_ON_NODE: Prepared[tuple[Any, ...]] = Prepared(lambda node: _counted(Q(node=node)), node=int)


def limit_of(node: Node) -> int:
    """The number of incidents of one kind that the node may have open: so many of real faults, and of others."""
    return MAX_OPEN_INCIDENTS_PER_KIND if node.in_cluster else MAX_OPEN_INCIDENTS_PER_KIND_OF_PARKED_NODE


def _is_real(worst: FaultColumns, *, drill: bool) -> bool:
    """Returns whether the fault takes a place of the real faults, which users' programs must not be able to fill."""
    return not drill and not worst["is_user_fault"] and worst["severity"] != "info"


def exceeding(groups: Sequence[FaultGroup], *, open_now: Mapping[Place, int], limit: int) -> set[Identity]:
    """The faults of one report that are only counted in the overflow incident.

    ``open_now``: the node's open incidents by place. ``limit``: see ``limit_of``. If there is not room for all, the
    worst faults go first; of equally bad ones, those without an open incident.
    """
    ranked = []
    for group in groups:
        worst = worst_of(group.fresh)
        is_real = _is_real(worst, drill=all(reported.drill for reported in group.fresh))
        ranked.append(((is_real, weight(worst), not group.is_open), group))
    beyond = set()
    opened: Counter[Place] = Counter()
    kept = 0
    for (is_real, _, _), group in sorted(ranked, key=lambda pair: pair[0], reverse=True):
        place = group.identity[0], is_real
        is_room = group.is_open or open_now.get(place, 0) + opened[place] < limit
        if is_room and kept < MAX_FAULTS_PER_REPORT:
            opened[place] += not group.is_open
            kept += 1
        else:
            beyond.add(group.identity)
    return beyond


def in_log_order(seen: Iterable[fault.Fault]) -> list[fault.Fault]:
    """The faults by their log records, so that the gaps between the counted records stay few."""
    return sorted(seen, key=lambda row: row.records[-1][1] if row.records else row.sequence or 0)


def columns(incident: Incident | None, identities: Iterable[Identity], *, limit: int) -> dict[str, Any]:
    """The columns of the overflow incident after it counted faults with these identities.

    ``incident``: the open overflow incident of the node, None if there is none. ``limit``: see ``limit_of``.
    """
    digests = set(incident.fault_digests if incident is not None else ())
    digests.update(_digest(identity) for identity in identities)
    kept = sorted(digests)[: MAX_DISTINCT_FAULTS + 1]  # one more shows that there are more
    count = min(len(kept), MAX_DISTINCT_FAULTS)
    code = "faults_overflow" if count == len(kept) else "faults_overflow_more"
    because = reasons.of(code, count=count, limit=limit)
    return {
        "fault_digests": kept,
        "because": because.to_json(),
        **message_columns(str(because)),
        "cause": None,
        "gpu_uuid": "",
    }


def _digest(identity: Identity) -> str:
    return hashlib.blake2b("\n".join(identity).encode(), digest_size=DIGEST_BYTES).hexdigest()
