"""Warm standbys: reserved once, put into service in one patch, released exactly (invariant 40)."""

from datetime import timedelta

import pytest
from django.core.management import call_command
from django.utils import timezone

from kcover import reasons
from kcover.decisions import standby
from kcover.nodes import marks
from kcover.nodes.probation_mark import ANNOTATION, ProbationMark
from kcover_portal.fleet.models import Node
from kcover_portal.kube import port
from kcover_portal.ledger.models import Entry
from kcover_portal.rescue import services
from kcover_portal.rescue.engine import standby_cleanup
from kcover_portal.rescue.models import Assignment
from kcover_portal.rescue.queries import standbys
from tests.codes import codes_of, found_in
from tests.portal.rescue import worker_kills
from tests.portal.rescue.world import NODE, World

pytestmark = pytest.mark.django_db
SPARE = {standby.LABEL: "true", standby.PROOF: "true", "pool": "spare"}
ROLE = {"pool": "train", "node-role.kubernetes.io/gpu": ""}
TAKEN_OVER = {**ROLE, standby.PROOF: "true"}  # the labels of a spare in service
POLICY = """
apiVersion: rescue.ksyun.com/v1
kind: RescuePolicy
metadata: {name: standby}
spec:
  rules:
    - priority: 10
      errorCode: ["62"]
      actions: [{name: cordon}, {name: enableWarmStandby}]
"""


@pytest.fixture
def make(request: pytest.FixtureRequest):
    made = []

    def world(*spares: str, nodes: int = 1, policy: str = POLICY, **more: object) -> World:
        one = World(policy=policy, nodes=nodes)
        made.append(one)
        for number in range(1, nodes + 1):
            one.kube.label_node(f"gpu-{number}", ROLE)
        for name in spares:
            one.kube.add_node(name, labels=SPARE, unschedulable=True, **more)
        one.sync()
        return one

    yield world
    for one in made:
        one.uninstall()


def shape(node: port.Node) -> tuple[object, ...]:
    return dict(node.labels), dict(node.annotations), node.taints, node.unschedulable


def writes(world: World, name: str) -> int:
    return len([call for call in world.kube.writes if call.verb == "apply_node" and call.name == name])


def test_a_spare_takes_over_and_takes_work(make) -> None:
    world = make("spare-1")
    world.fault(62)
    world.work()

    rescue = world.rescue()
    assert (rescue.state, world.step("standby").state) == ("succeeded", "done")
    assert dict(found_in(world.step("standby").because, "standing_in").params)["standby"] == "spare-1"
    node = world.kube.get_node("spare-1")
    assert not node.unschedulable
    assert node.labels == TAKEN_OVER
    assert world.kube.get_node(NODE).unschedulable
    row = Assignment.objects.get()
    assert (row.state, row.spare.name, row.origin.name, row.rescue) == ("active", "spare-1", NODE, rescue)
    assert writes(world, "spare-1") == 2  # the promise; the role, cordon and mark at once
    verbs = list(Entry.objects.filter(node="spare-1").order_by("sequence").values_list("verb", flat=True))
    assert verbs == ["reserve.begun", "reserve.done", "activate.begun", "activate.done"]


def test_an_operators_release_makes_it_a_standby_again_byte_for_byte(make) -> None:
    taints = [port.Taint("kcover.io/standby", "", "NoSchedule"), port.Taint("other", "x", "NoExecute")]
    world = make("spare-1", annotations={"kcover.io/note": "mine"}, taints=taints)
    world.kube.apply_node(NODE, port.NodeChange(add_taints=(port.Taint("dedicated", "train", "NoSchedule"),)))
    before = shape(world.kube.get_node("spare-1"))
    world.fault(62)
    world.work()
    during = world.kube.get_node("spare-1")
    assert {taint.key for taint in during.taints} == {"other", "dedicated"}
    world.sync()

    services.request(world.node("spare-1"), "release", actor="user:anna", reason="", now=world.now)
    world.work()

    after = shape(world.kube.get_node("spare-1"))
    assert (after[0], after[1], after[3]) == (before[0], before[1], before[3])
    assert set(after[2]) == set(before[2])
    assert writes(world, "spare-1") == 3
    row = Assignment.objects.get()
    assert (row.state, row.because) == ("released", reasons.of("released_by", by="user:anna").to_json())
    world.sync()
    assert [one.busy for one in standbys.spares(world.cluster.nodes.all(), now=world.now)] == [None]


