"""exclude and end_exclusion: a label by hand, the rescue that they end, and who may end an exclusion."""

import pytest

from kcover.decisions import guards
from kcover_portal.fleet.models import Cluster
from kcover_portal.ledger.models import Entry
from kcover_portal.rescue import services
from kcover_portal.rescue.models import Decision, Rescue
from tests import proofs
from tests.codes import refused
from tests.portal.rescue.world import HEAL, NODE, World

pytestmark = pytest.mark.django_db
LABEL = guards.EXCLUDE_LABEL


def ask(world: World, verb: str, **more: str) -> Rescue:
    made = services.request(world.node(), verb, actor="user:ann", reason="ticket 7", now=world.now, **more)
    world.work()
    world.sync()
    return Rescue.objects.get(pk=made.pk)


def label(world: World) -> str | None:
    return world.kube.get_node(NODE).labels.get(LABEL)


def codes(world: World, verb: str, *, by_person: bool = True) -> list[str]:
    plan = services.preview(world.node(), verb, now=world.now, by_person=by_person)
    return [reason.code for reason in plan.held_back]


def test_an_excluded_node_is_left_alone_until_a_person_ends_the_exclusion(world: World) -> None:
    done = ask(world, "exclude")
    assert (done.state, done.outcome, done.marks, label(world)) == ("succeeded", "done", {}, "true")
    world.fault(62)
    world.work()
    assert [row.because[-1]["code"] for row in Decision.objects.all()] == ["excluded"]
    assert not world.kube.get_node(NODE).unschedulable
    ask(world, "end_exclusion")
    assert label(world) is None
    world.work()
    assert Rescue.objects.filter(origin="policy").exists()


def test_a_fault_that_comes_before_the_watch_tells_is_held_too(world: World) -> None:
    services.request(world.node(), "exclude", actor="user:ann", reason="ticket 7", now=world.now)
    world.work()  # without the watch
    world.fault(62)
    world.work()
    assert [row.because[-1]["code"] for row in Decision.objects.all()] == ["excluded"]
    assert not world.kube.get_node(NODE).unschedulable


@pytest.mark.parametrize(
    "actions", ["[{name: cordon}, {name: drain}]", "[{name: taint, attribute: {effect: NoExecute}}]"]
)
def test_inv_37_a_label_that_the_watch_has_not_told_is_seen_on_the_live_node(actions: str) -> None:
    """A taint with NoExecute took the work of a node that ``kubectl label`` had excluded a moment ago."""
    rule = f"{{priority: 10, mode: enforce, errorCode: ['62'], actions: {actions}}}"
    header = HEAL.partition("spec:")[0].replace("rescue.ksyun.com", "kcover.io")
    world = World(policy=f"{header}spec: {{rules: [{rule}]}}")
    try:
        world.kube.add_pod("train", "worker", node=NODE, owner_kind="ReplicaSet")
        world.kube.label_node(NODE, {LABEL: "true"})  # the watch is behind
        world.fault(62)
        world.work()
        live = world.kube.get_node(NODE)
        assert (live.unschedulable, live.taints, len(world.kube.list_pods(node=NODE))) == (False, (), 1)
        step = world.rescue().steps.get(index=0)
        assert (step.state, step.because["code"]) == ("waiting", "excluded")
        failed = Entry.objects.filter(verb__endswith=".failed").latest("pk")
        assert failed.data["held_back"] is True
        written = Entry.objects.count()
        for _ in range(3):
            world.pass_time(10)
            world.work()
        assert Entry.objects.count() == written, "the portal knows it now, and begins no call"
        world.kube.label_node(NODE, {LABEL: "false"})
        world.sync()
        world.pass_time(10)
        world.work()
        assert world.kube.get_node(NODE).unschedulable or world.kube.get_node(NODE).taints
    finally:
        world.uninstall()


