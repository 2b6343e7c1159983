"""The log of requests to the cluster, with counters, above all of destructive requests.

Counters and the list of recent calls are bounded, so that a simulator can run for weeks.
"""

from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

_WRITES = frozenset({"create", "update", "patch", "delete", "deletecollection"})
_REVIEWS = frozenset({"tokenreviews", "subjectaccessreviews", "selfsubjectaccessreviews"})


@dataclass(frozen=True, slots=True, kw_only=True)
class CallKey:
    """One kind of request, the key of a counter.

    ``resource`` includes the subresource (``pods/eviction``). ``node``: the node that the request concerns, directly or
    through a pod or job; else empty. ``status``: the HTTP status that the client saw, 0 if the connection was cut or
    left hanging. ``applied``: whether a write took effect, because a fault of the API server can hide a success.
    """

    verb: str
    resource: str
    node: str
    status: int
    dry_run: bool
    applied: bool

    @property
    def writes(self) -> bool:
        """True if the request was meant to change something. Reviews are POSTs, but change nothing."""
        return self.verb in _WRITES and self.resource not in _REVIEWS and not self.dry_run

    @property
    def destructive(self) -> bool:
        """True if the request can take work or a node down: an eviction, a deletion, a changed node, a job (some jobs
        reboot), a machine that is replaced, rebooted or loses a GPU for a while, a device that is tainted.
        """
        if not self.writes:
            return False
        if self.verb.startswith("delete"):
            return self.resource in ("pods", "nodes", "machines", "nodeclaims")
        return (self.verb, self.resource) in _DESTRUCTIVE


_DESTRUCTIVE = {
    *(("create", resource) for resource in ("pods/eviction", "jobs", "rebootnodes", "gpuresets", "devicetaintrules")),
    *((verb, "nodes") for verb in ("patch", "update")),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class CallRecord:
    """One request with the properties that a counter omits. ``fault`` names the injected fault that it met."""

    at: datetime
    key: CallKey
    user: str
    namespace: str
    name: str
    fault: str


class Calls:
    def __init__(self, *, keys: int = 100_000, recent: int = 50_000) -> None:
        self._counts: Counter[CallKey] = Counter()
        self._keys = keys
        self._recent: deque[CallRecord] = deque(maxlen=recent)

    def record(self, call: CallRecord) -> None:
        """Count a request after its response, or a watch at its start."""
        key = call.key
        if key not in self._counts and len(self._counts) >= self._keys:
            key = replace(key, node="*")
        self._counts[key] += 1
        self._recent.append(call)

    def reset(self) -> None:
        self._counts.clear()
        self._recent.clear()

    def counted(self, *, verb: str = "", resource: str = "", node: str = "") -> Iterator[tuple[CallKey, int]]:
        """Counters for a verb, a resource (``pods/eviction``) and a node; an empty string means any."""
        for key, count in self._counts.items():
            if _fits(key, verb=verb, resource=resource, node=node):
                yield key, count

    def total(self, *, verb: str = "", resource: str = "", node: str = "") -> int:
        return sum(count for _, count in self.counted(verb=verb, resource=resource, node=node))

    def writes(self, *, node: str = "") -> int:
        """The number of requests meant to change something, without dry runs and reviews."""
        return sum(count for key, count in self.counted(node=node) if key.writes)

    def destructive(self, *, node: str = "") -> int:
        """The number of requests that could take work or a node down, whether they succeeded or not."""
        return sum(count for key, count in self.counted(node=node) if key.destructive)

    def recent(self, *, verb: str = "", resource: str = "", node: str = "") -> list[CallRecord]:
        """The most recent requests, oldest first."""
        return [call for call in self._recent if _fits(call.key, verb=verb, resource=resource, node=node)]

    def report(self, *, verb: str = "", resource: str = "", node: str = "") -> dict[str, Any]:
        """The response of ``GET /sim/calls``: totals, one row for each counter, and the last 100 requests."""
        found = list(self.counted(verb=verb, resource=resource, node=node))
        rows = [
            {
                "verb": key.verb,
                "resource": key.resource,
                "node": key.node,
                "status": key.status,
                "dryRun": key.dry_run,
                "applied": key.applied,
                "destructive": key.destructive,
                "count": count,
            }
            for key, count in found
        ]
        latest = [
            {
                "at": call.at.isoformat(),
                "user": call.user,
                "verb": call.key.verb,
                "resource": call.key.resource,
                "namespace": call.namespace,
                "name": call.name,
                "node": call.key.node,
                "status": call.key.status,
                "applied": call.key.applied,
                "fault": call.fault,
            }
            for call in self.recent(verb=verb, resource=resource, node=node)[-100:]
        ]
        return {
            "total": sum(count for _, count in found),
            "writes": sum(count for key, count in found if key.writes),
            "destructive": sum(count for key, count in found if key.destructive),
            "calls": rows,
            "recent": latest,
        }


def _fits(key: CallKey, *, verb: str, resource: str, node: str) -> bool:
    return (
        (not verb or key.verb == verb) and (not resource or key.resource == resource) and (not node or key.node == node)
    )
