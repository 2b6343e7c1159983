"""Rigs of API servers that are spoken to over HTTP: the simulator in a thread, and a real kube-apiserver."""

import asyncio
import contextlib
import json
import os
import secrets
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import urllib3
from aiohttp import web

from kcover_portal.kube import http, live
from simulator.kubeapi import access, errors, server, store
from tests import servers
from tests.contract import rbac
from tests.contract.rigs import Manifest, Rig

PLACES = {
    "Namespace": "/api/v1/namespaces",
    "Node": "/api/v1/nodes",
    "Pod": "/api/v1/namespaces/{}/pods",
    "Event": "/api/v1/namespaces/{}/events",
    "ServiceAccount": "/api/v1/namespaces/{}/serviceaccounts",
    "PodDisruptionBudget": "/apis/policy/v1/namespaces/{}/poddisruptionbudgets",
    "Job": "/apis/batch/v1/namespaces/{}/jobs",
    "ClusterRole": "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    "ClusterRoleBinding": "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
    "Role": "/apis/rbac.authorization.k8s.io/v1/namespaces/{}/roles",
    "RoleBinding": "/apis/rbac.authorization.k8s.io/v1/namespaces/{}/rolebindings",
}
ADMIN, PORTAL = "admin-token", "portal-token"
PORTAL_USER = "system:serviceaccount:kcover-system:kcover-portal"
READ_SECONDS = 2.0  # the client's patience; short, for the tests of time-outs


class HttpRig(Rig):
    """Everybody else is an administrator with an HTTP client."""

    def __init__(self, url: str, *, ca: str | None = None) -> None:
        super().__init__()
        self.url = url
        self.admin = urllib3.PoolManager(ca_certs=ca, headers={"Authorization": f"Bearer {ADMIN}"}, retries=False)
        kubeconfig = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "c", "cluster": {"server": url, **({"certificate-authority": ca} if ca else {})}}],
            "users": [{"name": "u", "user": {"token": PORTAL}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "c",
        }
        self.kubeconfig = json.dumps(kubeconfig, indent=1)
        self.connection = rbac.Recording(live.loader(self.kubeconfig), read_seconds=READ_SECONDS)
        self.cluster = live.LiveCluster(self.connection)
        self.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self.namespace}})

    def ask(self, method: str, path: str, body: Any = None, kind: str = "application/json") -> tuple[int, Any]:
        """One request by the administrator."""
        data = None if body is None else json.dumps(body).encode()
        answer = self.admin.request(
            method, self.url + path, body=data, headers={**self.admin.headers, "Content-Type": kind}
        )
        return answer.status, json.loads(answer.data) if answer.data[:1] in (b"{", b"[") else answer.data

    def demand(self, method: str, path: str, body: Any = None, kind: str = "application/json") -> Any:
        """One that has to work."""
        status, answer = self.ask(method, path, body, kind)
        assert status < 300, (method, path, status, answer)
        return answer

    def place(self, kind: str, namespace: str, name: str = "") -> str:
        at = PLACES[kind].format(namespace)
        return f"{at}/{name}" if name else at

    def create(self, manifest: Manifest) -> Manifest:
        meta = manifest["metadata"]
        kind, namespace = manifest["kind"], meta.get("namespace", "")
        made = self.demand("POST", self.place(kind, namespace), manifest)
        if "status" in manifest:
            self.merge(kind, meta["name"], {"status": manifest["status"]}, namespace=namespace, status=True)
        return made

    def read(self, kind: str, name: str, *, namespace: str = "") -> Manifest | None:
        status, found = self.ask("GET", self.place(kind, namespace, name))
        return found if status == 200 else None

    def merge(self, kind: str, name: str, patch: Manifest, *, namespace: str = "", status: bool = False) -> None:
        at = self.place(kind, namespace, name) + ("/status" if status else "")
        self.demand("PATCH", at, patch, "application/merge-patch+json")

    def remove(self, kind: str, name: str, *, namespace: str = "") -> None:
        body = {"gracePeriodSeconds": 0} if kind == "Pod" else None
        self.demand("DELETE", self.place(kind, namespace, name), body)

    def writes(self) -> int:
        return len(self.connection.writes)

    def forbidden_namespace(self) -> str:
        """Any but those that the Roles name; the portal may make it, and may not write into it."""
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

    def inside(self, act: Callable[[], Any]) -> Any:
        """Do something to the server in its own thread."""

        async def run() -> Any:
            return act()

        return asyncio.run_coroutine_threadsafe(run(), self._loop).result(10)

    def settle(self) -> None:
        self.inside(self.api.budgets.settle)

    def compact(self) -> None:
        """The server forgets its history."""
        self.inside(self.api.compact)

    def break_next(self, status: int | str, match: str, *, after: bool = False, count: int = 1) -> None:
        """The next requests that match run into a fault."""
        fault = {"status": status, "match": match, "after": after, "count": count, "seconds": READ_SECONDS + 1}
        self.inside(lambda: self.api.faults.add(fault))

    def token(self, account: str, *, audience: str, pod: Manifest) -> str:
        return self.inside(lambda: self.api.access.issue(self.namespace, account, audiences=[audience], pod=pod))