def test_labels_that_others_changed_on_a_spare_are_kept(make) -> None:
    world = make("spare-1")
    world.fault(62)
    world.work()
    world.kube.label_node("spare-1", {"pool": "inference", "team": "b"})
    world.sync()
    call_command("release", "--all", "--cluster", "c1")
    world.now = timezone.now()
    world.work()
    node = world.kube.get_node("spare-1")
    assert node.labels == {**SPARE, "pool": "inference", "team": "b"}
    assert node.unschedulable


def test_a_missing_spare_is_recorded_and_the_plan_continues(make) -> None:
    world = make("spare-1", ready=False)
    world.fault(62)
    world.work()
    step = world.step("standby")
    assert (world.rescue().state, step.state) == ("succeeded", "done")
    assert step.why == reasons.both(
        reasons.of("standby_shortage", standbys=1), reasons.of("standby_not_ready", standby="spare-1")
    )
    assert list(standbys.shortages()) == [step]
    assert writes(world, "spare-1") == 0


@pytest.mark.parametrize("why", ["fault", "marks", "excluded", "cpu", "gone", "probation"])
def test_an_unhealthy_spare_is_not_taken(make, why: str) -> None:
    world = make("spare-1")
    match why:
        case "fault":
            world.fault(79, node="spare-1")
        case "marks":
            services.request(world.node("spare-1"), "cordon", actor="user:anna", reason="", now=world.now)
            world.work()
        case "excluded":
            world.kube.label_node("spare-1", {"kcover.io/exclude": "true"})
        case "cpu":
            world.kube.delete_node("spare-1")
            world.kube.add_node("spare-1", gpus=0, labels=SPARE)
        case "probation":
            Node.objects.filter(name="spare-1").update(probation_until=world.now + timedelta(days=1))
        case "gone":
            world.kube.delete_node("spare-1")
    world.sync()
    world.fault(62)
    world.work()
    assert "standby_shortage" in codes_of(world.step("standby").because)
    assert not Assignment.objects.exists()


def test_a_spare_whose_probation_the_rows_do_not_show_is_not_taken(make) -> None:
    world = make("spare-1")
    mark = ProbationMark(probation=1, rescue=1, until=world.now + timedelta(days=1))
    world.kube.apply_node("spare-1", port.NodeChange(annotations={ANNOTATION: mark.render()}))
    world.fault(62)
    world.work()
    assert codes_of(world.step("standby").because) == ["standbys_unfit"]
    assert (writes(world, "spare-1"), Assignment.objects.filter(state="active").exists()) == (1, False)


def test_two_rescues_never_get_the_same_spare(make) -> None:
    world = make("spare-1", nodes=2)
    world.fault(62)
    world.fault(62, node="gpu-2")
    world.work()
    notes = sorted(codes_of(world.step("standby", node).because) for node in ("gpu-1", "gpu-2"))
    assert notes[0] == ["standby_shortage", "standby_promised"]
    assert notes[1][0] == "standing_in"


