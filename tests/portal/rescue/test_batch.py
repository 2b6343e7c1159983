"""Faults of many nodes that are decided in one transaction and cordoned side by side."""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta

import pytest
from django.db import DatabaseError, connection
from django.test.utils import CaptureQueriesContext

from kcover_portal.fleet import queries as fleet_queries
from kcover_portal.fleet.models import Cluster, Node
from kcover_portal.fleet.services import cluster_settings
from kcover_portal.incidents.models import Incident
from kcover_portal.kube import port
from kcover_portal.ledger.models import Entry
from kcover_portal.rescue import services
from kcover_portal.rescue.decide.waiting_incidents import BATCH_INCIDENTS, MAX_WAITING, WaitingIncidents
from kcover_portal.rescue.engine import batch
from kcover_portal.rescue.models import Decision, Rescue
from kcover_portal.rescue.step import call_checks, own_rows
from tests import proofs
from tests.portal.rescue.world import CORDON, HEAL, World

pytestmark = pytest.mark.django_db

FAULTS = 150
STATEMENTS_EACH = 3  # from the claim of due incidents to the last write to a node


@pytest.fixture(params=[False, True], ids=["one thread", "side by side"])
def threads(request: pytest.FixtureRequest) -> Iterator[batch.Threads | None]:
    if not request.param:
        yield None
        return
    with ThreadPoolExecutor(batch.MAX_CONCURRENT_CALLS) as executor:
        yield batch.Threads(calls=executor, events=executor)


def make(policy: str = CORDON, *, nodes: int, pools: int = 1, **guards: object) -> World:
    world = World(policy=policy, nodes=nodes)
    for number in range(1, nodes + 1):
        world.kube.label_node(f"gpu-{number}", {"pool": f"p{number % pools}", "rack": f"r{number % 3}"})
    world.sync()
    off = {"storm": {"enabled": False}, "breaker": {"enabled": False}, "rate": {"enabled": False}}
    cluster_settings.set_guards(world.cluster, {**off, **guards}, actor="t", reason="", now=world.now)
    return world


def hurt(world: World, numbers: Sequence[int]) -> list[int]:
    for number in numbers:
        world.fault(62, node=f"gpu-{number}")
    return list(Incident.objects.order_by("pk").values_list("pk", flat=True))


def verbs_of(rescue: Rescue) -> list[str]:
    return list(Entry.objects.filter(rescue=rescue.pk).order_by("sequence").values_list("verb", flat=True))


def cordoned(world: World) -> list[str]:
    return sorted(node.name for node in world.kube.list_nodes().items if node.unschedulable)


def test_many_faults_share_their_statements() -> None:
    world = make(nodes=FAULTS)
    due = hurt(world, range(1, FAULTS + 1))
    real, before = world.kube.apply_node, []
    with CaptureQueriesContext(connection) as captured:

        def counted(name: str, *args: object, **more: object) -> object:
            before.append(len([query for query in captured.captured_queries if "SAVEPOINT" not in query["sql"]]))
            return real(name, *args, **more)

        world.kube.apply_node = counted
        while due:
            taken, due = due[:BATCH_INCIDENTS], due[BATCH_INCIDENTS:]
            assert services.decide_and_run(taken, clock=world.clock) == []
    assert len(cordoned(world)) == FAULTS
    assert len(before) == FAULTS
    assert before[-1] <= STATEMENTS_EACH * FAULTS  # the settling of earlier batches is among them


def test_every_rescue_of_a_batch_ends_like_a_single_one(threads: batch.Threads | None) -> None:
    world = make(nodes=20)
    services.decide_and_run(hurt(world, range(1, 21)), clock=world.clock, threads=threads)
    assert len(cordoned(world)) == 20
    alone = make_alone()
    ignored = {"id", "cluster_id", "node_id", "node_uid", "decision_id", "marks", "opened_because"}
    for rescue in Rescue.objects.filter(cluster=world.cluster):
        for column in {field.attname for field in Rescue._meta.concrete_fields} - ignored:
            assert getattr(rescue, column) == getattr(alone, column), column
        assert {**rescue.marks, "rescue": 0} == {**alone.marks, "rescue": 0}
        [step] = rescue.steps.all()
        [of_alone] = alone.steps.all()
        assert (step.state, step.because, step.attempts, step.failures) == (
            of_alone.state,
            of_alone.because,
            of_alone.attempts,
            of_alone.failures,
        )
        verbs = verbs_of(rescue)
        assert verbs == verbs_of(alone)
        assert rescue.incidents.count() == 1


def make_alone() -> Rescue:
    Cluster.objects.update(name="first")
    world = make(nodes=1)
    services.decide_and_run(hurt(world, [1])[-1:], clock=world.clock)
    return Rescue.objects.get(cluster=world.cluster)


