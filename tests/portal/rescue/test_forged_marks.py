"""The kubelet of a node may write the portal's marks on it. The portal takes back only what its own rows state."""

import json
from collections.abc import Mapping
from typing import Any

import pytest

from kcover.decisions import standby
from kcover.nodes import marks, probation_mark
from kcover_portal.kube import port
from kcover_portal.rescue import services
from kcover_portal.rescue.models import Probation, Rescue
from kcover_portal.rescue.queries import needs_person
from tests.codes import codes_of
from tests.portal.rescue import agents, test_actions_standby as spares, test_probation
from tests.portal.rescue.world import CORDON, HEAL, NODE, World

pytestmark = pytest.mark.django_db
ADMIN = {"key": "security.example/quarantine", "value": "true", "effect": "NoExecute"}
POOL = "node-restriction.kubernetes.io/pool"
ROLE = "node-role.kubernetes.io/payments"
CHANGED = """
apiVersion: kcover.io/v1
kind: RescuePolicy
metadata: {name: changed}
spec:
  rules:
    - priority: 10
      errorCode: ["62"]
      actions:
        - name: cordon
        - {name: taint, attribute: {key: team/faulty, value: "yes", effect: NoSchedule}}
        - {name: label, attribute: {key: node-role.kubernetes.io/payments, value: "no"}}
"""
TAINTS = """
apiVersion: kcover.io/v1
kind: RescuePolicy
metadata: {{name: taints}}
spec:
  rules:
    - priority: 10
      errorCode: ["62"]
      actions:
        - name: cordon
        - {{name: taint, attribute: {{key: {key}, value: "{value}", effect: NoSchedule}}}}
        - {{name: drain}}
        - {{name: reboot, attribute: {{unCordon: "true"}}}}
"""
LABELS = """
apiVersion: kcover.io/v1
kind: RescuePolicy
metadata: {name: labels}
spec:
  rules:
    - priority: 10
      errorCode: ["62"]
      actions: [{name: cordon}, {name: label, attribute: {key: team/why, value: "a"}}]
    - priority: 20
      errorCode: ["79"]
      actions: [{name: cordon}, {name: label, attribute: {key: team/why, value: "b"}}]
"""
TAINT = port.Taint("team/faulty", "yes", "NoSchedule")


def by_admin(world: World, name: str = NODE) -> None:
    def edit(found: dict[str, Any]) -> None:
        found["metadata"].setdefault("labels", {})[POOL] = "public"
        found.setdefault("spec", {}).setdefault("taints", []).append(ADMIN)

    world.kube.objects.edit("Node", "", name, edit)
    world.sync()


def forge(world: World, *, rescue: int = 1, before: Mapping[str, str] = {POOL: "payments"}) -> None:
    """The mark names an admin's taint as added, and labels as changed."""

    def edit(found: dict[str, Any]) -> None:
        notes = found["metadata"].setdefault("annotations", {})
        mark = marks.read(marks.parse(notes.get(marks.ANNOTATION, ""))) or marks.Marks(rescue=rescue, cordon=True)
        content = mark.to_json()
        content["changed"]["taints"].append(list(ADMIN.values()))
        content["before"]["labels"].update(before)
        notes[marks.ANNOTATION] = json.dumps(content)

    world.kube.objects.edit("Node", "", NODE, edit)
    world.sync()


def lose_answer(world: World, *, of: int) -> None:
    """The change of a node with this number, from 1 on, is made, and its answer is lost."""
    apply_node, made = world.kube.apply_node, []

    def apply(*args: Any, **more: Any) -> Any:
        made.append(args)
        answer = apply_node(*args, **more)
        if len(made) == of:
            raise port.Unavailable("timed out", ambiguous=True)
        return answer

    world.kube.apply_node = apply


def is_kept(node: port.Node) -> bool:
    """Returns whether the node has what its kubelet may not change."""
    return node.labels[POOL] == "public" and ADMIN["key"] in {taint.key for taint in node.taints}


def noted(node: port.Node) -> marks.Marks:
    found = marks.read(marks.parse(node.annotations[marks.ANNOTATION]))
    assert found is not None
    return found


def again_by_person(world: World) -> Rescue:
    world.sync()
    services.reconcile(now=world.now)
    services.request(world.node(), "release", actor="user:ann", reason="mended", now=world.now)
    world.work()
    world.sync()
    return Rescue.objects.latest("pk")


