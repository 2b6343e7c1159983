"""Invariant 48: shadow mode writes nothing to a cluster, whatever is in progress. The simulator counts over HTTP.

Each case has a pending write. It is not made while the cluster is in shadow mode, however often all workers run. It is
made after the mode changes, which proves that a write was pending.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta

import pytest

from kcover.decisions import standby
from kcover_portal.checks import queries as check_queries, services as check_runs
from kcover_portal.checks.services import autopilot_labels, pvc_check
from kcover_portal.fleet.models import CheckResult, Cluster
from kcover_portal.fleet.services import cluster_settings, node_selection
from kcover_portal.incidents import queries as incident_queries
from kcover_portal.incidents.models import Incident
from kcover_portal.preflight.models import PreflightGate
from kcover_portal.preflight.services import gate_labels
from kcover_portal.rescue import queries, services
from kcover_portal.rescue.engine import kube_events, standby_cleanup
from tests.invariants.counted_cluster import CountedCluster
from tests.portal.rescue.test_actions_reboot import WAITS
from tests.portal.rescue.test_actions_standby import POLICY as STANDBY
from tests.portal.rescue.world import CORDON, HEAL, NODE, World
from tests.simulator import api_server

Write = tuple[str, str]
TRAIN = {"app": "train"}
NODES: Write = ("patch", "nodes")


class Shadowed(World):
    """A world on a served cluster, in which every task of the workers is done."""

    kube: CountedCluster

    def __init__(self, server: api_server.ApiServer, *, policy: str) -> None:
        super().__init__(policy=policy, nodes=2, fake=lambda clock: CountedCluster(server))

    def mode(self, mode: str) -> None:
        cluster_settings.set_cluster(self.cluster, {"mode": mode}, actor="user:ann", reason="", now=self.now)

    def all_workers(self, *, until: Callable[[], bool] = lambda: False) -> None:
        """All that the sweep wakes and beat begins, for about a minute, or ``until`` it has done what is expected."""
        for seconds in (1, 5, 20, 31):
            if until():
                return
            self.now += timedelta(seconds=seconds)
            self.kube.finish_deletions()
            self.sync()
            self.report()
            services.sweep(now=self.now)
            for pk, _ in incident_queries.due_for_decision(now=self.now):
                services.decide_and_run([pk], clock=self.clock)
            kube_events.write_incidents(list(Incident.objects.values_list("pk", flat=True)), now=self.now)
            for pk, _ in queries.due(now=self.now):
                services.run(pk, clock=self.clock)
            for pk, _ in queries.to_withdraw(now=self.now):
                services.withdraw(pk, clock=self.clock)
            services.reconcile(now=self.now)
            standby_cleanup.tidy(clock=self.clock)
            autopilot_labels.write(Cluster.objects.get(pk=self.cluster.pk), clock=self.clock)
            gate_labels.write(Cluster.objects.get(pk=self.cluster.pk), clock=self.clock)
            for pk in check_queries.running():
                check_runs.advance(pk, now=self.now)


def nothing(_world: Shadowed) -> None:
    """It is all there."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """``before``: in enforce mode; ``during``: in shadow mode; ``comes``: what is written when acts go on."""

    policy: str = HEAL
    before: Callable[[Shadowed], object] = nothing
    during: Callable[[Shadowed], object] = nothing
    comes: tuple[Write, ...] = (NODES,)


def drains(world: Shadowed) -> None:
    """A budget refuses the one pod that is in the way."""
    world.kube.add_pod("train-0", node=NODE, labels=TRAIN)
    world.kube.add_budget("keep", TRAIN)
    world.fault(62)
    world.until("waiting", step="drain")


def isolated(world: Shadowed) -> None:
    world.fault(62)
    world.until("succeeded")
    world.sync()


def reboots(world: Shadowed) -> None:
    world.fault(62)
    world.until_reboot_is_asked()


def called_off(world: Shadowed) -> None:
    reboots(world)
    services.cancel(world.rescue(), actor="user:ann", reason="", now=world.now)


def waits_to_reboot(world: Shadowed) -> None:
    world.fault(62)
    world.until("waiting", step="reboot")


def verifies(world: Shadowed) -> None:
    reboots(world)
    world.kube.reboot(NODE)
    world.until("waiting", step="verify")


def asked_to_release(world: Shadowed) -> None:
    isolated(world)
    services.request(world.node(), "release", actor="user:ann", reason="", now=world.now)


def uncordoned(world: Shadowed) -> None:
    """By hand: the portal's marks are to go, too."""
    world.kube.patch_node(NODE, {"spec": {"unschedulable": None}})