GUARDS = [
    {"breaker": {"enabled": True, "limit": 4}},
    {"breaker": {"enabled": True, "limit": "25%"}},
    {"budget": {"limit": 3}},
    {"budget": {"limit": 1, "by": "pool"}},
    {"budget": {"limit": 2, "by": "label:rack"}},
    {"floor": {"percent": 80}},
    {"storm": {"enabled": True, "nodes": 6}},
    {"cooldown": 3600},
    {"budget": {"limit": 5}, "floor": {"percent": 50}, "breaker": {"enabled": True, "limit": 7}},
]
RULE_BUDGET = CORDON.replace("rescue.ksyun.com", "kcover.io").replace("priority: 10,", 'priority: 10, budget: "30%",')


@pytest.mark.parametrize("guards", GUARDS, ids=str)
@pytest.mark.parametrize("policy", [CORDON, RULE_BUDGET], ids=["cordon", "rule with a budget"])
def test_inv_29_a_batch_is_decided_like_a_sequence(policy: str, guards: dict[str, object]) -> None:
    """The guards count the rescues that earlier decisions of the same transaction have opened."""
    answers = []
    for together in (False, True):
        world = make(policy, nodes=12, pools=3, **guards)
        hurt(world, [1])
        world.work()  # a node that is isolated already
        hurt(world, range(2, 11))
        due = list(Incident.objects.filter(decided_at=None).order_by("node__pk").values_list("pk", flat=True))
        for taken in [due] if together else [[pk] for pk in due]:
            services.decide_and_run(taken, clock=world.clock)
        found = Decision.objects.filter(cluster=world.cluster).order_by("node__pk", "pk")
        answers.append(
            [(row.node.name, row.answer, row.because, {**row.facts["counts"], "symptoms": 0}) for row in found]
        )
        Cluster.objects.filter(pk=world.cluster.pk).update(name=f"was {together}")
    assert answers[0] == answers[1]
    assert {answer for _, answer, _, _ in answers[0]} <= {"rescue", "hold"}


def test_one_incident_that_cannot_be_decided_delays_no_other() -> None:
    world = make(nodes=4)
    due = hurt(world, range(1, 5))
    Node.objects.filter(name="gpu-2").update(labels=[])
    with pytest.raises(AttributeError):
        services.decide_and_run(due, clock=world.clock)
    assert cordoned(world) == ["gpu-1", "gpu-3", "gpu-4"]
    assert Incident.objects.get(node__name="gpu-2").decide_at is not None


def test_one_incident_of_each_node_is_decided_and_the_others_are_left() -> None:
    world = make(nodes=2)
    world.fault(62, node="gpu-1", pci="0000:01:00")
    world.fault(62, node="gpu-1", pci="0000:02:00")
    due = hurt(world, [2])
    assert services.decide_and_run(due, clock=world.clock) == [due[1]]
    assert cordoned(world) == ["gpu-1", "gpu-2"]
    assert services.decide_and_run([due[1]], clock=world.clock) == []
    assert Decision.objects.get(incident=due[1]).answer == "none"  # the node is isolated


