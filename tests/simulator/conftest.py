"""A small cluster with a clock that the test advances."""

import random
from dataclasses import dataclass
from datetime import UTC, datetime

import pytest

from simulator.kubeapi import access, server, store
from simulator.world import agenda, pods, world
from simulator.world.pace import Timings

PACE = Timings(
    boot=100.0, grace=5.0, start=1.0, notice=10.0, settle=2.0, evict=300.0, run=3.0, back_off=10.0, repair=900.0
)


@dataclass
class Cluster:
    clock: agenda.ManualClock
    agenda: agenda.Agenda
    store: store.Store
    api: server.ApiServer
    world: world.World

    def advance(self, seconds: float) -> None:
        self.clock.advance(seconds, self.agenda)

    def node(self, name: str) -> dict:
        return self.store.get("Node", "", name)

    def pods_on(self, name: str) -> list[dict]:
        return self.store.list("Pod", fields=f"spec.nodeName={name}")

    def serving_pod(self, app: str = "embeddings") -> dict:
        return next(pod for pod in self.store.list("Pod", namespace="serving", labels=f"app={app}") if pods.ready(pod))


@pytest.fixture
def cluster() -> Cluster:
    """20 GPU nodes: 8 h100-a, 5 h100-b, 4 a100, 3 inference; boots take about 100 s."""
    clock = agenda.ManualClock(datetime(2026, 11, 21, 8, tzinfo=UTC))
    objects, plans = store.Store(now=clock), agenda.Agenda(now=clock)
    api = server.ApiServer(objects, tokens={"admin": access.ADMIN})
    built = world.build(objects, plans, size=world.Size(nodes=20), pace=PACE, rng=random.Random(5))
    return Cluster(clock, plans, objects, api, built)
