"""The verbs for training jobs over the store in memory. Objects are stored under the portal's name of their kind."""

import contextlib
from collections.abc import Mapping, Sequence

import msgspec

from kcover_portal.kube import errors, node_exclusion, values
from kcover_portal.kube.verbs import workloads as verbs
from kcover_portal.kube.wire import workloads as wire
from tests.kube_fake.calls import Recorder
from tests.kube_fake.objects import Manifest


class Workloads(Recorder):
    """Training jobs, and the Commands of Volcano that nobody has taken yet."""

    def workloads(
        self, *, labels: Mapping[str, str] | None = None, kind: str | None = None, namespace: str | None = None
    ) -> list[values.Workload]:
        with self.call("workloads", kind or "", "", namespace=namespace or ""):
            kinds = values.WORKLOADS if kind is None else (verbs.known_kind(kind).kind,)
            found = [_value(kind, m) for kind in kinds for m in self.objects.list(kind, namespace)]
            return [workload for workload in found if (labels or {}).items() <= workload.labels.items()]

    def workload(self, namespace: str, kind: str, name: str) -> values.Workload:
        with self.call("workload", kind, name, namespace=namespace):
            return _value(verbs.known_kind(kind).kind, self.objects.get(kind, namespace, name))

    def label_workload(
        self, namespace: str, kind: str, name: str, *, labels: Mapping[str, str | None]
    ) -> values.Workload:
        with self.call("label_workload", kind, name, namespace=namespace) as call:
            verbs.changeable_kind(kind)
            call.wrote = True
            patch = {"metadata": {"labels": dict(labels)}}
            return _value(kind, self.objects.merge(kind, namespace, name, patch))

    def suspend_workload(self, namespace: str, kind: str, name: str, *, uid: str) -> values.Workload:
        with self.call("suspend_workload", kind, name, namespace=namespace) as call, self.objects.changed:
            patch = verbs.suspension(verbs.known_kind(kind), uid=uid)
            call.wrote = True
            if self.objects.get(kind, namespace, name)["metadata"]["uid"] != uid:
                raise errors.Conflict(f"{kind} {namespace}/{name}: another object has this name")
            return _value(kind, self.objects.merge(kind, namespace, name, patch))

    def exclude_hosts(self, namespace: str, kind: str, name: str, *, uid: str, hosts: Sequence[str]) -> values.Workload:
        with self.call("exclude_hosts", kind, name, namespace=namespace) as call, self.objects.changed:
            call.wrote = True
            found = self.objects.get(kind, namespace, name)
            meta = found["metadata"]
            if meta["uid"] != uid:
                raise errors.Conflict(f"{kind} {namespace}/{name}: another object has this name")
            version = meta["resourceVersion"]
            known = verbs.known_kind(kind)
            patch = node_exclusion.patch(known, found.get("spec") or {}, hosts=hosts, uid=uid, version=version)
            return _value(kind, self.objects.merge(kind, namespace, name, patch) if patch else found)

    def command_workload(self, namespace: str, kind: str, name: str, *, uid: str, action: str, key: str) -> None:
        with self.call("command_workload", kind, name, namespace=namespace) as call:
            call.wrote = True
            known = verbs.known_kind(kind)
            with contextlib.suppress(errors.Conflict):
                self.objects.create(verbs.command_manifest(known, namespace, name, uid=uid, action=action, key=key))


def _value(kind: str, manifest: Manifest) -> values.Workload:
    return msgspec.convert(manifest, wire.WorkloadObject).value(values.WORKLOADS[kind])