def test_inv_37_a_pause_holds_calls_that_have_not_begun(
    threads: batch.Threads | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_once = 1 if threads is None else batch.MAX_CONCURRENT_CALLS
    world = make(nodes=2 * batch.MAX_CONCURRENT_CALLS)
    due = hurt(world, range(1, 2 * batch.MAX_CONCURRENT_CALLS + 1))
    real, check = world.kube.apply_node, call_checks.check

    def paused(*args: object, **more: object) -> object:
        if threads is None:
            Cluster.objects.update(mode="paused")
        return real(*args, **more)

    def paused_after(
        asked: Sequence[call_checks.Claim], *, now: datetime
    ) -> dict[call_checks.Claim, call_checks.CallCheck]:
        checked = check(asked, now=now)
        if threads is not None:  # threads do not share the transaction of the test
            Cluster.objects.update(mode="paused")
        return checked

    world.kube.apply_node = paused
    monkeypatch.setattr(call_checks, "check", paused_after)
    services.decide_and_run(due, clock=world.clock, threads=threads)
    assert len(cordoned(world)) == at_once
    waiting = Rescue.objects.filter(state="waiting")
    assert [(row.why.code, row.calls_begun) for row in waiting] == [("paused", 0)] * (len(due) - at_once)


@pytest.mark.parametrize("nodes", [3, batch.MAX_CONCURRENT_CALLS + 1], ids=["one wave", "a wave and one more"])
def test_longer_plans_are_handed_to_the_workers(threads: batch.Threads | None, nodes: int) -> None:
    world = make(HEAL, nodes=nodes)
    services.decide_and_run(hurt(world, range(1, nodes + 1)), clock=world.clock, threads=threads)
    rescues = Rescue.objects.order_by("pk")
    assert [row.lease_until for row in rescues] == [None] * nodes
    assert [row.steps.first().state for row in rescues] == ["done"] * nodes
    assert [row.steps.get(name="drain").attempts for row in rescues] == [0] * nodes
    world.work()
    assert [row.steps.get(name="drain").state for row in rescues] == ["done"] * nodes


def test_calls_that_cannot_be_settled_together_are_settled_alone(
    threads: batch.Threads | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = make(nodes=3)
    keep = own_rows.keep_marks

    def fails_for_many(*rescues: Rescue) -> None:
        keep(*rescues)
        if len(rescues) > 1:
            raise DatabaseError

    monkeypatch.setattr(own_rows, "keep_marks", fails_for_many)
    services.decide_and_run(hurt(world, [1, 2, 3]), clock=world.clock, threads=threads)
    assert cordoned(world) == ["gpu-1", "gpu-2", "gpu-3"]
    for rescue in Rescue.objects.all():
        assert (rescue.state, rescue.outcome, rescue.marks["rescue"]) == ("succeeded", "isolated", rescue.pk)
        assert [verb for verb in verbs_of(rescue) if verb.startswith("cordon.")] == ["cordon.begun", "cordon.done"]
        assert proofs.broken_claim(rescue) == ""


def test_a_late_call_is_recorded_as_not_made_and_begun_again() -> None:
    world = make(nodes=3)
    due = hurt(world, [1, 2, 3])
    real = world.kube.apply_node

    def slow(name: str, *args: object, **more: object) -> object:
        world.now += timedelta(seconds=8)
        return real(name, *args, **more)

    world.kube.apply_node = slow
    services.decide_and_run(due, clock=world.clock)
    assert cordoned(world) == ["gpu-1", "gpu-2", "gpu-3"]
    late = [rescue for rescue in Rescue.objects.all() if verbs_of(rescue).count("cordon.begun") == 2]
    assert late
    for rescue in late:
        calls = [verb for verb in verbs_of(rescue) if verb.startswith("cordon.")]
        assert calls == ["cordon.begun", "cordon.failed", "cordon.begun", "cordon.done"]
        failed = Entry.objects.get(rescue=rescue.pk, verb="cordon.failed")
        assert (failed.data["because"]["code"], failed.data["held_back"]) == ("call_not_in_time", True)
    assert [proofs.broken_claim(rescue) for rescue in Rescue.objects.all()] == [""] * 3


def test_a_cordon_that_was_begun_and_not_tried_is_recorded_as_not_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """The portal cannot read the cluster's access, for example because a key is missing."""
    world = make(nodes=2)
    due = hurt(world, [1, 2])

    def unusable(cluster: Cluster) -> port.Cluster:
        raise port.Unavailable("no access")

    with monkeypatch.context() as patched:
        patched.setattr(fleet_queries, "connect", unusable)
        services.decide_and_run(due, clock=world.clock)
    for rescue in Rescue.objects.all():
        assert [verb for verb in verbs_of(rescue) if verb.startswith("cordon.")] == ["cordon.begun", "cordon.failed"]
        assert (rescue.state, rescue.calls_begun) == ("waiting", 0)
    world.pass_time(10)
    assert cordoned(world) == ["gpu-1", "gpu-2"]
    assert [proofs.broken_claim(rescue) for rescue in Rescue.objects.all()] == ["", ""]


def test_a_rescue_that_was_cancelled_meanwhile_is_not_settled() -> None:
    world = make(nodes=3)
    due = hurt(world, [1, 2, 3])
    real = world.kube.apply_node

    def cancelled(name: str, *args: object, **more: object) -> object:
        if name == "gpu-2":
            rescue = Rescue.objects.get(node__name=name)
            services.cancel(rescue, actor="user:ann", reason="", now=world.now)
        return real(name, *args, **more)

    world.kube.apply_node = cancelled
    services.decide_and_run(due, clock=world.clock)
    states = dict(Rescue.objects.values_list("node__name", "state"))
    assert states == {"gpu-1": "succeeded", "gpu-2": "cancelled", "gpu-3": "succeeded"}
    assert Node.objects.get(name="gpu-2").locked_until is None
    verbs = verbs_of(world.rescue("gpu-2"))
    assert "cordon.done" in verbs  # it did happen


def test_waiting_incidents_are_taken_together_by_one_thread() -> None:
    waiting = WaitingIncidents()
    waiting.add(1, [3, 4, 3])
    waiting.add(2, [9])
    assert waiting.take(1) == [3, 4]
    waiting.add(1, [5])
    assert waiting.take(1) == []
    assert waiting.take(2) == [9]
    with waiting.deciding(1):
        pass
    assert waiting.next_waiting(1) == 5
    assert waiting.take(1) == [5]


def test_waiting_incidents_are_bounded() -> None:
    waiting = WaitingIncidents()
    waiting.add(0, range(MAX_WAITING + 5))
    taken = []
    while batch_of := waiting.take(0):
        taken += batch_of
        assert len(batch_of) <= BATCH_INCIDENTS
        with waiting.deciding(0):
            pass
    assert taken == list(range(MAX_WAITING))
