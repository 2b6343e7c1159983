"""The verbs for the users' training jobs.

Job objects are labelled, suspended, commanded or kept off nodes, and never deleted.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from kcover import reasons
from kcover_portal.kube import errors, http, node_exclusion, values
from kcover_portal.kube.verbs import list_watch
from kcover_portal.kube.wire import base, workloads as wire

_TRIES = 4
_MERGE = "application/merge-patch+json"
_COMMANDS = ("apis", "bus.volcano.sh", "v1alpha1")


class Workloads(list_watch.Verbs):
    """The port's verbs for training jobs."""

    def workloads(
        self, *, labels: Mapping[str, str] | None = None, kind: str | None = None, namespace: str | None = None
    ) -> list[values.Workload]:
        found = []
        query = {"labelSelector": list_watch.selector(labels)} if labels else {}
        for known in values.WORKLOADS.values() if kind is None else (known_kind(kind),):
            at = list_watch.path(*_place(known, namespace))
            try:
                items, _ = list_watch.pages(self._connection, at, wire.WorkloadObject, query=query)
            except errors.NotFound:
                continue
            found += [item.value(known) for item in items]
        return found

    def workload(self, namespace: str, kind: str, name: str) -> values.Workload:
        known = known_kind(kind)
        return self._connection.request("GET", _path(known, namespace, name), wire.WorkloadObject).value(known)

    def label_workload(
        self, namespace: str, kind: str, name: str, *, labels: Mapping[str, str | None]
    ) -> values.Workload:
        return self._patch(namespace, kind, name, {"metadata": {"labels": dict(labels)}})

    def suspend_workload(self, namespace: str, kind: str, name: str, *, uid: str) -> values.Workload:
        return self._patch(namespace, kind, name, suspension(known_kind(kind), uid=uid))

    def exclude_hosts(self, namespace: str, kind: str, name: str, *, uid: str, hosts: Sequence[str]) -> values.Workload:
        known = known_kind(kind)
        at = _path(known, namespace, name)
        for _ in range(_TRIES):
            found = self._connection.request("GET", at, wire.WorkloadObject)
            meta = found.metadata
            if meta.uid != uid:
                break
            body = node_exclusion.patch(known, found.spec or {}, hosts=hosts, uid=uid, version=meta.resource_version)
            if body is None:
                return found.value(known)
            try:
                return self._patch(namespace, kind, name, body)
            except errors.Conflict:
                continue  # its controller writes the status often
        raise errors.Conflict(reasons.of("job_changed_often", job=f"{kind} {namespace}/{name}"))

    def command_workload(self, namespace: str, kind: str, name: str, *, uid: str, action: str, key: str) -> None:
        body = command_manifest(known_kind(kind), namespace, name, uid=uid, action=action, key=key)
        try:
            at = list_watch.path(*_COMMANDS, "namespaces", namespace, "commands")
            self._connection.request("POST", at, base.AnyObject, body=body)
        except errors.Conflict as error:
            if http.answer(error).reason != "AlreadyExists":
                raise

    def _patch(self, namespace: str, kind: str, name: str, body: Mapping[str, Any]) -> values.Workload:
        known = changeable_kind(kind)
        at = _path(known, namespace, name)
        changed = self._connection.request("PATCH", at, wire.WorkloadObject, body=body, content_type=_MERGE)
        return changed.value(known)


def known_kind(kind: str) -> values.WorkloadKind:
    """Returns the row of ``WORKLOADS``. Raises ``NotFound``."""
    known = values.WORKLOADS.get(kind)
    if known is None:
        raise errors.NotFound(reasons.of("job_kind_unsupported", kind=kind, known=", ".join(values.WORKLOADS)))
    return known


def changeable_kind(kind: str) -> values.WorkloadKind:
    """Returns the row of ``WORKLOADS``. Raises ``NotFound``, and ``RefusedByServer`` if the portal changes none."""
    known = known_kind(kind)
    if not known.changed:
        raise errors.RefusedByServer(reasons.of("job_kind_not_changed", kind=known.kind))
    return known


def suspension(known: values.WorkloadKind, *, uid: str) -> dict[str, Any]:
    """Returns the merge patch that suspends a job. The uid in it makes the server refuse another job of that name."""
    if known.stop is not values.JobMethod.SUSPEND:
        raise errors.RefusedByServer(reasons.of("job_kind_not_suspended", kind=known.kind))
    return {"metadata": {"uid": uid}, **_nested(known.suspend)}


def _nested(path: Sequence[str]) -> dict[str, Any]:
    value: Any = True
    for part in reversed(path):
        value = {part: value}
    return {**value}


def command_manifest(
    known: values.WorkloadKind, namespace: str, name: str, *, uid: str, action: str, key: str
) -> dict[str, Any]:
    """Returns a Command of Volcano, as its own ``vcctl`` creates it; the controller deletes it when it obeys."""
    target = {
        "apiVersion": f"{known.group}/{known.version}",
        "kind": known.api_kind,
        "name": name,
        "uid": uid,
        "controller": True,
    }
    return {
        "apiVersion": "bus.volcano.sh/v1alpha1",
        "kind": "Command",
        "metadata": {
            "namespace": namespace,
            "name": f"kcover-{action.lower()}-{key}",
            "labels": {"app.kubernetes.io/managed-by": values.COMPONENT},
            "ownerReferences": [target],
        },
        "action": action,
        "target": target,
        "reason": "kcover portal",
    }


def _place(known: values.WorkloadKind, namespace: str | None) -> tuple[str, ...]:
    inside = ("namespaces", namespace) if namespace else ()
    return ("apis", known.group, known.version, *inside, known.plural)


def _path(known: values.WorkloadKind, namespace: str, name: str) -> str:
    return list_watch.path(*_place(known, namespace), name)
