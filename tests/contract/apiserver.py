"""A real kube-apiserver on an etcd of its own, 1.20 or newer, and the rig that plays all other components of its
cluster.

Nothing but the API server runs: no controllers, no scheduler, no kubelet. The portal is let in as the service account
of deploy/rbac.yaml with a token that the server itself signed, so that the real authorizer judges every request.
"""

import base64
import contextlib
import functools
import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import urllib3

from kcover_portal.kube import port
from tests import servers, waiting
from tests.contract import over_http, rbac
from tests.contract.rigs import Manifest

needs_assets = pytest.mark.skipif(
    "KUBEBUILDER_ASSETS" not in os.environ, reason="KUBEBUILDER_ASSETS names no folder with etcd and kube-apiserver"
)
ADMIN = "admin-token"
TAINTS_DEVICES = 36  # the minor version since which DeviceTaintRules are beta; a server has them only if asked
DEVICE_TAINTS = ("--feature-gates=DRADeviceTaintRules=true", "--runtime-config=resource.k8s.io/v1beta2=true")
DEVICE_TAINT_RULES = "/apis/resource.k8s.io/v1beta2/devicetaintrules"
JANITOR = (port.REBOOT_NODE, port.GPU_RESET)  # their custom resources come with NVSentinel
NAMES_NODES = 30  # the minor version since which a pod's token names its node (ServiceAccountTokenPodNodeInfo)


class Etcd(servers.Server):
    """An etcd that keeps nothing for long."""

    name = "etcd"

    def choose_ports(self) -> None:
        super().choose_ports()
        self._peer = servers.unused_port()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def command(self) -> list[str]:
        return [
            str(_program("etcd")),
            f"--data-dir={self.folder}/data",
            f"--listen-client-urls={self.url}",
            f"--advertise-client-urls={self.url}",
            f"--listen-peer-urls=http://127.0.0.1:{self._peer}",
            "--unsafe-no-fsync",
        ]

    def ready(self) -> bool:
        with contextlib.suppress(urllib3.exceptions.HTTPError):
            return urllib3.PoolManager(retries=False).request("GET", f"{self.url}/health").status == 200
        return False

    def compact(self, revision: str) -> None:
        """Forgets what was before, as an API server asks for it every five minutes. The key tells the others."""
        key, value = (base64.b64encode(text.encode()).decode() for text in ("compact_rev_key", revision))
        self._post("put", {"key": key, "value": value})
        self._post("compaction", {"revision": revision, "physical": True})

    def _post(self, act: str, body: dict[str, Any]) -> None:
        pool = urllib3.PoolManager(retries=False)
        answer = pool.request("POST", f"{self.url}/v3/kv/{act}", body=json.dumps(body))
        assert answer.status == 200, answer.data


class KubeApiServer(servers.Server):
    """kube-apiserver with flags that every version since 1.20 knows, and DeviceTaintRules where it has them."""

    name = "kube-apiserver"
    start_seconds = 90.0

    def __init__(self, etcd: str) -> None:
        super().__init__()
        self._etcd = etcd
        (self.folder / "tokens.csv").write_text(f'{ADMIN},admin,admin,"system:masters"\n')
        key = self.folder / "accounts.key"
        subprocess.run(["openssl", "genrsa", "-out", key, "2048"], check=True, capture_output=True)

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.port}"

    @property
    def ca(self) -> str:
        """The certificate to trust: the server signs its own."""
        return str(self.folder / "apiserver.crt")

    def command(self) -> list[str]:
        return [
            str(_program("kube-apiserver")),
            f"--etcd-servers={self._etcd}",
            f"--cert-dir={self.folder}",
            "--bind-address=127.0.0.1",
            f"--secure-port={self.port}",
            "--anonymous-auth=false",
            f"--token-auth-file={self.folder}/tokens.csv",
            "--authorization-mode=Node,RBAC",
            "--enable-admission-plugins=NodeRestriction",  # as everywhere; it limits kubelets
            # It would keep pods waiting for the accounts that a controller makes in each namespace.
            "--disable-admission-plugins=ServiceAccount",
            "--service-cluster-ip-range=10.0.0.0/24",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={self.folder}/accounts.key",
            f"--service-account-signing-key-file={self.folder}/accounts.key",
            "--allow-privileged",
            *(DEVICE_TAINTS if _minor_version() >= TAINTS_DEVICES else ()),
        ]

    def ready(self) -> bool:
        with contextlib.suppress(urllib3.exceptions.HTTPError, OSError):
            return over_http.Client(self.url, ADMIN, ca=self.ca).ask("GET", "/readyz")[0] == 200
        return False


class PolicyStatus(servers.Server):
    """The controller that tells in the status of an admission policy where its expressions do not fit the types."""

    name = "kube-controller-manager"

    def __init__(self, kubeconfig: str) -> None:
        super().__init__()
        (self.folder / "kubeconfig").write_text(kubeconfig)

    @property
    def url(self) -> str:
        return ""  # it is asked nothing

    def command(self) -> list[str]:
        return [
            str(_program(self.name)),
            f"--kubeconfig={self.folder}/kubeconfig",
            "--controllers=validatingadmissionpolicy-status-controller",
            "--leader-elect=false",
            "--bind-address=127.0.0.1",
            "--secure-port=0",
        ]

    def ready(self) -> bool:
        return True

    @classmethod
    def is_there(cls) -> bool:
        """Returns whether the folder has it, too."""
        return _program(cls.name).exists()