def promised(world: Shadowed) -> None:
    """A standby is promised, and its role not handed over yet."""
    world.kube.add_node("spare-1", labels={standby.LABEL: "true", standby.PROOF: "true"}, unschedulable=True)
    world.sync()
    world.kube.refuse_once("PATCH /api/v1/nodes/spare-1", skip=1)
    world.fault(62)
    world.until("waiting", step="standby")


def promised_in_vain(world: Shadowed) -> None:
    promised(world)
    services.cancel(world.rescue(), actor="user:ann", reason="", now=world.now)


def checked(world: Shadowed) -> None:
    """The node's checks pass, and its label is to say so."""
    cluster_settings.set_cluster(world.cluster, {"autopilot_labels": True}, actor="t", reason="", now=world.now)
    world.report()
    CheckResult.objects.create(
        node=world.node(), name="pciebw", device="GPU-0", status="pass", seen_at=world.now, changed_at=world.now
    )


def passed_pair_tests(world: Shadowed) -> None:
    """The node passed its pair tests, and its label is to say so."""
    cluster_settings.set_cluster(world.cluster, {"preflight_labels": True}, actor="t", reason="", now=world.now)
    node = world.node()
    PreflightGate.objects.create(node=node, node_uid=node.uid, passed_at=world.now)


def asked_for_storage(world: Shadowed) -> None:
    world.report()
    nodes = node_selection.nodes(world.cluster, hosts=[NODE])
    run = check_runs.begin(world.cluster, nodes, checks=(pvc_check.CHECK,), actor="user:ann", now=world.now)
    check_runs.advance(run.pk, now=world.now)


def refused_storage(world: Shadowed) -> None:
    """The claim could not be made at once, and is tried again."""
    world.kube.refuse_once("POST /api/v1/namespaces/kcover-jobs/persistentvolumeclaims")
    asked_for_storage(world)


def later(seconds: float) -> Callable[[Shadowed], None]:
    def wait(world: Shadowed) -> None:
        world.now += timedelta(seconds=seconds)

    return wait


CASES = {
    "a fault": Case(policy=CORDON, during=lambda world: world.fault(62), comes=(NODES, ("create", "events"))),
    "an eviction": Case(
        before=drains, during=lambda world: world.kube.drop_budget("keep"), comes=(("create", "pods/eviction"),)
    ),
    "a reboot": Case(policy=WAITS, before=waits_to_reboot, during=later(1200), comes=(("create", "jobs"),)),
    "the mark of a node that is back": Case(before=reboots, during=lambda world: world.kube.reboot(NODE)),
    "an uncordon": Case(before=verifies),
    "a release that was asked for": Case(policy=CORDON, before=asked_to_release),
    "what is left after an uncordon by hand": Case(policy=CORDON, before=isolated, during=uncordoned),
    "an uncordon by hand in the middle": Case(before=drains, during=uncordoned),
    "a job that is called back": Case(before=called_off, comes=(("delete", "jobs"),)),
    "a standby's role": Case(policy=STANDBY, before=promised),
    "a standby that is given back": Case(policy=STANDBY, before=promised_in_vain),
    "Autopilot's labels": Case(policy="", before=checked),
    "the preflight gate": Case(policy="", before=passed_pair_tests),
    "a claim that is to be made": Case(
        policy="", before=refused_storage, comes=(("create", "persistentvolumeclaims"),)
    ),
    "a claim that is to be deleted": Case(policy="", before=asked_for_storage, during=later(91), comes=()),
}


@pytest.fixture
def server() -> Iterator[api_server.ApiServer]:
    with api_server.serving() as running:
        yield running


@pytest.mark.parametrize("name", CASES)
def test_inv_48_shadow_mode_writes_nothing_to_a_cluster(db: None, server: api_server.ApiServer, name: str) -> None:
    case = CASES[name]
    world = Shadowed(server, policy=case.policy)
    try:
        case.before(world)
        world.mode("shadow")
        world.kube.forget()
        case.during(world)
        world.all_workers()
        assert world.kube.written() == []
        world.mode("enforce")
        world.all_workers(until=lambda: set(case.comes) <= set(world.kube.written()))
        assert set(case.comes) <= set(world.kube.written())
    finally:
        world.uninstall()
