"""Training jobs of every kind: metadata, and what their status says in common."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from kcover_portal.kube import node_exclusion, values
from kcover_portal.kube.wire import base

_ENDS: Mapping[str, values.Phase] = {
    "complete": values.Phase.SUCCEEDED,
    "completed": values.Phase.SUCCEEDED,
    "succeeded": values.Phase.SUCCEEDED,
    "failed": values.Phase.FAILED,
    "terminated": values.Phase.FAILED,
    "suspended": values.Phase.SUSPENDED,
    "aborted": values.Phase.SUSPENDED,
}
_MAX_RESTARTS = 1_000_000
_MAX_DEPTH = 20  # a RayJob has its pods' labels at a depth of nine


class WorkloadObject(base.AnyObject, frozen=True):
    """A training job. Spec and status differ by kind, so they stay plain."""

    spec: dict[str, Any] | None = None
    status: dict[str, Any] | None = None

    def value(self, kind: values.WorkloadKind) -> values.Workload:
        meta = self.metadata
        owner = next((ref for ref in meta.owner_references or () if ref.controller), base.OwnerReference())
        return values.Workload(
            kind=kind.kind,
            namespace=meta.namespace,
            name=meta.name,
            uid=meta.uid,
            generation=meta.generation or 0,
            labels=meta.labels or {},
            annotations=meta.annotations or {},
            pods_named=str(self._at(kind.named_by) or "") if kind.named_by[0] != "metadata" else meta.name,
            owner_kind=owner.kind,
            owner_api=owner.api_version,
            owner_name=owner.name,
            owner_uid=owner.uid,
            phase=self._phase(kind),
            restarts=self._restarts(),
            created_at=meta.creation_timestamp,
            protected=any(
                one.get(values.PROTECTED_LABEL) == "true" for one in (meta.labels or {}, *_labels(self.spec))
            ),
            excluded_hosts=node_exclusion.excluded(kind, self.spec or {}) if kind.replicas else frozenset(),
        )

    def _phase(self, kind: values.WorkloadKind) -> values.Phase:
        """An end counts before a suspension: a finished job cannot be suspended."""
        said = [_ENDS[word] for word in self._words() if word in _ENDS]
        for phase in (values.Phase.FAILED, values.Phase.SUCCEEDED):
            if phase in said:
                return phase
        if self._at(kind.suspend) is True or values.Phase.SUSPENDED in said:
            return values.Phase.SUSPENDED
        return values.Phase.RUNNING

    def _words(self) -> Iterator[str]:
        """The facts of the status: true conditions, Volcano's ``state.phase``, Ray's ``state`` and its job's status."""
        status = self.status or {}
        for condition in _mappings(status.get("conditions")):
            if condition.get("status") == "True":
                yield str(condition.get("type")).lower()
        state = status.get("state")
        for word in (state.get("phase") if isinstance(state, dict) else state, status.get("jobDeploymentStatus")):
            yield str(word).lower()

    def _restarts(self) -> int:
        status = self.status or {}
        count = next((status[name] for name in ("restarts", "retryCount") if name in status), 0)
        return min(max(count, 0), _MAX_RESTARTS) if isinstance(count, int) else 0

    def _at(self, path: Sequence[str]) -> object:
        found: object = {"spec": self.spec, "status": self.status}
        for part in path:
            found = found.get(part) if isinstance(found, dict) else None
        return found


def _labels(part: object, *, depth: int = 0) -> Iterator[dict[str, Any]]:
    """The labels in a spec, at whatever place the kind has its templates."""
    if isinstance(part, list):
        for one in part:
            yield from _labels(one, depth=depth + 1)
    elif isinstance(part, dict) and depth <= _MAX_DEPTH:
        for key, one in part.items():
            if key == "labels" and isinstance(one, dict):
                yield one
            else:
                yield from _labels(one, depth=depth + 1)


def _mappings(found: object) -> Iterator[dict[str, Any]]:
    if isinstance(found, list):
        yield from (entry for entry in found if isinstance(entry, dict))
