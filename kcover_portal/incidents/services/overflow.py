"""Bounds the open incidents of a node. One overflow incident counts the faults beyond the bounds.

An agent's credential can report any number of distinct faults. Without bounds, one node would delay the ingest and the
decisions of all nodes. No rule acts on the overflow incident unless it names its kind.
"""

import hashlib
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from django.db.models import Count

from kcover import reasons
from kcover.faults import fault
from kcover_portal.incidents.models import Incident
from kcover_portal.incidents.services.fault_readings import Identity, weight, worst_of

MAX_OPEN_INCIDENTS_PER_KIND = 64  # of one node
MAX_OPENED_INCIDENTS_PER_REPORT = 64
MAX_DISTINCT_FAULTS = 1_024  # that an overflow incident tells apart
DIGEST_BYTES = 5  # of a fault's identity

IDENTITY: Identity = (fault.OVERFLOW, "distinct-faults", "")


def open_by_kind(nodes: Collection[int]) -> dict[int, dict[str, int]]:
    """The number of open incidents of nodes (by key) by kind; one query. Nodes without incidents are left out."""
    found: dict[int, dict[str, int]] = {}
    rows = Incident.objects.filter(node__in=nodes, state=Incident.State.OPEN).order_by()
    for node, kind, count in rows.values_list("node_id", "kind").annotate(count=Count("pk")):
        found.setdefault(node or 0, {})[kind] = count
    return found


def exceeding(openings: Mapping[Identity, Sequence[fault.Fault]], *, open_now: Mapping[str, int]) -> set[Identity]:
    """The faults of one report that must not open incidents of their own.

    ``openings``: the faults without an open incident. ``open_now``: the node's open incidents by kind. If there is not
    room for all, the worst faults go first.
    """
    wanted = Counter(kind for kind, _, _ in openings)
    fits = all(count + open_now.get(kind, 0) <= MAX_OPEN_INCIDENTS_PER_KIND for kind, count in wanted.items())
    if fits and len(openings) <= MAX_OPENED_INCIDENTS_PER_REPORT:
        return set()
    beyond = set()
    opened: Counter[str] = Counter()
    for identity in sorted(openings, key=lambda identity: weight(worst_of(openings[identity])), reverse=True):
        kind = identity[0]
        is_room = open_now.get(kind, 0) + opened[kind] < MAX_OPEN_INCIDENTS_PER_KIND
        if is_room and opened.total() < MAX_OPENED_INCIDENTS_PER_REPORT:
            opened[kind] += 1
        else:
            beyond.add(identity)
    return beyond


def in_log_order(seen: Iterable[fault.Fault]) -> list[fault.Fault]:
    """The faults by their log records, so that the gaps between the counted records stay few."""
    return sorted(seen, key=lambda row: row.records[-1][1] if row.records else row.sequence or 0)


def columns(incident: Incident | None, identities: Iterable[Identity]) -> dict[str, Any]:
    """The columns of the overflow incident after it counted faults with these identities.

    ``incident``: the open overflow incident of the node, None if there is none.
    """
    digests = set(incident.fault_digests if incident is not None else ())
    digests.update(_digest(identity) for identity in identities)
    kept = sorted(digests)[: MAX_DISTINCT_FAULTS + 1]  # one more shows that there are more
    count = min(len(kept), MAX_DISTINCT_FAULTS)
    code = "faults_overflow" if count == len(kept) else "faults_overflow_more"
    because = reasons.of(code, count=count, limit=MAX_OPEN_INCIDENTS_PER_KIND)
    return {
        "fault_digests": kept,
        "because": because.to_json(),
        "message": str(because),
        "cause": None,
        "gpu_uuid": "",
    }


def _digest(identity: Identity) -> str:
    return hashlib.blake2b("\n".join(identity).encode(), digest_size=DIGEST_BYTES).hexdigest()
