"""A simulated cluster behind the portal's own client; its API server counts the writes."""

import uuid
from collections.abc import Mapping
from typing import Any

from kcover_portal.kube import http, live
from tests.contract import over_http
from tests.simulator import api_server

READS = ("get", "list", "watch")
# POSTs that ask, and change nothing (invariant 48).
REVIEWS = ("tokenreviews", "subjectaccessreviews", "selfsubjectaccessreviews")


class CountedCluster(live.LiveCluster):
    """The port over HTTP, and the hands of everybody else: they reach into the store, and nobody counts them."""

    def __init__(self, server: api_server.ApiServer) -> None:
        way_in = over_http.kubeconfig(server.url, api_server.ADMIN_TOKEN)
        super().__init__(http.Connection(live.loader(way_in), quiet_seconds=0))
        self.server = server

    # What was asked of the server

    def forget(self) -> None:
        """Counts from zero."""
        self.server.do(self.server.api.calls.reset)

    def written(self) -> list[tuple[str, str]]:
        """The verb and resource of every request that was no read, dry runs included, in their order."""
        asked = [call.key for call in self.server.do(self.server.api.calls.recent)]
        return [(one.verb, one.resource) for one in asked if one.verb not in READS and one.resource not in REVIEWS]

    def refuse_once(self, match: str, *, skip: int = 0) -> None:
        """The next request that matches, or the one after so many, is answered with 503."""
        self.server.do(lambda: self.server.api.faults.add({"status": 503, "match": match, "skip": skip}))

    # What others do

    def add_namespace(self, name: str) -> None:
        """See the fake's hands; so with all of these."""
        if self.server.do(lambda: self.server.store.find("Namespace", "", name)) is None:
            self.server.put("Namespace", {"metadata": {"name": name}})

    def add_node(self, name: str, *, gpus: int = 8, labels: Mapping[str, str] | None = None, **spec: Any) -> None:
        manifest = api_server.node(name, **(labels or {}))
        manifest["spec"] = spec
        manifest["status"]["capacity"]["nvidia.com/gpu"] = str(gpus)
        manifest["status"]["nodeInfo"]["bootID"] = str(uuid.uuid4())
        self.server.put("Node", manifest)

    def add_pod(self, name: str, *, node: str, labels: Mapping[str, str]) -> None:
        self.server.put("Pod", api_server.pod(name, on=node, labels=dict(labels)))

    def add_budget(self, name: str, labels: Mapping[str, str]) -> None:
        self.server.put("PodDisruptionBudget", api_server.budget(name, dict(labels), minAvailable=1))

    def drop_budget(self, name: str) -> None:
        self.server.do(lambda: self.server.store.delete("PodDisruptionBudget", "default", name))

    def patch_node(self, name: str, patch: dict[str, Any]) -> None:
        self.server.do(lambda: self.server.store.patch("Node", "", name, patch))

    def reboot(self, name: str) -> None:
        self.patch_node(name, {"status": {"nodeInfo": {"bootID": str(uuid.uuid4())}}})

    def finish_deletions(self) -> None:
        """Pods that were told to go are gone."""

        def finish() -> None:
            for pod in list(self.server.store.list("Pod")):
                if "deletionTimestamp" in pod["metadata"]:
                    self.server.store.delete("Pod", pod["metadata"]["namespace"], pod["metadata"]["name"], grace=0)

        self.server.do(finish)