def test_the_audit_log_has_the_label_before_and_after(world: World) -> None:
    ask(world, "exclude")
    ask(world, "end_exclusion")
    wanted = [row.data["wanted"]["label"] for row in Entry.objects.filter(verb="label.begun").order_by("pk")]
    assert wanted == [f"{LABEL}=true", f"{LABEL}-"]
    answers = [row.data["answer"] for row in Entry.objects.filter(verb="label.done").order_by("pk")]
    assert [one["before"].get("labels", []) for one in answers] == [[], [f"{LABEL}=true"]]
    assert [one["after"].get("labels", []) for one in answers] == [[f"{LABEL}=true"], []]
    assert [proofs.broken_claim(row) for row in Rescue.objects.all()] == ["", ""]


def test_an_exclusion_ends_the_rescue_under_way_and_leaves_the_node_as_it_is(world: World) -> None:
    ask(world, "cordon")
    world.sync()
    opened = services.request(world.node(), "drain", actor="user:bob", reason="x", now=world.now)
    ask(world, "exclude")
    opened.refresh_from_db()
    assert (opened.state, opened.because["code"]) == ("cancelled", "replaced_by_request")
    assert (world.kube.get_node(NODE).unschedulable, label(world)) == (True, "true")


@pytest.mark.parametrize("verb", ["exclude", "end_exclusion"])
def test_a_node_that_an_ended_rescue_had_isolated_is_left_to_a_person(world: World, verb: str) -> None:
    Cluster.objects.update(mode="approve")
    world.cluster.refresh_from_db()
    world.fault(62)
    world.work()
    held = world.rescue()
    assert (held.state, bool(held.marks)) == ("held", True)
    if verb == "end_exclusion":
        world.kube.label_node(NODE, {LABEL: "true"})
        world.sync()
    ask(world, verb)
    held.refresh_from_db()
    assert (held.state, held.needs_human) == ("cancelled", True)
    ask(world, "release")
    held.refresh_from_db()
    assert not world.kube.get_node(NODE).unschedulable


def test_a_release_keeps_the_exclusion(world: World) -> None:
    ask(world, "cordon")
    ask(world, "exclude")
    ask(world, "release")
    assert (world.kube.get_node(NODE).unschedulable, label(world)) == (False, "true")


def test_what_changes_nothing_is_refused(world: World) -> None:
    assert codes(world, "end_exclusion") == ["not_excluded"]
    assert codes(world, "exclude") == []
    ask(world, "exclude")
    assert codes(world, "exclude") == ["excluded"]
    assert codes(world, "end_exclusion") == []
    with refused(services.RescueRefused, "excluded"):
        ask(world, "exclude")


def test_a_program_excludes_a_node_and_ends_no_exclusion(world: World) -> None:
    ask(world, "exclude", requester="token")
    assert label(world) == "true"
    assert codes(world, "end_exclusion", by_person=False) == ["exclusion_ended_by_person"]
    with refused(services.RescueRefused, "exclusion_ended_by_person"):
        ask(world, "end_exclusion", requester="token")
    assert label(world) == "true"


@pytest.mark.parametrize("mode", ["paused", "shadow"])
def test_nothing_is_written_in_a_mode_without_writes(world: World, mode: str) -> None:
    world.cluster.mode = mode
    world.cluster.save()
    with pytest.raises(services.RescueRefused):
        ask(world, "exclude")
    assert label(world) is None


def test_a_question_for_two_people_stands_until_they_answer(world: World) -> None:
    held = Rescue.objects.create(
        cluster=world.cluster,
        node=world.node(),
        origin="policy",
        state="held",
        hold="approval",
        approvers=2,
        gate=0,
        requested_by="policy:x#1",
        opened_at=world.now,
    )
    assert codes(world, "exclude") == ["question_first"]
    held.refresh_from_db()
    assert held.state == "held"


def test_another_machine_under_the_name_is_not_labelled(world: World) -> None:
    made = services.request(world.node(), "exclude", actor="user:ann", reason="x", now=world.now)
    Rescue.objects.filter(pk=made.pk).update(node_uid="another")
    world.work()
    made.refresh_from_db()
    assert (made.state, label(world)) != ("succeeded", "true")
    assert label(world) is None
