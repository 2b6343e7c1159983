"""Rigs of API servers over HTTP: their common base, and the simulator in a thread."""

import asyncio
import contextlib
import copy
import json
import secrets
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any, Self

import urllib3
from aiohttp import web

from kcover_portal.kube import http, live, port
from simulator.kubeapi import access, errors, server, store
from tests.contract import rbac
from tests.contract.rigs import Manifest, Rig

PLACES = {
    "Namespace": "/api/v1/namespaces",
    "Node": "/api/v1/nodes",
    "Pod": "/api/v1/namespaces/{}/pods",
    "Event": "/api/v1/namespaces/{}/events",
    "ServiceAccount": "/api/v1/namespaces/{}/serviceaccounts",
    "PodDisruptionBudget": "/apis/{policy}/namespaces/{}/poddisruptionbudgets",
    "Job": "/apis/batch/v1/namespaces/{}/jobs",
    "PyTorchJob": "/apis/kubeflow.org/v1/namespaces/{}/pytorchjobs",
    "Lease": "/apis/coordination.k8s.io/v1/namespaces/{}/leases",
    "PersistentVolumeClaim": "/api/v1/namespaces/{}/persistentvolumeclaims",
    "ClusterRole": "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    "ClusterRoleBinding": "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
    "Role": "/apis/rbac.authorization.k8s.io/v1/namespaces/{}/roles",
    "RoleBinding": "/apis/rbac.authorization.k8s.io/v1/namespaces/{}/rolebindings",
    "RescuePolicy": "/apis/kcover.io/v1/rescuepolicies",
    "ResourceSlice": "/apis/resource.k8s.io/v1/resourceslices",
}
ADMIN, PORTAL = "admin-token", "portal-token"
PORTAL_USER = "system:serviceaccount:kcover-system:kcover-portal"
TOKEN = {"audiences": [], "expirationSeconds": 24 * 3600}
READ_SECONDS = 2.0  # the client's patience; short, for the tests of time-outs


class Client:
    """One user's requests, as ``curl`` would send them."""

    def __init__(self, url: str, token: str, *, ca: str | None = None) -> None:
        self.url = url
        self._headers = urllib3.HTTPHeaderDict({"Authorization": f"Bearer {token}"})
        self._pool = urllib3.PoolManager(ca_certs=ca, retries=False)

    def ask(self, method: str, path: str, body: Any = None, kind: str = "application/json") -> tuple[int, Any]:
        """Any request: the status, and the JSON or the bytes that came back."""
        data = None if body is None else json.dumps(body).encode()
        headers = self._headers.copy()
        headers["Content-Type"] = kind
        answer = self._pool.request(method, self.url + path, body=data, headers=headers)
        spoken = answer.headers.get("Content-Type", "")
        return answer.status, json.loads(answer.data) if spoken.startswith("application/json") else answer.data

    def demand(self, method: str, path: str, body: Any = None, kind: str = "application/json") -> Any:
        """One that has to work."""
        status, answer = self.ask(method, path, body, kind)
        assert status < 300, (method, path, status, answer)
        return answer

    def acting_as(self, user: str, *groups: str) -> Self:
        """The requests of somebody whom this user may impersonate."""
        other = copy.copy(self)
        other._headers = self._headers.copy()
        other._headers["Impersonate-User"] = user
        for group in groups:
            other._headers.add("Impersonate-Group", group)
        return other

    def token(self, namespace: str, account: str, **spec: Any) -> str:
        """What a TokenRequest gives for a service account."""
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {**TOKEN, **spec}}
        at = PLACES["ServiceAccount"].format(namespace)
        return self.demand("POST", f"{at}/{account}/token", body)["status"]["token"]