@pytest.mark.parametrize("taint", [port.Taint("kcover.io/unhealthy", "xid", "NoSchedule"), TAINT])
@pytest.mark.parametrize("at", ["taint", "end"])
def test_a_row_older_than_the_taint_does_not_lose_it(taint: port.Taint, at: str) -> None:
    """The database is from between the cordon and the taint, and the rescue goes on or has ended."""
    world = World(policy=TAINTS.format(key=taint.key, value=taint.value))
    world.report()
    apply_node, made = world.kube.apply_node, []

    def apply(*args: Any, **more: Any) -> Any:
        answer = apply_node(*args, **more)
        made.append(args)
        if len(made) == 2 and at == "taint":
            Rescue.objects.update(marks_begun={})
            raise port.Unavailable("timed out", ambiguous=True)
        return answer

    world.kube.apply_node = apply
    world.fault(62)
    world.until_reboot_is_asked()
    if at == "end":
        row = Rescue.objects.get()
        older = {**row.marks, "changed": {**row.marks["changed"], "taints": []}}
        Rescue.objects.update(marks=older, marks_begun={})
    world.reboot()
    world.until("succeeded" if taint != TAINT else "failed")
    node = world.kube.get_node(NODE)
    if taint != TAINT:
        assert (taint in node.taints, marks.ANNOTATION in node.annotations) == (False, False)
        world.uninstall()
        return
    assert (taint in node.taints, noted(node).taints) == (True, ((taint.key, taint.value, taint.effect),))
    assert "marks_unproved_kept" in codes_of(Rescue.objects.get().because)
    assert needs_person.left_to_people().exists()
    assert again_by_person(world).state == "failed"  # what a mark says proves nothing to a later release, either
    assert taint in world.kube.get_node(NODE).taints
    world.kube.apply_node(NODE, port.NodeChange(remove_taints=(taint,)))
    assert again_by_person(world).state == "succeeded"
    assert marks.ANNOTATION not in world.kube.get_node(NODE).annotations
    assert not needs_person.left_to_people().exists()
    world.uninstall()


@pytest.mark.parametrize("when", ["before", "during"])
def test_a_return_leaves_what_only_the_mark_names(when: str) -> None:
    world = World(policy=HEAL)
    by_admin(world)
    world.report()
    if when == "before":
        forge(world)
    world.fault(62)
    world.until_reboot_is_asked()
    if when == "during":
        forge(world)
    world.reboot()
    world.until("failed")
    node = world.kube.get_node(NODE)
    assert (is_kept(node), node.unschedulable) == (True, False)
    assert tuple(ADMIN.values()) in noted(node).taints  # a person looks whose it is
    assert [rescue.state for rescue in needs_person.left_to_people()] == ["failed"]
    again_by_person(world)
    assert is_kept(world.kube.get_node(NODE))
    world.uninstall()


def test_a_mark_of_no_rescue_lends_no_right() -> None:
    """Nothing happened to the node, and no person asked."""
    world = World(policy="")
    by_admin(world)
    forge(world)
    services.reconcile(now=world.now)
    world.work()
    assert is_kept(world.kube.get_node(NODE))
    released = Rescue.objects.get()
    assert "marks_unproved" in codes_of(released.steps.get().because)
    world.uninstall()


@pytest.mark.parametrize("died", [False, True])
def test_the_rows_state_what_is_restored(died: bool) -> None:
    """Also where the worker does not learn that its writes were made: their marks are stored before."""
    world = World(policy=CHANGED)
    world.kube.label_node(NODE, {ROLE: "yes"})
    by_admin(world)
    if died:
        for _ in range(3):
            world.kube.fail("apply_node", port.Unavailable("timed out", ambiguous=True), after=True)
    world.fault(62)
    world.until("succeeded")
    assert TAINT in world.kube.get_node(NODE).taints
    forge(world, before={POOL: "payments", ROLE: "stolen"})
    services.request(world.node(), "release", actor="user:ann", reason="", now=world.now)
    world.work()
    node = world.kube.get_node(NODE)
    assert (is_kept(node), node.labels[ROLE], TAINT in node.taints) == (True, "yes", False)
    assert not node.unschedulable
    world.uninstall()


@pytest.mark.parametrize("call", ["taint", "label"])
def test_a_write_without_an_answer_is_taken_back(call: str) -> None:
    world = World(policy=CHANGED)
    world.kube.label_node(NODE, {ROLE: "yes"})
    world.sync()
    lose_answer(world, of={"taint": 2, "label": 3}[call])
    world.fault(62)
    world.work()
    services.cancel(world.rescue(), actor="user:ann", reason="stop", now=world.now)
    assert Rescue.objects.get().marks_begun
    world.sync()
    services.request(world.node(), "release", actor="user:ann", reason="", now=world.now)
    world.work()
    node = world.kube.get_node(NODE)
    assert (node.labels[ROLE], TAINT in node.taints, node.unschedulable) == ("yes", False, False)
    assert not Rescue.objects.exclude(marks={}, marks_begun={}).exists()
    world.uninstall()


