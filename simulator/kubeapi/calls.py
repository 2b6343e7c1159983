"""What was asked of the cluster, counted: above all, how often something destructive was.

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
class Asked:
    """One kind of request, the key of a counter.

    ``resource`` carries the subresource (``pods/eviction``). ``node`` is the node it is about: the node itself, a pod's
    or a job's; else empty. ``status`` is the HTTP status the client saw, 0 when the connection was cut or left hanging.
    ``applied`` tells whether a write took effect: a fault of the API server can hide a success.
    """

    verb: str
    resource: str
    node: str
    status: int
    dry_run: bool
    applied: bool

    @property
    def writes(self) -> bool:
        """Whether it was meant to change something (reviews ask, though they are POSTs)."""
        return self.verb in _WRITES and self.resource not in _REVIEWS and not self.dry_run

    @property
    def destructive(self) -> bool:
        """Whether it can take work or a node down: an eviction, a deletion, a changed node, a job (some reboot)."""
        if not self.writes:
            return False
        if self.verb.startswith("delete"):
            return self.resource in ("pods", "nodes")
        return (self.verb, self.resource) in _DESTRUCTIVE


_DESTRUCTIVE = {("create", "pods/eviction"), ("patch", "nodes"), ("update", "nodes"), ("create", "jobs")}


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One request, with what a counter leaves out. ``fault`` names the injected fault that it ran into."""

    at: datetime
    asked: Asked
    user: str
    namespace: str
    name: str
    fault: str


class Calls:
    """The counters of one API server."""

    def __init__(self, *, keys: int = 100_000, recent: int = 50_000) -> None:
        self._counts: Counter[Asked] = Counter()
        self._keys = keys
        self._recent: deque[Call] = deque(maxlen=recent)

    def record(self, call: Call) -> None:
        """Count a request that was answered, or begun for a watch."""
        key = call.asked
        if key not in self._counts and len(self._counts) >= self._keys:
            key = replace(key, node="*")
        self._counts[key] += 1
        self._recent.append(call)

    def reset(self) -> None:
        """Begin again at zero."""
        self._counts.clear()
        self._recent.clear()

    def counted(self, *, verb: str = "", resource: str = "", node: str = "") -> Iterator[tuple[Asked, int]]:
        """Counters of a verb, a resource (``pods/eviction``), a node; the empty string means any."""
        for asked, count in self._counts.items():
            if _fits(asked, verb=verb, resource=resource, node=node):
                yield asked, count

    def total(self, *, verb: str = "", resource: str = "", node: str = "") -> int:
        """How many requests there were."""
        return sum(count for _, count in self.counted(verb=verb, resource=resource, node=node))

    def writes(self, *, node: str = "") -> int:
        """How many requests meant to change something, dry runs and reviews left out."""
        return sum(count for asked, count in self.counted(node=node) if asked.writes)

    def destructive(self, *, node: str = "") -> int:
        """How many requests could have taken work or a node down, whether they succeeded or not."""
        return sum(count for asked, count in self.counted(node=node) if asked.destructive)

    def recent(self, *, verb: str = "", resource: str = "", node: str = "") -> list[Call]:
        """The last requests, oldest first."""
        return [call for call in self._recent if _fits(call.asked, verb=verb, resource=resource, node=node)]

    def report(self, *, verb: str = "", resource: str = "", node: str = "") -> dict[str, Any]:
        """The answer of ``GET /sim/calls``: totals, one row a counter, and the last 100 requests."""
        found = list(self.counted(verb=verb, resource=resource, node=node))
        rows = [
            {
                "verb": asked.verb,
                "resource": asked.resource,
                "node": asked.node,
                "status": asked.status,
                "dryRun": asked.dry_run,
                "applied": asked.applied,
                "destructive": asked.destructive,
                "count": count,
            }
            for asked, count in found
        ]
        latest = [
            {
                "at": call.at.isoformat(),
                "user": call.user,
                "verb": call.asked.verb,
                "resource": call.asked.resource,
                "namespace": call.namespace,
                "name": call.name,
                "node": call.asked.node,
                "status": call.asked.status,
                "applied": call.asked.applied,
                "fault": call.fault,
            }
            for call in self.recent(verb=verb, resource=resource, node=node)[-100:]
        ]
        return {
            "total": sum(count for _, count in found),
            "writes": sum(count for asked, count in found if asked.writes),
            "destructive": sum(count for asked, count in found if asked.destructive),
            "calls": rows,
            "recent": latest,
        }


def _fits(asked: Asked, *, verb: str, resource: str, node: str) -> bool:
    return (
        (not verb or asked.verb == verb)
        and (not resource or asked.resource == resource)
        and (not node or asked.node == node)
    )