@contextlib.contextmanager
def simulator() -> Iterator[SimulatorRig]:
    """A simulator with nothing in it."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="simulator", daemon=True)
    thread.start()
    objects = store.Store(now=lambda: datetime.now(UTC))
    tokens = {ADMIN: access.ADMIN, PORTAL: access.Identity(name=PORTAL_USER)}
    api = server.ApiServer(objects, tokens=tokens, bookmark_every=0.2)
    enforce_rbac(api.access)

    async def start() -> tuple[web.AppRunner, int]:
        runner = web.AppRunner(api.application(), shutdown_timeout=1, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        return runner, runner.addresses[0][1]

    runner, at = asyncio.run_coroutine_threadsafe(start(), loop).result(10)
    try:
        yield SimulatorRig(loop, api, f"http://127.0.0.1:{at}")
    finally:
        asyncio.run_coroutine_threadsafe(runner.cleanup(), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()


class ApiServerRig(HttpRig):
    """A real kube-apiserver. No controllers run: what they would do, the rig does."""

    patience = 6.0  # the server sends a bookmark shortly before a watch's end

    def settle(self) -> None:
        """The disruption controller's part, for budgets of this test with ``minAvailable``."""
        pods = self.demand("GET", self.place("Pod", self.namespace))["items"]
        for budget in self.demand("GET", self.place("PodDisruptionBudget", self.namespace))["items"]:
            wanted = budget["spec"]["selector"]["matchLabels"].items()
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

    def token(self, account: str, *, audience: str, pod: Manifest) -> str:
        reference = {"apiVersion": "v1", "kind": "Pod", "name": pod["metadata"]["name"], "uid": pod["metadata"]["uid"]}
        body = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"audiences": [audience], "boundObjectRef": reference},
        }
        return self.demand("POST", self.place("ServiceAccount", self.namespace, account) + "/token", body)["status"][
            "token"
        ]


@contextlib.contextmanager
def kube_apiserver() -> Iterator[str]:
    """etcd and kube-apiserver from KUBEBUILDER_ASSETS on free ports; yields the folder with url and ca.crt."""
    assets = Path(os.environ["KUBEBUILDER_ASSETS"])
    folder = Path(tempfile.mkdtemp(prefix="kcover-apiserver-"))
    etcd, peer, secure = servers.free_port(), servers.free_port(), servers.free_port()
    (folder / "tokens.csv").write_text(
        f'{ADMIN},admin,admin,"system:masters"\n{PORTAL},{PORTAL_USER},portal,"system:serviceaccounts"\n'
    )
    key = folder / "sa.key"
    subprocess.run(["openssl", "genrsa", "-out", key, "2048"], check=True, capture_output=True)
    commands = [
        [
            assets / "etcd",
            f"--data-dir={folder}/etcd",
            f"--listen-client-urls=http://127.0.0.1:{etcd}",
            f"--advertise-client-urls=http://127.0.0.1:{etcd}",
            f"--listen-peer-urls=http://127.0.0.1:{peer}",
            "--unsafe-no-fsync",
        ],
        [
            assets / "kube-apiserver",
            f"--etcd-servers=http://127.0.0.1:{etcd}",
            f"--cert-dir={folder}",
            "--bind-address=127.0.0.1",
            f"--secure-port={secure}",
            f"--token-auth-file={folder}/tokens.csv",
            "--authorization-mode=RBAC",
            # Pods need no service account then, and no kubelet has to be let in.
            "--disable-admission-plugins=ServiceAccount",
            "--service-cluster-ip-range=10.0.0.0/24",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={key}",
            f"--service-account-signing-key-file={key}",
            "--allow-privileged",
        ],
    ]
    running = []
    try:
        for command in commands:
            log = (folder / f"{Path(command[0]).name}.log").open("wb")
            running.append(subprocess.Popen(command, stdout=log, stderr=log))
            log.close()
        url = f"https://127.0.0.1:{secure}"
        _await_ready(url, folder / "apiserver.crt", running)
        (folder / "url").write_text(url)
        yield str(folder)
    finally:
        for process in reversed(running):
            process.terminate()
            process.wait(30)


def _await_ready(url: str, ca: Path, running: list[subprocess.Popen]) -> None:
    until = time.monotonic() + 90
    while time.monotonic() < until:
        assert all(process.poll() is None for process in running), f"a server ended; its log is in {ca.parent}"
        with contextlib.suppress(urllib3.exceptions.HTTPError, OSError):
            pool = urllib3.PoolManager(ca_certs=str(ca), headers={"Authorization": f"Bearer {ADMIN}"}, retries=False)
            if pool.request("GET", f"{url}/readyz").status == 200:
                return
        time.sleep(0.5)
    raise AssertionError(f"kube-apiserver did not get ready; its log is in {ca.parent}")


@contextlib.contextmanager
def apiserver(folder: str) -> Iterator[ApiServerRig]:
    """A rig on the shared server; the first one applies deploy/rbac.yaml."""
    rig = ApiServerRig((Path(folder) / "url").read_text(), ca=f"{folder}/apiserver.crt")
    for document in rbac.documents():
        meta = document["metadata"]
        at = rig.place(document["kind"], meta.get("namespace", ""))
        status, answer = rig.ask("POST", at, document)
        assert status in (201, 409), answer
    yield rig


def unused_token() -> str:
    """A token that nobody issued."""
    return secrets.token_hex(16)


def way_in(url: str) -> Callable[[], http.WayIn]:
    """For a server that asks for no credentials."""
    return lambda: http.WayIn(host=url, authorization=lambda: None)
