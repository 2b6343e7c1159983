"""Orders about jobs over HTTP: a job loses a pod and runs again; every call meets every failure."""

import threading
from collections.abc import Iterator
from datetime import timedelta

import pytest

from kcover_portal.jobs import services
from kcover_portal.jobs.models import JobOrder
from kcover_portal.operate import pod_watch
from kcover_portal.sources import services as sources
from tests.contract import over_http
from tests.portal.jobs.sim_world import KINDS, Simulated, SimWorld

pytestmark = pytest.mark.django_db
FAST = (409, 429, 500, 503, "cut")  # failures that cost no time; a time-out is hit once for each call
CALLS = {
    "pods/delete": ("PyTorchJob", "restart", "DELETE /pods/"),
    "pods/list": ("PyTorchJob", "restart", "GET /pods?"),
    "job/get": ("JobSet", "restart", "GET /jobsets/"),
    "command": ("VolcanoJob", "restart", "POST /commands"),
    "suspend": ("JobSet", "stop", "PATCH /jobsets/"),
}


@pytest.fixture(scope="module")
def simulated() -> Iterator[tuple[Simulated, over_http.SimulatorRig]]:
    made = Simulated()
    with over_http.simulator(made.objects) as rig:
        yield made, rig


@pytest.fixture
def sim(simulated: tuple[Simulated, over_http.SimulatorRig], db: None) -> Iterator[SimWorld]:
    made = SimWorld(*simulated)
    yield made
    made.uninstall()


@pytest.mark.parametrize("kind", KINDS)
def test_a_job_that_loses_a_pod_runs_again(sim: SimWorld, kind: str) -> None:
    name = f"lost-{kind.lower()}"
    sim.add(kind, name, size=3)
    before = sim.running(kind, name)
    sources.make_watched_sources(sim.now)
    sim.crash(kind, name)
    crashed_at = sim.now
    pod_watch.PodWatch(sim.cluster, clock=sim.clock, stop=threading.Event()).list()
    order = JobOrder.objects.get()
    assert sim.until_settled(order).state == "done"
    assert sim.now - crashed_at < timedelta(seconds=60)
    after = sim.running(kind, name)
    assert (len(after), after & before) == (3, set())
    assert len(sim.uids[name]) == 6  # each pod was replaced once
    assert order.incident is not None
    order.incident.refresh_from_db()
    assert order.incident.state == "closed"


@pytest.mark.parametrize("call", CALLS)
def test_nothing_is_restarted_twice_whatever_a_call_meets(sim: SimWorld, call: str) -> None:
    kind, action, match = CALLS[call]
    failures = [(status, after) for status in FAST for after in (False, True)]
    if call in ("pods/delete", "command"):
        failures.append(("timeout", True))
    for number, (status, after) in enumerate(failures):
        name = f"{call.replace('/', '-')}-{number}"
        sim.add(kind, name)
        order = services.order(
            sim.cluster,
            kind=kind,
            namespace="training",
            name=name,
            action=action,
            requested_by="ann",
            reason="",
            now=sim.now,
        )
        sim.rig.break_next(status, match, after=after)
        for _ in range(90):
            services.run(order.pk, clock=sim.clock)  # delivered twice
            sim.pass_time()
            order.refresh_from_db()
            left = sim.running(kind, name)
            if order.state != "running":
                break
        what = (call, status, after, order.state, str(order.why))
        assert order.state == "done", what
        assert (len(left), len(sim.uids[name])) == ((2, 4) if action == "restart" else (0, 2)), what
        assert sim.rig.inside(sim.rig.api.faults.pending) == [], what  # it was met
