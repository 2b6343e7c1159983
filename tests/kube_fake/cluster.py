"""Implements the port over the store in memory. Calls are recorded, and any call can be made to fail."""

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

import msgspec

from kcover import reasons
from kcover_portal.kube import change as changes, errors, values
from kcover_portal.kube.verbs import (
    events as event_verbs,
    jobs as job_verbs,
    leases as lease_verbs,
    pvcs as claim_verbs,
)
from kcover_portal.kube.wire import events, jobs, leases as lease_wire, nodes, pods, pvcs
from tests.kube_fake.custom_objects import CustomObjects
from tests.kube_fake.objects import Manifest, stamp
from tests.kube_fake.workloads import Workloads

CLAIM: Final = "PersistentVolumeClaim"
_TRIES: Final = 5
_GRACE_SECONDS: Final = 30
_LOG_TIME: Final = "%Y-%m-%dT%H:%M:%S.%f000Z"


class FakeCluster(Workloads, CustomObjects):
    """A cluster in memory. ``may_create_namespaces`` is whether the portal's account has that right."""

    def __init__(self, *, clock: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        super().__init__(clock=clock)
        self.may_create_namespaces = True
        self.forbidden: set[values.Right] = set()  # what the portal's account may not do
        self._tokens: dict[str, values.TokenIdentity] = {}

    def add_token(self, token: str, identity: values.TokenIdentity) -> None:
        """Adds a token whose review returns this identity."""
        self._tokens[token] = identity

    def remove_token(self, token: str) -> None:
        """Invalidates a token, as if its pod were gone."""
        del self._tokens[token]

    # Verbs of the port

    def version(self) -> str:
        with self.call("version", "", ""):
            return "v1.31.0"

    def is_allowed(self, right: values.Right) -> bool:
        with self.call("is_allowed", "SelfSubjectAccessReview", str(right)):
            return right not in self.forbidden

    def count_nodes(self) -> int:
        with self.call("count_nodes", "Node", ""):
            return len(self.objects.list("Node"))

    def list_nodes(self) -> values.NodeList:
        with self.call("list_nodes", "Node", ""), self.objects.changed:
            items = tuple(_node(manifest) for manifest in self.objects.list("Node"))
            return values.NodeList(items=items, resource_version=self.objects.version)

    def watch_nodes(self, resource_version: str, *, timeout: float) -> Iterator[values.NodeEvent]:
        with self.call("watch_nodes", "Node", ""):
            lines = self.objects.watch("Node", resource_version, timeout=timeout)
        for kind, manifest, version in lines:
            yield values.NodeEvent(kind=kind, node=_node(manifest) if manifest else None, resource_version=version)

    def get_node(self, name: str) -> values.Node:
        with self.call("get_node", "Node", name):
            return _node(self.objects.get("Node", "", name))

    def apply_node(
        self,
        name: str,
        change: values.NodeChange | values.DesiredChange,
        *,
        expect: Callable[[values.Node], None] | None = None,
    ) -> tuple[values.Node, values.Node]:
        with self.call("apply_node", "Node", name) as call:
            for _ in range(_TRIES):
                read = msgspec.convert(self.objects.get("Node", "", name), nodes.NodeObject)
                before = read.value()
                if expect is not None:
                    expect(before)
                patch = changes.merge_patch(read, change if isinstance(change, values.NodeChange) else change(before))
                if patch is None:
                    return before, before
                call.wrote = True
                with contextlib.suppress(errors.Conflict):
                    return before, _node(self.objects.merge("Node", "", name, patch))
            raise errors.Conflict(reasons.of("node_changed_often", node=name, count=_TRIES))

    def list_pods(
        self,
        *,
        node: str | None = None,
        namespace: str | None = None,
        labels: Mapping[str, str] | None = None,
        having: str = "",
        failed: bool = False,
    ) -> list[values.Pod]:
        with self.call("list_pods", "Pod", node or "", namespace=namespace or ""):
            found = [_pod(manifest) for manifest in self.objects.list("Pod", namespace)]
        found = [pod for pod in found if node in (None, pod.node) and (labels or {}).items() <= pod.labels.items()]
        found = [pod for pod in found if not failed or pod.failures or pod.past_failures]
        return [pod for pod in found if having in ("", *pod.labels)]

    def pods_version(self) -> str:
        with self.call("pods_version", "Pod", ""), self.objects.changed:
            return self.objects.version

    def watch_pods(self, resource_version: str, *, timeout: float) -> Iterator[values.PodEvent]:
        with self.call("watch_pods", "Pod", ""):
            lines = self.objects.watch("Pod", resource_version, timeout=timeout)
        for kind, manifest, version in lines:
            yield values.PodEvent(kind=kind, pod=_pod(manifest) if manifest else None, resource_version=version)

    def evict(
        self, pod_namespace: str, pod_name: str, *, uid: str, grace_seconds: int | None = None, dry_run: bool = False
    ) -> values.Eviction:
        with self.call("evict", "Pod", pod_name, namespace=pod_namespace) as call, self.objects.changed:
            call.wrote = not dry_run
            manifest = self.objects.find("Pod", pod_namespace, pod_name)
            if manifest is None or manifest["metadata"]["uid"] != uid:
                return values.Gone()
            pod = _pod(manifest)
            budgets = [] if pod.terminal or pod.deleting or pod.phase == "Pending" else self._protecting(pod)
            if len(budgets) > 1:
                return values.Blocked(reason=f"{pod_name} has more than one PodDisruptionBudget")
            if budgets and budgets[0].disruptions_allowed < 1:
                return values.Blocked(
                    reason=f"The disruption budget {budgets[0].name} allows no disruption of {pod_name}",
                    budgets=(budgets[0].name,),
                )
            if not dry_run:
                for budget in budgets:
                    left = {"status": {"disruptionsAllowed": budget.disruptions_allowed - 1}}
                    self.objects.merge("PodDisruptionBudget", budget.namespace, budget.name, left)
                self._start_deletion(pod, grace_seconds)
            return values.Evicted()

    def delete_pod(
        self, pod_namespace: str, pod_name: str, *, uid: str, grace_seconds: int | None = None
    ) -> values.Evicted | values.Gone:
        with self.call("delete_pod", "Pod", pod_name, namespace=pod_namespace) as call, self.objects.changed:
            call.wrote = True
            manifest = self.objects.find("Pod", pod_namespace, pod_name)
            if manifest is None or manifest["metadata"]["uid"] != uid:
                return values.Gone()
            self._start_deletion(_pod(manifest), grace_seconds)
            return values.Evicted()

    def pod_log(
        self, namespace: str, name: str, *, container: str, since: datetime, most: int, previous: bool = False
    ) -> bytes:
        with self.call("pod_log", "Pod", name, namespace=namespace):
            uid = self.objects.get("Pod", namespace, name)["metadata"]["uid"]
            written = self.logs.get((uid, previous), []) if container == "main" else []
            lines = (f"{at.strftime(_LOG_TIME)} {line}\n" for at, line in written if at >= since.replace(microsecond=0))
            return "".join(lines).encode()[:most]

    def budgets(self, namespace: str | None = None) -> list[values.Budget]:
        with self.call("budgets", "PodDisruptionBudget", "", namespace=namespace or ""):
            return [_budget(manifest) for manifest in self.objects.list("PodDisruptionBudget", namespace)]

    def emit(self, draft: values.EventDraft) -> None:
        with self.call("emit", "Event", draft.name, namespace=draft.namespace) as call, self.objects.changed:
            call.wrote = True
            if self.may_create_namespaces:
                self.add_namespace(draft.namespace)
            exists = self.objects.find("Namespace", "", draft.namespace) is not None
            namespace = draft.namespace if exists else "default"
            with contextlib.suppress(errors.Conflict):
                self.objects.create(event_verbs.event_manifest(draft, namespace=namespace))

    def list_events(self) -> values.EventList:
        with self.call("list_events", "Event", ""), self.objects.changed:
            items = tuple(_event(manifest) for manifest in self.objects.list("Event"))
            return values.EventList(items=items, resource_version=self.objects.version)

    def watch_events(self, resource_version: str, *, timeout: float) -> Iterator[values.EventEvent]:
        with self.call("watch_events", "Event", ""):
            lines = self.objects.watch("Event", resource_version, timeout=timeout)
        for kind, manifest, version in lines:
            yield values.EventEvent(kind=kind, event=_event(manifest) if manifest else None, resource_version=version)

    def ensure_job(self, spec: values.JobSpec) -> values.JobState:
        with self.call("ensure_job", "Job", spec.name, namespace=spec.namespace) as call, self.objects.changed:
            call.wrote = True
            with contextlib.suppress(errors.Conflict):
                self.objects.create(job_verbs.job_manifest(spec))
            return _job(self.objects.get("Job", spec.namespace, spec.name))

    def job_state(self, namespace: str, name: str) -> values.JobState:
        with self.call("job_state", "Job", name, namespace=namespace):
            manifest = self.objects.find("Job", namespace, name)
            return _job(manifest) if manifest else values.JobState(exists=False)

    def delete_job(self, namespace: str, name: str) -> None:
        with self.call("delete_job", "Job", name, namespace=namespace) as call:
            call.wrote = True
            with contextlib.suppress(errors.NotFound):
                self.objects.remove("Job", namespace, name)

    def ensure_claim(self, spec: values.ClaimSpec) -> values.ClaimState:
        with self.call("ensure_claim", CLAIM, spec.name, namespace=spec.namespace) as call, self.objects.changed:
            call.wrote = True
            with contextlib.suppress(errors.Conflict):
                self.objects.create({**claim_verbs.claim_manifest(spec), "status": {"phase": "Pending"}})
            return _claim(self.objects.get(CLAIM, spec.namespace, spec.name))

    def claim_state(self, namespace: str, name: str) -> values.ClaimState:
        with self.call("claim_state", CLAIM, name, namespace=namespace):
            manifest = self.objects.find(CLAIM, namespace, name)
            return _claim(manifest) if manifest else values.ClaimState(exists=False)

    def lease_annotations(self, namespace: str, name: str) -> Mapping[str, str] | None:
        with self.call("lease_annotations", "Lease", name, namespace=namespace):
            found = self.objects.find("Lease", namespace, name)
            return dict(found["metadata"].get("annotations", {})) if found else None

    def keep_lease(self, draft: values.LeaseDraft) -> None:
        with self.call("keep_lease", "Lease", draft.name, namespace=draft.namespace) as call, self.objects.changed:
            call.wrote = True
            manifest = lease_verbs.lease_manifest(draft)
            if self.objects.find("Lease", draft.namespace, draft.name) is None:
                self.objects.create(manifest)
            else:
                self.objects.merge("Lease", draft.namespace, draft.name, manifest)

    def lease_holder(self, namespace: str, name: str) -> values.LeaseHolder | None:
        with self.call("lease_holder", "Lease", name, namespace=namespace):
            found = self.objects.find("Lease", namespace, name)
            return msgspec.convert(found, lease_wire.LeaseObject).holder() if found else None

    def claim_lease(self, claim: values.LeaseClaim) -> None:
        with self.call("claim_lease", "Lease", claim.name, namespace=claim.namespace) as call, self.objects.changed:
            call.wrote = True
            manifest = lease_verbs.claim_manifest(claim)
            if claim.version:
                self.objects.merge("Lease", claim.namespace, claim.name, manifest)
            else:
                self.objects.create(manifest)

    def delete_claim(self, namespace: str, name: str) -> None:
        with self.call("delete_claim", CLAIM, name, namespace=namespace) as call:
            call.wrote = True
            with contextlib.suppress(errors.NotFound):
                self.objects.remove(CLAIM, namespace, name)

    def review_token(self, token: str, *, audiences: Sequence[str]) -> values.TokenIdentity | None:
        with self.call("review_token", "TokenReview", ""):
            identity = self._tokens.get(token)
            if identity is None or (audiences and not set(audiences) & set(identity.audiences)):
                return None
            return identity

    # Pods

    def _protecting(self, pod: values.Pod) -> list[values.Budget]:
        found = (_budget(manifest) for manifest in self.objects.list("PodDisruptionBudget", pod.namespace))
        return [budget for budget in found if budget.covers(pod)]

    def _start_deletion(self, pod: values.Pod, grace_seconds: int | None) -> None:
        """Marks a pod as terminating. A pod that is unscheduled, finished or deleted with force is removed at once."""
        if grace_seconds == 0 or pod.terminal or not pod.node:
            self.remove_pod(pod.namespace, pod.name)
        elif not pod.deleting:
            seconds = _GRACE_SECONDS if grace_seconds is None else grace_seconds
            at = stamp(self.objects.clock() + timedelta(seconds=seconds))
            patch = {"metadata": {"deletionTimestamp": at, "deletionGracePeriodSeconds": seconds}}
            self.objects.merge("Pod", pod.namespace, pod.name, patch)
            self._settle_budgets()


def _node(manifest: Manifest) -> values.Node:
    return msgspec.convert(manifest, nodes.NodeObject).value()


def _pod(manifest: Manifest) -> values.Pod:
    return msgspec.convert(manifest, pods.PodObject).value()


def _budget(manifest: Manifest) -> values.Budget:
    return msgspec.convert(manifest, pods.BudgetObject).value()


def _event(manifest: Manifest) -> values.SeenEvent:
    return msgspec.convert(manifest, events.EventObject).value()


def _claim(manifest: Manifest) -> values.ClaimState:
    return msgspec.convert(manifest, pvcs.ClaimObject).value()


def _job(manifest: Manifest) -> values.JobState:
    return msgspec.convert(manifest, jobs.JobObject).value()