@pytest.mark.parametrize("made", [True, False])
def test_a_label_that_is_set_again_without_an_answer_is_taken_back(made: bool) -> None:
    """A second rescue gives it another value: only the value says whose it is."""
    world = World(policy=LABELS)
    world.report()
    world.fault(62)
    world.until("succeeded")
    apply_node, calls = world.kube.apply_node, []

    def apply(*args: Any, **more: Any) -> Any:
        calls.append(args)
        if len(calls) != 2:
            return apply_node(*args, **more)
        if made:
            apply_node(*args, **more)
        else:
            args[1](world.kube.get_node(NODE))  # the worker stores what it is about to write
        raise port.Unavailable("timed out", ambiguous=True)

    world.kube.apply_node = apply
    world.fault(79)
    world.work()
    assert world.kube.get_node(NODE).labels["team/why"] == ("b" if made else "a")
    services.cancel(Rescue.objects.latest("pk"), actor="user:ann", reason="stop", now=world.now)
    again_by_person(world)
    assert "team/why" not in world.kube.get_node(NODE).labels
    world.uninstall()


def test_a_cordon_of_somebody_else_is_stored_before_the_answer() -> None:
    """Else its kubelet could write that the cordon is the portal's, which would lift it."""
    world = World(policy=CORDON)
    world.kube.apply_node(NODE, port.NodeChange(cordon=True))
    world.sync()
    lose_answer(world, of=1)
    world.fault(62)
    world.work()
    services.cancel(Rescue.objects.get(), actor="user:ann", reason="stop", now=world.now)

    def edit(found: dict[str, Any]) -> None:
        own = marks.Marks(rescue=Rescue.objects.get().pk, cordon=True)
        found["metadata"]["annotations"][marks.ANNOTATION] = own.render()

    world.kube.objects.edit("Node", "", NODE, edit)
    again_by_person(world)
    assert world.kube.get_node(NODE).unschedulable
    world.uninstall()


def test_without_its_database_the_portal_takes_back_only_its_own_taints_and_cordon() -> None:
    world = World(policy="")
    by_admin(world)
    mark = marks.Marks(
        rescue=4711,
        cordon=True,
        taints=(
            ("kcover.io/unhealthy", "62", "NoSchedule"),
            tuple(ADMIN.values()),
            ("kcover.io/not-ready", "", "NoSchedule"),
        ),
        labels={marks.STATE_LABEL: None, "example.com/tier": "trusted"},
    )
    taints = tuple(port.Taint(*one) for one in mark.taints)
    change = port.NodeChange(cordon=True, annotations={marks.ANNOTATION: mark.render()}, add_taints=taints)
    world.kube.apply_node(NODE, change)
    world.sync()
    services.request(
        world.node(), "release", actor="token:7", reason="", now=world.now, requester=Rescue.Requester.TOKEN
    )
    world.work()
    node = world.kube.get_node(NODE)
    keys = {taint.key for taint in node.taints}
    assert (node.unschedulable, "example.com/tier" in node.labels) == (False, False)
    assert keys == {ADMIN["key"], "kcover.io/not-ready"}
    world.uninstall()


def test_a_standby_gets_back_only_what_the_assignment_changed() -> None:
    world = World(policy=spares.POLICY)
    world.kube.label_node(NODE, spares.ROLE)
    world.kube.add_node("spare-1", labels=spares.SPARE, unschedulable=True)
    world.sync()
    world.fault(62)
    world.work()
    by_admin(world, "spare-1")  # who has doubts

    def edit(found: dict[str, Any]) -> None:
        content = json.loads(found["metadata"]["annotations"][standby.ANNOTATION])
        content["before"]["labels"][POOL], content["after"]["labels"][POOL] = "payments", "public"
        content["after"]["taints"].append(list(ADMIN.values()))
        found["metadata"]["annotations"][standby.ANNOTATION] = json.dumps(content)

    world.kube.objects.edit("Node", "", "spare-1", edit)
    world.sync()
    services.request(world.node("spare-1"), "release", actor="user:ann", reason="", now=world.now)
    world.work()
    node = world.kube.get_node("spare-1")
    assert is_kept(node)
    assert spares.SPARE.items() <= node.labels.items()
    world.uninstall()


@pytest.mark.parametrize("number", [1, 999])  # of the coming probation, and of one that never was
def test_a_forged_mark_of_a_probation_keeps_no_taint_away(number: int) -> None:
    world = World(policy=test_probation.POLICY, nodes=2)
    agents.comes_up(world)
    test_probation.rebooted(world)
    until = world.now + 999 * test_probation.DAY
    forged = probation_mark.ProbationMark(probation=number, rescue=1, until=until, tainted=False).render()
    written = {probation_mark.ANNOTATION: forged}
    world.kube.objects.edit("Node", "", NODE, lambda found: found["metadata"]["annotations"].update(written))
    world.until("succeeded")
    world.sync()
    assert test_probation.on_probation(world.kube.get_node(NODE))
    row = Probation.objects.get()
    assert row.began_at is not None
    assert (row.until - row.began_at, row.marks["tainted"]) == (test_probation.DAY, True)
    assert world.node().probation_until == row.until
    world.uninstall()
