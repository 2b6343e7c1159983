"""The test's access to a cluster beside the port: the same interface for every server.

A ``Rig`` has the ``cluster`` under test and plays all other components: it creates objects, acts as kubelet and
controller, and breaks the API server on request. Names are unique to a test, so that a server may be shared.
"""

import abc
import base64
import json
import time
import uuid
from datetime import datetime
from typing import Any

import pytest

from kcover_portal.kube import port
from tests import kube_fake as fake

Manifest = dict[str, Any]


class Rig(abc.ABC):
    """One cluster, seen from both sides."""

    cluster: port.Cluster
    patience = 2.0  # seconds that a watch may take to tell everything
    policy = "policy/v1"  # what the server calls disruption budgets
    names_nodes = True  # whether a review of a pod's token tells its node

    def __init__(self) -> None:
        self.unique = uuid.uuid4().hex[:8]
        self.namespace = f"ns-{self.unique}"

    def name(self, text: str) -> str:
        """A name of this test's own."""
        return f"{text}-{self.unique}"

    @abc.abstractmethod
    def create(self, manifest: Manifest) -> Manifest:
        """Any object with its status."""

    @abc.abstractmethod
    def read(self, kind: str, name: str, *, namespace: str = "") -> Manifest | None:
        """The object as stored, or None."""

    @abc.abstractmethod
    def merge(self, kind: str, name: str, patch: Manifest, *, namespace: str = "", status: bool = False) -> None:
        """A merge patch by somebody else."""

    @abc.abstractmethod
    def remove(self, kind: str, name: str, *, namespace: str = "") -> None:
        """The object is gone, at once."""

    @abc.abstractmethod
    def settle(self) -> None:
        """The disruption controller has looked at every budget."""

    @abc.abstractmethod
    def writes(self) -> int:
        """How many writes the portal has asked for."""

    @abc.abstractmethod
    def forbidden_namespace(self) -> str:
        """A namespace in which the portal may write no Event."""

    @abc.abstractmethod
    def unrestricted(self) -> port.Cluster:
        """The cluster for a portal that may do anything."""

    @abc.abstractmethod
    def token(self, account: str, *, audience: str, pod: Manifest) -> str:
        """A service account's token in the test's namespace, bound to a pod."""

    def write_log(self, name: str, line: str, *, at: datetime) -> None:
        """A pod of the test's namespace prints a line. Only clusters with kubelets have logs."""
        pytest.skip(f"no kubelet sends the log of {name}: {line} at {at}")

    def node(self, name: str, **spec: Any) -> Manifest:
        """A Ready GPU node."""
        return self.create(
            {
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": {"name": name, "labels": {"pool": "a100"}, "annotations": {"foreign/x": "1"}},
                "spec": spec,
                "status": {
                    "capacity": {"cpu": "64", "nvidia.com/gpu": "8"},
                    "conditions": [
                        {
                            "type": "Ready",
                            "status": "True",
                            "lastHeartbeatTime": "2026-11-21T07:00:00Z",
                            "lastTransitionTime": "2026-11-21T06:00:00Z",
                            "reason": "KubeletReady",
                            "message": "",
                        }
                    ],
                    "addresses": [
                        {"type": "Hostname", "address": name},
                        {"type": "InternalIP", "address": "10.0.0.7"},
                    ],
                    "nodeInfo": NODE_INFO,
                },
            }
        )

    def pod(
        self,
        name: str,
        *,
        node: str,
        owner: str = "",
        labels: dict[str, str] | None = None,
        phase: str = "Running",
        annotations: dict[str, str] | None = None,
        gpus: int = 0,
        account: str = "default",
        status: Manifest | None = None,
    ) -> Manifest:
        """A pod on a node, ready if it runs; ``owner`` is the kind of its controller, ``account`` whom it acts as."""
        reference = {"apiVersion": "apps/v1", "kind": owner, "name": "owner", "uid": str(uuid.uuid4())}
        limits = {"nvidia.com/gpu": str(gpus)} if gpus else {}
        return self.create(
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {
                    "name": name,
                    "namespace": self.namespace,
                    "labels": labels or {},
                    "annotations": annotations or {},
                    "ownerReferences": [{**reference, "controller": True}] if owner else [],
                },
                "spec": {
                    "nodeName": node,
                    "serviceAccountName": account,
                    "containers": [{"name": "main", "image": "busybox", "resources": {"limits": limits}}],
                },
                "status": {
                    "phase": phase,
                    "conditions": [{"type": "Ready", "status": "True" if phase == "Running" else "False"}],
                    **(status or {}),
                },
            }
        )

    def budget(self, name: str, *, match: dict[str, str], min_available: int) -> None:
        """A PodDisruptionBudget; ``settle`` makes it count."""
        self.create(
            {
                "apiVersion": self.policy,
                "kind": "PodDisruptionBudget",
                "metadata": {"name": name, "namespace": self.namespace},
                "spec": {"selector": {"matchLabels": match}, "minAvailable": min_available},
            }
        )


NODE_INFO = {
    "bootID": "boot-1",
    "kubeletVersion": "v1.31.2",
    "machineID": "",
    "systemUUID": "",
    "kernelVersion": "6.8",
    "osImage": "",
    "containerRuntimeVersion": "",
    "kubeProxyVersion": "",
    "operatingSystem": "linux",
    "architecture": "amd64",
}


class FakeRig(Rig):
    """The fake, from behind."""

    patience = 0.0

    def __init__(self) -> None:
        super().__init__()
        self.fake = fake.FakeCluster()
        self.cluster: port.Cluster = self.fake
        for name in (
            self.namespace,
            "kcover-system",
            "kcover-jobs",
            "kcover-preflight",
            "kce-rescue-system",
            "kcover-lease",
        ):
            self.fake.add_namespace(name)

    def create(self, manifest: Manifest) -> Manifest:
        return self.fake.create(manifest)

    def read(self, kind: str, name: str, *, namespace: str = "") -> Manifest | None:
        return self.fake.objects.find(kind, namespace, name)

    def merge(self, kind: str, name: str, patch: Manifest, *, namespace: str = "", status: bool = False) -> None:
        self.fake.objects.merge(kind, namespace, name, patch)

    def remove(self, kind: str, name: str, *, namespace: str = "") -> None:
        self.fake.objects.remove(kind, namespace, name)

    def settle(self) -> None:
        """It does so by itself."""

    def writes(self) -> int:
        return len(self.fake.writes)

    def forbidden_namespace(self) -> str:
        self.fake.may_create_namespaces = False
        return self.name("other")

    def unrestricted(self) -> port.Cluster:
        return self.fake

    def write_log(self, name: str, line: str, *, at: datetime) -> None:
        self.fake.write_log(self.namespace, name, line, at=at)

    def token(self, account: str, *, audience: str, pod: Manifest) -> str:
        identity = port.TokenIdentity(
            username=f"system:serviceaccount:{self.namespace}:{account}",
            groups=("system:serviceaccounts", "system:authenticated"),
            audiences=(audience,),
            node_name=pod["spec"]["nodeName"],
            pod_name=pod["metadata"]["name"],
            pod_uid=pod["metadata"]["uid"],
            service_account=f"{self.namespace}/{account}",
        )
        claims = {"sub": identity.username, "aud": [audience], "exp": int(time.time()) + 3600}
        parts = ({"alg": "none"}, claims, self.unique)
        token = ".".join(base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts)
        self.fake.add_token(token, identity)
        return token
