"""The verbs for pods and disruption budgets."""

import re
import threading
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, Final

from kcover import reasons
from kcover_portal.kube import bounds, errors, http, values
from kcover_portal.kube.verbs import list_watch
from kcover_portal.kube.wire import base, pods as wire

# The cause of a blocked eviction, and the name in its message: «The disruption budget NAME needs 2 healthy pods …».
_BUDGET_CAUSE: Final = "DisruptionBudget"
_BUDGET_NAME: Final = re.compile(r"disruption budget (\S+) ")
_TWO_BUDGETS: Final = "more than one PodDisruptionBudget"


class Pods(list_watch.Verbs):
    """The port's verbs for pods and their budgets."""

    def __init__(self, connection: http.Connection) -> None:
        super().__init__(connection)
        self._lock = threading.Lock()
        self._policy_version = ""

    def list_pods(
        self,
        *,
        node: str | None = None,
        namespace: str | None = None,
        labels: Mapping[str, str] | None = None,
        having: str = "",
        failed: bool = False,
    ) -> list[values.Pod]:
        query = {"fieldSelector": f"spec.nodeName={node}"} if node is not None else {}
        wanted = [having] if having else []
        if labels:
            wanted.append(list_watch.selector(labels))
        if wanted:
            query["labelSelector"] = ",".join(wanted)
        at = list_watch.path("api", "v1", "namespaces", namespace, "pods") if namespace else "/api/v1/pods"
        items, _ = list_watch.pages(
            self._connection,
            at,
            wire.PodObject,
            query=query,
            most=bounds.MAX_POD_LIST_BYTES,
            keep=wire.PodObject.has_failed if failed else None,
        )
        return [item.value() for item in items]

    def pods_version(self) -> str:
        page = self._connection.request("GET", "/api/v1/pods", base.Page[base.AnyObject], query={"limit": "1"})
        return page.metadata.resource_version

    def watch_pods(self, resource_version: str, *, timeout: float) -> Iterator[values.PodEvent]:
        for kind, pod, version in list_watch.watch(
            self._connection, "/api/v1/pods", wire.PodObject, resource_version=resource_version, timeout=timeout
        ):
            yield values.PodEvent(kind=kind, pod=pod.value() if pod else None, resource_version=version)

    def evict(
        self, pod_namespace: str, pod_name: str, *, uid: str, grace_seconds: int | None = None, dry_run: bool = False
    ) -> values.Eviction:
        body = {
            "apiVersion": f"policy/{self._policy()}",
            "kind": "Eviction",
            "metadata": {"namespace": pod_namespace, "name": pod_name},
            "deleteOptions": _delete_options(uid, grace_seconds),
        }
        try:
            self._connection.request(
                "POST",
                list_watch.path("api", "v1", "namespaces", pod_namespace, "pods", pod_name, "eviction"),
                base.AnyObject,
                query={"dryRun": "All"} if dry_run else None,
                body=body,
            )
        except errors.NotFound:
            return values.Gone()
        except errors.Conflict:
            return self._gone(pod_namespace, pod_name, uid)
        except errors.Unavailable as error:
            blocked = _blocked(error)
            if blocked is None:
                raise
            # The server checks the budgets before it compares uids.
            return blocked if self._uid(pod_namespace, pod_name) == uid else values.Gone()
        return values.Evicted()

    def delete_pod(
        self, pod_namespace: str, pod_name: str, *, uid: str, grace_seconds: int | None = None
    ) -> values.Evicted | values.Gone:
        try:
            self._connection.request(
                "DELETE",
                list_watch.path("api", "v1", "namespaces", pod_namespace, "pods", pod_name),
                base.AnyObject,
                body={"apiVersion": "v1", "kind": "DeleteOptions", **_delete_options(uid, grace_seconds)},
            )
        except errors.NotFound:
            return values.Gone()
        except errors.Conflict:
            return self._gone(pod_namespace, pod_name, uid)
        return values.Evicted()

    def pod_log(
        self, namespace: str, name: str, *, container: str, since: datetime, most: int, previous: bool = False
    ) -> bytes:
        query = {
            "container": container,
            "sinceTime": since.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "limitBytes": str(most),
            "timestamps": "true",
        }
        if previous:
            query["previous"] = "true"
        at = list_watch.path("api", "v1", "namespaces", namespace, "pods", name, "log")
        try:
            return self._connection.forwarded(at, query=query, most=most)
        except errors.RefusedByServer as error:
            if http.answer(error).code == 400:  # the container has not started, or not twice
                return b""
            raise

    def budgets(self, namespace: str | None = None) -> list[values.Budget]:
        try:
            return self._budgets(namespace)
        except errors.NotFound:
            # The server was upgraded since the version was read: v1beta1 was removed in Kubernetes 1.25.
            with self._lock:
                self._policy_version = ""
            return self._budgets(namespace)

    def _budgets(self, namespace: str | None) -> list[values.Budget]:
        version = self._policy()
        place = ("namespaces", namespace) if namespace else ()
        at = list_watch.path("apis", "policy", version, *place, "poddisruptionbudgets")
        items, _ = list_watch.pages(self._connection, at, wire.BudgetObject)
        return [item.value(empty_selects_all=version == "v1") for item in items]

    def _gone(self, namespace: str, name: str, uid: str) -> values.Gone:
        """Handles a 409: the pod was replaced if the uid differs. Otherwise raises ``Conflict`` again."""
        if self._uid(namespace, name) == uid:
            raise errors.Conflict(reasons.of("pod_call_rejected", pod=f"{namespace}/{name}"))
        return values.Gone()

    def _uid(self, namespace: str, name: str) -> str:
        """Returns the uid of the pod that has this name now; "" if there is none."""
        try:
            at = list_watch.path("api", "v1", "namespaces", namespace, "pods", name)
            return self._connection.request("GET", at, base.AnyObject).metadata.uid
        except errors.NotFound:
            return ""

    def _policy(self) -> str:
        """Returns the server's version of the policy group: v1 since Kubernetes 1.21, v1beta1 before."""
        with self._lock:
            if not self._policy_version:
                try:
                    group = self._connection.request("GET", "/apis/policy", base.Group)
                except errors.NotFound:
                    group = base.Group()
                versions = {entry.version for entry in group.versions or ()}
                self._policy_version = "v1beta1" if versions and "v1" not in versions else "v1"
            return self._policy_version


def _delete_options(uid: str, grace_seconds: int | None) -> dict[str, Any]:
    grace = {} if grace_seconds is None else {"gracePeriodSeconds": grace_seconds}
    return {"preconditions": {"uid": uid}, **grace}


def _blocked(error: errors.Unavailable) -> values.Blocked | None:
    """Returns the refusal by budgets; None if the server was only busy (its flow control also sends 429)."""
    status = http.answer(error)
    if _TWO_BUDGETS in status.message:
        return values.Blocked(reason=status.message)
    causes = [cause for cause in status.causes if cause.reason == _BUDGET_CAUSE]
    if status.code != 429 or not (causes or "disruption budget" in status.message):
        return None
    names = (match[1] for cause in causes if (match := _BUDGET_NAME.search(cause.message)))
    return values.Blocked(
        reason="; ".join(cause.message for cause in causes) or status.message,
        budgets=tuple(dict.fromkeys(names)),
        retry_after=error.retry_after,
    )
