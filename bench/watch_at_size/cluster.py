"""``python -m bench.watch_at_size.cluster``: the simulated API server with many nodes and pods, and nothing that moves.

Objects are as large as real ones. ``--token-file`` has the only token that is accepted. Below ``/bench``:
``GET requests`` lists what was asked for, ``POST churn`` changes pods and nodes, and ``POST compact`` drops the history
and cuts all watches.
"""

import argparse
import asyncio
import itertools
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from aiohttp import web

from simulator.kubeapi import access, server, store
from simulator.world import nodes as fleet

Json = dict[str, Any]
NODE_BYTES = 20_000
POD_BYTES = 6_000
JOB_PODS = 64  # of one training job
JOB_SHARE = 4  # of five pods; the fifth is of a DaemonSet


class Cluster:
    """The objects and the routes."""

    def __init__(self, *, nodes: int, pods: int, token: str) -> None:
        self._store = store.Store(now=lambda: datetime.now(UTC))
        self._api = server.ApiServer(self._store, tokens={token: access.ADMIN})
        self._asked: list[tuple[str, str, float]] = []
        images = fleet.images(node_bytes=NODE_BYTES)
        for number in range(nodes):
            self._store.create("Node", _node(number, images))
        for number in range(pods):
            self._store.create("Pod", _pod(number, node=number % nodes))
        self._pods = itertools.cycle(self._store.list("Pod", namespace="training"))
        self._nodes = itertools.cycle(self._store.list("Node"))

    def application(self) -> web.Application:
        """The API server, and the routes of the measurement."""
        app = self._api.application()
        app.middlewares.append(self._noted)
        app.router.add_get("/bench/requests", self._requests)
        app.router.add_post("/bench/churn", self._churn)
        app.router.add_post("/bench/compact", self._compact)
        return app

    @web.middleware
    async def _noted(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        if request.method == "GET" and request.path in ("/api/v1/nodes", "/api/v1/pods"):
            self._asked.append(("watch" if request.query.get("watch") else "list", request.path, time.time()))
        return await handler(request)

    async def _requests(self, request: web.Request) -> web.Response:
        return web.json_response(self._asked)

    async def _compact(self, request: web.Request) -> web.Response:
        self._api.compact()
        return web.json_response(self._api.cut_watches())

    async def _churn(self, request: web.Request) -> web.Response:
        """Changes ``pods`` pods and ``nodes`` nodes a second for ``seconds``."""
        wanted = await request.json()
        until = time.monotonic() + wanted["seconds"]
        changed = 0
        while time.monotonic() < until:
            began = time.monotonic()
            for kind, objects in (("Pod", self._pods), ("Node", self._nodes)):
                for found in itertools.islice(objects, wanted[kind]):
                    metadata = found["metadata"]
                    changed += 1
                    labels = {"bench/change": str(changed)}
                    self._store.patch(
                        kind, metadata.get("namespace", ""), metadata["name"], {"metadata": {"labels": labels}}
                    )
            await asyncio.sleep(max(0.0, 1 - (time.monotonic() - began)))
        return web.json_response(changed)


def _node(number: int, images: list[Json]) -> Json:
    name = f"gpu-{number:05d}"
    room = {"cpu": "192", "memory": "2113530652Ki", "nvidia.com/gpu": "8", "pods": "110"}
    conditions = [
        {"type": kind, "status": status, "lastTransitionTime": "2026-11-01T00:00:00Z", "reason": f"Kubelet{kind}"}
        for kind, status in (
            *(("MemoryPressure", "False"), ("DiskPressure", "False"), ("PIDPressure", "False")),
            ("Ready", "True"),
        )
    ]
    return {
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, "nvidia.com/gpu.present": "true"}},
        "spec": {"providerID": f"metal:///{name}"},
        "status": {
            "capacity": room,
            "allocatable": room,
            "conditions": conditions,
            "addresses": [{"type": "InternalIP", "address": f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}"}],
            "nodeInfo": {"bootID": f"boot-{number}", "kernelVersion": "6.8.0", "kubeletVersion": "v1.32.4"},
            "images": images,
        },
    }


def _pod(number: int, *, node: int) -> Json:
    of_job = number % (JOB_SHARE + 1) < JOB_SHARE
    job = f"job-{number // JOB_PODS:05d}"
    labels = {"training.kubeflow.org/job-name": job, "team": "bench"} if of_job else {"app": "exporter"}
    owner = {"kind": "PyTorchJob", "apiVersion": "kubeflow.org/v1", "name": job, "uid": job, "controller": True}
    if not of_job:
        owner |= {"kind": "DaemonSet", "apiVersion": "apps/v1", "name": "exporter"}
    return {
        "metadata": {
            "namespace": "training" if of_job else "monitoring",
            "name": f"{job}-worker-{number}" if of_job else f"exporter-{number}",
            "labels": labels,
            "ownerReferences": [owner],
            # They make most of a real pod, and no reader decodes them.
            "managedFields": [{"manager": "kubelet", "operation": "Update", "fieldsV1": {"f:status": PADDING}}],
        },
        "spec": {
            "nodeName": f"gpu-{node:05d}",
            "restartPolicy": "OnFailure",
            "containers": [{"name": "main", "image": "bench", "resources": {"limits": {"nvidia.com/gpu": "1"}}}],
        },
        "status": {
            "phase": "Running",
            "conditions": [{"type": "Ready", "status": "True"}, {"type": "PodScheduled", "status": "True"}],
            "containerStatuses": [
                {"name": "main", "ready": True, "state": {"running": {"startedAt": "2026-11-01T00:00:00Z"}}}
            ],
        },
    }


PADDING = "x" * (POD_BYTES - 1_000)


def main() -> None:
    """Serves until it is stopped."""
    parser = argparse.ArgumentParser(prog="python -m bench.watch_at_size.cluster", description=__doc__)
    parser.add_argument("--nodes", type=int, required=True)
    parser.add_argument("--pods", type=int, required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--token-file", type=Path, required=True)
    options = parser.parse_args()
    token = options.token_file.read_text(encoding="utf-8").strip()
    made = Cluster(nodes=options.nodes, pods=options.pods, token=token)
    web.run_app(
        made.application(), host="127.0.0.1", port=options.port, access_log=None, shutdown_timeout=1.0, print=None
    )


if __name__ == "__main__":
    main()