def kubeconfig(url: str, token: str, *, ca: str | None = None) -> str:
    """A kubeconfig, as text, for one user of one server."""
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": url, **({"certificate-authority": ca} if ca else {})}}],
        "users": [{"name": "u", "user": {"token": token}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "c",
    }
    return json.dumps(config, indent=1)


class HttpRig(Rig):
    """Everybody else is an administrator with an HTTP client; ``portal`` sends what the portal would be refused."""

    def __init__(self, url: str, *, admin: str = ADMIN, portal: str = PORTAL, ca: str | None = None) -> None:
        super().__init__()
        self.admin, self.portal = Client(url, admin, ca=ca), Client(url, portal, ca=ca)
        self.unrestricted_kubeconfig = kubeconfig(url, admin, ca=ca)
        self.kubeconfig = kubeconfig(url, portal, ca=ca)
        self.connection = rbac.Recording(live.loader(self.kubeconfig), read_seconds=READ_SECONDS, quiet_seconds=0)
        self.cluster = live.LiveCluster(self.connection)
        self.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self.namespace}})

    def place(self, kind: str, namespace: str, name: str = "") -> str:
        at = PLACES[kind].format(namespace, policy=self.policy)
        return f"{at}/{name}" if name else at

    def create(self, manifest: Manifest) -> Manifest:
        meta = manifest["metadata"]
        kind, namespace = manifest["kind"], meta.get("namespace", "")
        made = self.admin.demand("POST", self.place(kind, namespace), manifest)
        if "status" in manifest:
            self.merge(kind, meta["name"], {"status": manifest["status"]}, namespace=namespace, status=True)
        return made

    def read(self, kind: str, name: str, *, namespace: str = "") -> Manifest | None:
        status, found = self.admin.ask("GET", self.place(kind, namespace, name))
        return found if status == 200 else None

    def merge(self, kind: str, name: str, patch: Manifest, *, namespace: str = "", status: bool = False) -> None:
        at = self.place(kind, namespace, name) + ("/status" if status else "")
        self.admin.demand("PATCH", at, patch, "application/merge-patch+json")

    def remove(self, kind: str, name: str, *, namespace: str = "") -> None:
        body = {"gracePeriodSeconds": 0} if kind == "Pod" else None
        self.admin.demand("DELETE", self.place(kind, namespace, name), body)

    def writes(self) -> int:
        return len(self.connection.writes)

    def unrestricted(self) -> port.Cluster:
        return live.from_kubeconfig(self.unrestricted_kubeconfig)

    def token(self, account: str, *, audience: str, pod: Manifest) -> str:
        reference = {"apiVersion": "v1", "kind": "Pod", "name": pod["metadata"]["name"], "uid": pod["metadata"]["uid"]}
        return self.admin.token(self.namespace, account, audiences=[audience], boundObjectRef=reference)

    def forbidden_namespace(self) -> str:
        """Any but those that the Roles name; the portal may neither make it nor write into it."""
        return self.name("other")


def enforce_rbac(door: access.Access) -> None:
    """Give the portal the rights in deploy/rbac.yaml, and no others; the simulator's own rights are coarser."""
    allowed = frozenset(rbac.rules(rbac.documents()))
    others = door.authorize

    def authorize(who, verb, *, group, plural, name="", namespace=None):
        if who.name != PORTAL_USER:
            others(who, verb, group=group, plural=plural, name=name, namespace=namespace)
        elif not {rbac.Asked(verb, group, plural), rbac.Asked(verb, group, plural, namespace or "")} & allowed:
            raise errors.forbidden(group, plural, name, f"the portal has no right to {verb} {plural}")

    door.authorize = authorize


class SimulatorRig(HttpRig):
    """The simulator's API server in a thread of its own."""

    def __init__(self, loop: asyncio.AbstractEventLoop, api: server.ApiServer, url: str) -> None:
        self._loop = loop
        self.api = api
        super().__init__(url)
        for document in rbac.documents():
            if document["kind"] == "Namespace" and self.read("Namespace", document["metadata"]["name"]) is None:
                self.create(document)

    def inside(self, act: Callable[[], Any]) -> Any:
        """Do something to the server in its own thread."""

        async def run() -> Any:
            return act()

        return asyncio.run_coroutine_threadsafe(run(), self._loop).result(60)

    def settle(self) -> None:
        self.inside(self.api.budgets.settle)

    def write_log(self, name: str, line: str, *, at: datetime) -> None:
        pod = self.read("Pod", name, namespace=self.namespace)
        self.inside(lambda: self.api.logs.write(pod, line, at=at))

    def compact(self) -> None:
        """The server forgets its history."""
        self.inside(self.api.compact)

    def break_next(self, status: int | str, match: str, *, after: bool = False, count: int = 1) -> None:
        """The next requests that match run into a fault."""
        fault = {"status": status, "match": match, "after": after, "count": count, "seconds": READ_SECONDS + 1}
        self.inside(lambda: self.api.faults.add(fault))


@contextlib.contextmanager
def simulator(objects: store.Store | None = None) -> Iterator[SimulatorRig]:
    """A simulator of these objects, or one with nothing in it."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="simulator", daemon=True)
    thread.start()
    objects = objects or store.Store(now=lambda: datetime.now(UTC))
    tokens = {ADMIN: access.ADMIN, PORTAL: access.Identity(name=PORTAL_USER)}
    api = server.ApiServer(objects, tokens=tokens, bookmark_every=0.2)
    enforce_rbac(api.access)

    async def start() -> tuple[web.AppRunner, int]:
        runner = web.AppRunner(api.application(), shutdown_timeout=1, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        return runner, runner.addresses[0][1]

    runner, at = asyncio.run_coroutine_threadsafe(start(), loop).result(60)
    try:
        yield SimulatorRig(loop, api, f"http://127.0.0.1:{at}")
    finally:
        asyncio.run_coroutine_threadsafe(runner.cleanup(), loop).result(60)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(60)
        loop.close()


def unused_token() -> str:
    """A token that nobody issued."""
    return secrets.token_hex(16)


def way_in(url: str) -> Callable[[], http.WayIn]:
    """For a server that asks for no credentials."""
    return lambda: http.WayIn(host=url, authorization=lambda: None)
