"""An API server of the simulator in a thread of its own, and the objects that tests put into it."""

import asyncio
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Self, TypeVar

from aiohttp import web
from kubernetes import client

from simulator.kubeapi import access, server, store

ADMIN_TOKEN = "admin-token"
READER_TOKEN = "reader-token"
T = TypeVar("T")


class ApiServer:
    """The server, its store and a clock that tests can put forward. ``do`` runs a function in the server's thread."""

    def __init__(
        self,
        *,
        history: int = 8192,
        anonymous: bool = False,
        bookmark_every: float = 60.0,
        certificate: Path | None = None,
        key: Path | None = None,
    ) -> None:
        self.skipped = timedelta()
        self.store = store.Store(now=lambda: datetime.now(UTC) + self.skipped, history=history)
        self.api = server.ApiServer(
            self.store,
            tokens={ADMIN_TOKEN: access.ADMIN, READER_TOKEN: access.READER},
            anonymous=anonymous,
            bookmark_every=bookmark_every,
        )
        self.url = ""
        self._tls: ssl.SSLContext | None = None
        if certificate:
            self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self._tls.load_cert_chain(certificate, key)
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._ready.wait(60)
        return self

    def __exit__(self, *error: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(60)

    def do(self, function: Callable[[], T]) -> T:
        async def call() -> T:
            return function()

        return asyncio.run_coroutine_threadsafe(call(), self._loop).result(60)

    def put(self, kind: str, obj: dict[str, Any]) -> dict[str, Any]:
        return self.do(lambda: self.store.create(kind, obj))

    def client(self, token: str = ADMIN_TOKEN) -> client.ApiClient:
        configuration = client.Configuration()
        configuration.host = self.url
        if token:
            configuration.api_key = {"authorization": f"Bearer {token}"}
        return client.ApiClient(configuration)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._serve())
        self._loop.close()

    async def _serve(self) -> None:
        self._stop = asyncio.Event()
        runner = web.AppRunner(self.api.application(), shutdown_timeout=1, access_log=None)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=self._tls)
        await site.start()
        self.url = f"{'https' if self._tls else 'http'}://127.0.0.1:{site._server.sockets[0].getsockname()[1]}"
        self._ready.set()
        await self._stop.wait()
        await runner.cleanup()


@contextmanager
def serving(**options: Any) -> Iterator[ApiServer]:
    with ApiServer(**options) as running:
        yield running


def node(name: str, **labels: str) -> dict[str, Any]:
    ready = {
        "type": "Ready",
        "status": "True",
        "reason": "KubeletReady",
        "message": "kubelet is posting ready status",
        "lastHeartbeatTime": "2026-11-21T08:00:00Z",
        "lastTransitionTime": "2026-11-21T08:00:00Z",
    }
    capacity = {"cpu": "96", "memory": "1Ti", "nvidia.com/gpu": "8", "pods": "110"}
    info = {
        "architecture": "amd64",
        "bootID": "b7c1e3f0-0000-4000-8000-000000000000",
        "containerRuntimeVersion": "containerd://1.7.22",
        "kernelVersion": "6.8.0-45-generic",
        "kubeProxyVersion": "v1.32.4",
        "kubeletVersion": "v1.32.4",
        "machineID": "m",
        "operatingSystem": "linux",
        "osImage": "Ubuntu 24.04 LTS",
        "systemUUID": "u",
    }
    return {
        "metadata": {
            "name": name,
            "labels": {"kubernetes.io/hostname": name, "node-role.kubernetes.io/gpu": "", **labels},
        },
        "spec": {},
        "status": {
            "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}],
            "allocatable": capacity,
            "capacity": capacity,
            "conditions": [ready],
            "nodeInfo": info,
        },
    }


def pod(
    name: str,
    *,
    on: str = "gpu-0",
    namespace: str = "default",
    labels: dict[str, str] | None = None,
    owner: dict[str, Any] | None = None,
    ready: bool = True,
    phase: str = "Running",
    grace: int = 30,
) -> dict[str, Any]:
    metadata: dict[str, Any] = {"name": name, "namespace": namespace, "labels": labels or {}}
    if owner:
        metadata["ownerReferences"] = [
            {
                "apiVersion": owner["apiVersion"],
                "kind": owner["kind"],
                "name": owner["metadata"]["name"],
                "uid": owner["metadata"]["uid"],
                "controller": True,
            }
        ]
    container = {"name": "main", "image": "train:1"}
    state = {"running": {"startedAt": "2026-11-21T08:00:00Z"}}
    status = {"name": "main", "ready": ready, "restartCount": 0, "state": state, "image": "train:1", "imageID": ""}
    return {
        "metadata": metadata,
        "spec": {"nodeName": on, "containers": [container], "terminationGracePeriodSeconds": grace},
        "status": {
            "phase": phase,
            "conditions": [{"type": "Ready", "status": "True" if ready else "False"}],
            "containerStatuses": [status],
        },
    }


def budget(name: str, labels: dict[str, str], **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": "default"}, "spec": {"selector": {"matchLabels": labels}, **spec}}
