"""All witnesses of a world, and their routes."""

from collections.abc import Callable, Iterator
from datetime import datetime

from aiohttp import web

from simulator.witnesses import gpud, loki, nvsentinel, prometheus
from simulator.world import machine, pods, workloads
from simulator.world.world import World


class Witnesses:
    """Stand-ins that hear every line of the machines' kernel logs.

    ``cluster``: its name in the events that are exported.
    """

    def __init__(self, world: World, *, cluster: str) -> None:
        self._machines = world.machines
        self.logs = loki.LogStore()
        self.gpud = gpud.Gpud(active=self._active_on)
        gpus = (
            (name, gpu.index, gpu.pci or "", gpu.uuid)
            for name, host in world.gpu_machines().items()
            for gpu in host.inventory.gpus
        )
        self._world = world
        self.prometheus = prometheus.Prometheus(gpus, ranks=self._ranks)
        self.exporter = nvsentinel.Exporter(cluster=cluster, active=self._active)
        for name, host in world.machines.items():
            host.collectors.append(self._collector(name))

    def add_routes(self, app: web.Application) -> None:
        """Adds the addresses of Loki, gpud and Prometheus."""
        app.router.add_get("/loki/api/v1/query_range", self.logs.query_range)
        app.router.add_get("/gpud/{node}/v1/states", self.gpud.states)
        app.router.add_get("/gpud/{node}/v1/events", self.gpud.list_events)
        app.router.add_get("/prometheus/api/v1/query", self.prometheus.query)

    def _collector(self, node: str) -> Callable[[str, datetime], None]:
        def collect(line: str, at: datetime) -> None:
            for witness in (self.logs, self.gpud, self.prometheus, self.exporter):
                witness.add_kernel_line(node, line, at)

        return collect

    def _ranks(self) -> Iterator[prometheus.Rank]:
        """The pods of PyTorchJobs that run."""
        for pod in self._world.objects.list("Pod", labels=workloads.JOB_NAME):
            host, meta = self._machines.get(pods.node_of(pod)), pod["metadata"]
            if host is not None and pods.ready(pod):
                job = meta["labels"][workloads.JOB_NAME]
                yield prometheus.Rank(meta["namespace"], job, meta["name"], host.name, host.speed)

    def _active_on(self, node: str) -> list[tuple[int, str]]:
        faults = self._machines[node].faults
        return [(int(one.code), machine.pci(one.gpu or 0)) for one in faults if one.kind == "xid"]

    def _active(self) -> set[nvsentinel.Key]:
        return {(node, code, slot) for node in self._machines for code, slot in self._active_on(node)}