class Installed:
    """A running API server after ``kubectl apply -f deploy/rbac.yaml``; ``portal`` is the portal's own token."""

    def __init__(self, url: str, ca: str, etcd: Etcd) -> None:
        self.url, self.ca, self.etcd = url, ca, etcd
        self.admin = over_http.Client(url, ADMIN, ca=ca)
        for document in rbac.documents():
            meta = document["metadata"]
            self.admin.demand("POST", over_http.PLACES[document["kind"]].format(meta.get("namespace")), document)
        self.portal = self.admin.token("kcover-system", "kcover-portal")
        for kind in JANITOR:
            self.define(_definition(kind), at=f"/apis/{kind.group}/{kind.version}/{kind.plural}")

    def define(self, definition: Manifest, *, at: str) -> None:
        """Installs a definition of custom resources once, and waits until the server serves its objects at ``at``."""
        definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
        status, answer = self.admin.ask("POST", definitions, definition)
        assert status in (201, 409), answer
        waiting.until(lambda: self.admin.ask("GET", at)[0] == 200, f"objects of {definition['metadata']['name']}")

    def kubeconfig(self) -> str:
        """The portal's way in."""
        return over_http.kubeconfig(self.url, self.portal, ca=self.ca)


class ApiServerRig(over_http.HttpRig):
    """A real kube-apiserver. What controllers would do, the rig does."""

    patience = 6.0  # the server sends a bookmark shortly before a watch's end

    def __init__(self, server: Installed) -> None:
        served = server.admin.demand("GET", "/apis/policy")["versions"]
        self.policy = max((entry["groupVersion"] for entry in served), key=lambda name: name == "policy/v1")
        self.etcd, self._server = server.etcd, server
        super().__init__(server.url, admin=ADMIN, portal=server.portal, ca=server.ca)
        self.names_nodes = int(self.cluster.version().split(".")[1]) >= NAMES_NODES

    def define(self, definition: Manifest) -> None:
        """Installs a definition of custom resources once."""
        self._server.define(definition, at=over_http.PLACES[definition["spec"]["names"]["kind"]])

    def kubelet(self, node: str) -> over_http.Client:
        """The requests of a node's kubelet."""
        return self.admin.acting_as(f"system:node:{node}", "system:nodes")

    def remove(self, kind: str, name: str, *, namespace: str = "") -> None:
        """Also the garbage collector's part, for the rules of a node's devices."""
        gone = self.read(kind, name, namespace=namespace) if kind == "Node" else None
        super().remove(kind, name, namespace=namespace)
        status, rules = self.admin.ask("GET", DEVICE_TAINT_RULES)
        for rule in rules["items"] if gone and status == 200 else ():
            if gone["metadata"]["uid"] in [owner["uid"] for owner in rule["metadata"].get("ownerReferences", ())]:
                self.admin.demand("DELETE", f"{DEVICE_TAINT_RULES}/{rule['metadata']['name']}")

    def settle(self) -> None:
        """The disruption controller's part, for budgets of this test with ``minAvailable``."""
        pods = self.admin.demand("GET", self.place("Pod", self.namespace))["items"]
        for budget in self.admin.demand("GET", self.place("PodDisruptionBudget", self.namespace))["items"]:
            wanted = budget["spec"]["selector"].get("matchLabels", {}).items()
            healthy = sum(1 for pod in pods if wanted <= pod["metadata"].get("labels", {}).items())
            minimum = budget["spec"]["minAvailable"]
            status = {
                "observedGeneration": budget["metadata"]["generation"],
                "disruptionsAllowed": max(0, healthy - minimum),
                "currentHealthy": healthy,
                "desiredHealthy": minimum,
                "expectedPods": healthy,
            }
            name = budget["metadata"]["name"]
            self.merge("PodDisruptionBudget", name, {"status": status}, namespace=self.namespace, status=True)


@contextlib.contextmanager
def installed() -> Iterator[Installed]:
    """etcd and kube-apiserver from the folder that KUBEBUILDER_ASSETS names, ready for the portal."""
    with Etcd() as etcd, KubeApiServer(etcd.url) as server:
        yield Installed(server.url, server.ca, etcd)


def _program(name: str) -> Path:
    return Path(os.environ["KUBEBUILDER_ASSETS"]).resolve() / name


def _definition(kind: port.CustomKind) -> Manifest:
    """A definition of custom resources with any fields."""
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{kind.plural}.{kind.group}"},
        "spec": {
            "group": kind.group,
            "scope": "Cluster",
            "names": {"kind": kind.kind, "plural": kind.plural, "singular": kind.kind.lower()},
            "versions": [{"name": kind.version, "served": True, "storage": True, "schema": schema}],
        },
    }


@functools.cache
def _minor_version() -> int:
    """The 36 of ``Kubernetes v1.36.2``."""
    told = subprocess.run([_program("kube-apiserver"), "--version"], check=True, capture_output=True, text=True).stdout
    return int(told.split(".")[1])