def test_a_node_that_has_a_standby_gets_no_second(make) -> None:
    world = make("spare-1", "spare-2")
    world.fault(62)
    world.work()
    first = world.rescue()
    world.sync()
    services.request(world.node(), "release", actor="user:anna", reason="mended", now=world.now)
    world.work()
    world.sync()
    world.now += standby_cleanup.LEASE_TIME * 100
    world.fault(62)
    world.work()
    assert world.rescue().pk > first.pk
    assert dict(found_in(world.step("standby").because, "standing_in_since").params)["rescue"] == str(first.pk)
    assert Assignment.objects.count() == 1


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("call", [1, 2])
def test_an_ambiguous_write_to_a_spare_continues(make, call: int, after: bool) -> None:
    world = make("spare-1")
    world.kube.fail("apply_node", port.Unavailable("cut", ambiguous=True), name="spare-1", times=call, after=after)
    world.fault(62)
    world.until("succeeded")
    assert Assignment.objects.get().state == "active"
    assert writes(world, "spare-1") == 2
    assert world.kube.get_node("spare-1").labels == TAKEN_OVER


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("call", [1, 2])
def test_a_standby_step_continues_after_its_worker_died(make, call: int, after: bool) -> None:
    world = make("spare-1", "spare-2")
    before = shape(world.kube.get_node("spare-1"))
    world.kube.label_node("spare-2", {standby.LABEL: None})
    world.sync()
    worker_kills.kill_at(world.kube, "apply_node", call=call, after=after, name="spare-1")
    world.fault(62)
    assert worker_kills.work(world)
    world.work()
    assert world.rescue().state == "succeeded"
    assert Assignment.objects.get().state == "active"
    assert writes(world, "spare-1") == 2
    world.sync()
    services.request(world.node("spare-1"), "release", actor="user:anna", reason="", now=world.now)
    world.work()
    assert shape(world.kube.get_node("spare-1")) == before


def test_a_spare_that_turned_unhealthy_is_given_back_and_another_chosen(make) -> None:
    world = make("spare-1", "spare-2")
    taken = []

    def meanwhile(name: str, *args: object, **more: object) -> object:
        if name.startswith("spare") and not taken:
            taken.append(name)
            done = apply_node(name, *args, **more)
            world.fault(79, node=name)  # after it was promised
            return done
        return apply_node(name, *args, **more)

    apply_node = world.kube.apply_node
    world.kube.apply_node = meanwhile
    world.fault(62)
    world.work()
    first, second = Assignment.objects.order_by("pk")
    assert (first.state, first.spare.name, second.state) == ("released", taken[0], "active")
    assert first.because == reasons.of("standby_unhealthy", standby=taken[0]).to_json()
    node = world.kube.get_node(taken[0])
    assert (dict(node.labels), dict(node.annotations), node.unschedulable) == (SPARE, {}, True)


def test_unfit_spares_are_tried_three_times_at_most(make) -> None:
    world = make(*(f"spare-{number}" for number in range(5)))
    for number in range(5):  # the watch has not seen it yet
        world.kube.set_ready(f"spare-{number}", False)
    world.fault(62)
    world.work()
    assert world.step("standby").why == reasons.of("standbys_unfit", count=3)
    assert list(Assignment.objects.values_list("state", flat=True)) == ["released"] * 3
    assert all(writes(world, f"spare-{number}") == 0 for number in range(5))


def test_a_spare_that_was_reserved_for_an_ended_rescue_is_given_back(make) -> None:
    world = make("spare-1")
    before = shape(world.kube.get_node("spare-1"))
    broken = port.Unavailable("down")
    apply_node, reserved = world.kube.apply_node, []

    def only_once(name: str, *args: object, **more: object) -> object:
        if name == "spare-1" and reserved:
            raise broken
        reserved.extend([name] if name == "spare-1" else [])
        return apply_node(name, *args, **more)

    world.kube.apply_node = only_once
    world.fault(62)
    world.work()
    assert world.kube.get_node("spare-1").labels[marks.STATE_LABEL] == "reserved"
    assert standby_cleanup.tidy(clock=world.clock) == 0
    services.cancel(world.rescue(), actor="user:anna", reason="healed", now=world.now)

    assert standby_cleanup.tidy(clock=world.clock) == 0  # the cluster does not answer
    world.kube.apply_node = apply_node
    assert standby_cleanup.tidy(clock=world.clock) == 0  # nor is it asked again at once
    world.now += standby_cleanup.LEASE_TIME
    assert standby_cleanup.tidy(clock=world.clock) == 1
    assert shape(world.kube.get_node("spare-1")) == before
    assert Assignment.objects.get().state == "released"
    verbs = Entry.objects.filter(node="spare-1", actor="system").order_by("sequence").values_list("verb", flat=True)
    assert list(verbs) == ["give_back.begun", "give_back.failed", "give_back.begun", "give_back.done"]


