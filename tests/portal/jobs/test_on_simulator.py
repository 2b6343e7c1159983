"""Jobs over HTTP: one that loses a pod or a node runs again; every call of an order meets every failure."""

import threading
from collections.abc import Iterator
from datetime import timedelta

import pytest

from kcover.faults.fault import Fault
from kcover_portal.jobs import services
from kcover_portal.jobs.models import JobOrder
from kcover_portal.operate import pod_watch
from kcover_portal.policies import services as policies
from kcover_portal.rescue import services as rescues
from kcover_portal.rescue.models import Rescue
from kcover_portal.sources import services as sources
from tests.contract import over_http
from tests.portal.jobs.sim_world import KINDS, Simulated, SimWorld
from tests.portal.rescue.test_actions_restart_jobs import GUARDS, POLICY
from tests.portal.rescue.world import World

pytestmark = pytest.mark.django_db
MINUTE = timedelta(seconds=60)
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
    assert sim.now - crashed_at < MINUTE
    after = sim.running(kind, name)
    assert (len(after), after & before) == (3, set())
    assert len(sim.uids[name]) == 6  # each pod was replaced once
    assert order.incident is not None
    order.incident.refresh_from_db()
    assert order.incident.state == "closed"


@pytest.mark.parametrize("kind", KINDS)
def test_a_job_that_loses_a_node_runs_again_elsewhere(sim: SimWorld, kind: str) -> None:
    sim.cluster.guards = GUARDS
    sim.cluster.save()
    policies.apply(POLICY, author="test", reason="", now=sim.now)
    name = f"moved-{kind.lower()}"
    sim.add(kind, name, size=3)
    before = sim.running(kind, name)
    node = sim.node(sorted(sim.nodes_of(kind, name))[0])
    began = sim.now
    sim.report(Fault(kind="xid", code=62, source="kmsg"), node=node.name, boot_id=node.boot_id)
    while not (ended := Rescue.objects.filter(node=node, state="succeeded").exists()) and sim.now - began < MINUTE:
        World.work(sim)
        sim.pass_time()
    assert ended, [(step.name, step.state, str(step.why)) for step in sim.rescue(node.name).steps.all()]
    after = sim.running(kind, name)
    assert (len(after), after & before, len(sim.uids[name])) == (3, set(), 6)
    assert node.name not in sim.nodes_of(kind, name)
    rescues.request(node, "release", actor="user:ann", reason="", now=sim.now)
    World.work(sim)
    assert not sim.rig.cluster.get_node(node.name).unschedulable  # the next test has all nodes


@pytest.mark.parametrize(("pack", "kind"), [("kcover", "PyTorchJob"), ("nvidia", "PyTorchJob"), ("nvidia", "JobSet")])
def test_a_shipped_pack_moves_a_job_off_a_faulty_node(sim: SimWorld, pack: str, kind: str) -> None:
    sim.cluster.guards = GUARDS
    sim.cluster.save()
    policies.install_pack(pack, "enforce", author="test", reason="", now=sim.now)
    name = f"pack-{pack}-{kind.lower()}"
    sim.add(kind, name, size=3)
    before = sim.running(kind, name)
    node = sim.node(sorted(sim.nodes_of(kind, name))[0])
    began = sim.now
    sim.report(Fault(kind="xid", code=79, source="kmsg"), node=node.name, boot_id=node.boot_id)
    while len(sim.running(kind, name) - before) < 3 and sim.now - began < MINUTE:
        World.work(sim)
        sim.pass_time()
    after = sim.running(kind, name)
    assert (len(after), after & before, len(sim.uids[name])) == (3, set(), 6)
    assert node.name not in sim.nodes_of(kind, name)
    while sim.rescue(node.name).state != "succeeded" and sim.now - began < 2 * MINUTE:
        World.work(sim)
        sim.pass_time()
    assert sim.rescue(node.name).state == "succeeded"
    rescues.request(node, "release", actor="user:ann", reason="", now=sim.now)
    World.work(sim)
    assert not sim.rig.cluster.get_node(node.name).unschedulable  # the next test has all nodes


@pytest.mark.parametrize("kind", ["PyTorchJob", "JobSet"])
@pytest.mark.parametrize("recovery", ["off", "shadow"])
def test_a_shipped_pack_touches_no_job_where_job_recovery_forbids_it(sim: SimWorld, kind: str, recovery: str) -> None:
    sim.cluster.guards, sim.cluster.job_recovery = GUARDS, recovery
    sim.cluster.save()
    policies.install_pack("nvidia", "enforce", author="test", reason="", now=sim.now)
    name = f"kept-{recovery}-{kind.lower()}"
    sim.add(kind, name, size=3)
    before = sim.running(kind, name)
    node = sim.node(sorted(sim.nodes_of(kind, name))[0])
    sim.report(Fault(kind="xid", code=79, source="kmsg"), node=node.name, boot_id=node.boot_id)
    for _ in range(20):
        World.work(sim)
        sim.pass_time()
    rescue = sim.rescue(node.name)
    assert (rescue.state, rescue.outcome) == ("succeeded", "escalated")
    assert sim.rig.cluster.get_node(node.name).unschedulable
    assert sim.running(kind, name) == before == sim.uids[name]
    rescues.request(node, "release", actor="user:ann", reason="", now=sim.now)
    World.work(sim)
    assert not sim.rig.cluster.get_node(node.name).unschedulable  # the next test has all nodes


@pytest.mark.parametrize("call", CALLS)
def test_no_job_is_restarted_twice_whichever_call_fails(sim: SimWorld, call: str) -> None:
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