def test_the_rule_of_the_standby_policy_decides_and_its_label_goes_over(make) -> None:
    policy = (
        POLICY
        + """
---
apiVersion: rescue.ksyun.com/v1
kind: WarmStandbyPolicy
metadata: {name: cluster-warm-standby}
spec:
  matches:
    - originNode: {app: demo}
      targetNode: {fits: demo}
"""
    )
    world = make("spare-1", "spare-2", "spare-3", policy=policy)
    world.kube.label_node(NODE, {"app": "demo", "nvidia.com/gpu.product": "H100"})
    world.kube.label_node("spare-2", {"fits": "demo"})
    world.sync()
    world.fault(62)
    world.work()
    assert world.kube.get_node("spare-2").labels == {**TAKEN_OVER, "app": "demo", "fits": "demo"}
    assert dict(found_in(world.step("standby").because, "standby_by_rule").params)["rule"] == "1"


def test_a_manual_uncordon_of_the_node_stops_it(make) -> None:
    world = make("spare-1")
    world.kube.fail("apply_node", port.Unavailable("down"), name="spare-1")
    world.fault(62)
    world.work()
    world.kube.uncordon(NODE)
    world.pass_time(5)
    assert world.rescue().state == "cancelled"
    assert standby_cleanup.tidy(clock=world.clock) == 1
    assert Assignment.objects.get().state == "released"


def test_nothing_is_written_while_paused(make) -> None:
    world = make("spare-1")
    world.fault(62)
    world.work()
    world.sync()
    rescue = world.rescue()
    Assignment.objects.update(state="reserved")
    world.cluster.mode = "paused"
    world.cluster.save()
    before = len(world.kube.writes)
    assert standby_cleanup.tidy(clock=world.clock) == 0
    assert len(world.kube.writes) == before
    assert rescue.pk


@pytest.mark.django_db(transaction=True)
@pytest.mark.postgres(reason="SQLite's test database is in the memory of one thread")
def test_inv_40_a_spare_is_never_reserved_twice_by_concurrent_workers(make) -> None:
    together = 6
    world = make("spare-1", "spare-2", "spare-3", nodes=together)
    bounds = {"storm": {"enabled": False}, "breaker": {"enabled": False}, "rate": {"enabled": False}}
    world.cluster.guards = bounds
    world.cluster.save()
    world.break_at_once(f"gpu-{number}" for number in range(1, together + 1))
    rows = Assignment.objects.filter(state="active")
    assert sorted(rows.values_list("spare__name", flat=True)) == ["spare-1", "spare-2", "spare-3"]
    assert rows.values("rescue").distinct().count() == 3
    assert standbys.shortages().count() == 3


TAINT = port.Taint(standby.LABEL, "", "NoSchedule")


@pytest.mark.parametrize(
    ("labels", "taints", "cordoned", "code"),
    [
        ({}, [], True, "standby_unproved"),
        ({}, [], False, "standby_unproved"),
        ({}, [TAINT], False, ""),
        ({}, [TAINT], True, "standby_cordoned"),
        ({standby.PROOF: "true"}, [], True, ""),
    ],
)
def test_a_kubelet_alone_makes_no_standby(make, labels, taints, cordoned: bool, code: str) -> None:
    """It can set the label, and uncordon; it can add no taint, and no label of node-restriction.kubernetes.io."""
    world = make()
    world.kube.add_node("thief", labels={standby.LABEL: "true", **labels}, taints=taints, unschedulable=cordoned)
    world.sync()
    [found] = standbys.spares(world.cluster.nodes.all(), now=world.now)
    assert (found.busy.code if found.busy else "") == code
    world.fault(62)
    world.work()
    node = world.kube.get_node("thief")
    assert ("node-role.kubernetes.io/gpu" in node.labels) == (not code)
    assert node.unschedulable == (cordoned and bool(code))


def test_a_proof_that_is_gone_before_the_role_is_handed_over_counts(make) -> None:
    world = make("spare-1")  # the watch has not seen yet that an admin took the proof away
    world.kube.label_node("spare-1", {standby.PROOF: None})
    world.fault(62)
    world.work()
    node = world.kube.get_node("spare-1")
    assert (node.unschedulable, "node-role.kubernetes.io/gpu" in node.labels) == (True, False)
    assert "standby_unproved" in codes_of(Assignment.objects.latest("pk").because)
