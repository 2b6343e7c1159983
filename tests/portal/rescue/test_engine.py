"""The engine against a fake cluster, step by step, with time moved by hand."""

import contextlib
from datetime import timedelta

import pytest

from kcover import audit, reasons
from kcover.faults.fault import Fault
from kcover.nodes import marks
from kcover_portal.fleet import services as fleet
from kcover_portal.fleet.models import Command
from kcover_portal.incidents import services as incidents
from kcover_portal.incidents.models import Incident
from kcover_portal.kube import port
from kcover_portal.ledger import queries as ledger
from kcover_portal.ledger.models import Entry
from kcover_portal.rescue import services
from kcover_portal.rescue.actions import registry
from kcover_portal.rescue.models import Decision, Rescue, Step
from kcover_portal.rescue.step import lease
from tests.codes import code_of, codes_of, found_in, refused
from tests.portal.rescue.world import CORDON, NODE, World

pytestmark = pytest.mark.django_db


def test_a_fault_is_healed_from_cordon_to_uncordon(world: World) -> None:
    world.kube.add_pod("default", "train-0", node=NODE, labels={"app": "train"})
    world.fault(62)
    world.work()

    node = world.kube.get_node(NODE)
    assert node.unschedulable
    assert node.labels[marks.STATE_LABEL] == "draining"
    assert marks.parse(node.annotations[marks.ANNOTATION])["rescue"] == world.rescue().pk

    asked = world.until_reboot_is_asked()
    assert (asked.code, str(asked).startswith("job kcover-jobs/")) == ("reboot_job", True)
    world.reboot()
    rescue = world.until("succeeded")

    assert (rescue.outcome, rescue.verified, rescue.marks) == ("healed", True, {})
    node = world.kube.get_node(NODE)
    assert not node.unschedulable
    assert marks.ANNOTATION not in node.annotations
    assert marks.STATE_LABEL not in node.labels
    assert Incident.objects.get().state == "closed"
    assert len(world.kube.called("evict")) == 1
    assert len(world.kube.called("ensure_job")) == 1
    assert ledger.verify("c1").intact


def test_every_cluster_write_has_ledger_entries_before_and_after_it(world: World) -> None:
    world.fault(62)
    world.until_reboot_is_asked()
    world.reboot()
    world.until("succeeded")

    verbs = list(Entry.objects.filter(rescue=world.rescue().pk).order_by("pk").values_list("verb", flat=True))
    for verb in ("cordon", "reboot", "uncordon"):
        assert verbs.index(f"{verb}.begun") < verbs.index(f"{verb}.done")
    cordon = audit.ClusterCallDone.of_entry(Entry.objects.get(verb="cordon.done"))
    assert isinstance(cordon.answer, audit.NodePatched)
    assert (cordon.answer.before.unschedulable, cordon.answer.after.unschedulable) == (False, True)
    assert (cordon.rule, cordon.revision) == ("heal#1", 1)


def test_inv_18_a_foreign_cordon_survives(world: World) -> None:
    world.kube.cordon(NODE)
    world.sync()
    world.fault(62)
    world.until_reboot_is_asked()
    world.reboot()
    world.until("succeeded")

    node = world.kube.get_node(NODE)
    assert node.unschedulable
    assert marks.ANNOTATION not in node.annotations
    assert (world.rescue().outcome, world.rescue().why.code) == ("healed", "healed_but_cordoned")


def test_inv_19_only_what_the_portal_added_is_removed(world: World) -> None:
    foreign = port.Taint("team", "a", "NoSchedule")
    world.kube.apply_node(
        NODE,
        port.NodeChange(add_taints=(foreign,), labels={"team": "a", marks.STATE_LABEL: "mine"}, annotations={}),
    )
    world.sync()
    world.fault(62)
    world.until_reboot_is_asked()
    world.reboot()
    world.until("succeeded")

    node = world.kube.get_node(NODE)
    assert node.taints == (foreign,)
    assert node.labels["team"] == "a"
    assert node.labels[marks.STATE_LABEL] == "mine"


TAINT = """
apiVersion: kcover.io/v1
kind: RescuePolicy
metadata: {name: taint}
spec:
  rules:
    - {priority: 10, errorCode: ["62", "79"], actions: [{name: taint, attribute: {key: team/faulty, value: "<code>"}}]}
"""


def test_inv_19_a_foreign_taint_of_the_same_key_is_not_overwritten(db: None) -> None:
    world = World(policy=TAINT)
    try:
        theirs = port.Taint("team/faulty", "true", "NoSchedule")
        world.kube.apply_node(NODE, port.NodeChange(add_taints=(theirs,)))
        world.sync()
        world.fault(62)
        world.work()

        assert (world.rescue().state, world.rescue().needs_human) == ("held", True)
        found = dict(found_in(world.step("taint").because, "foreign_taint").params)
        assert (found["taint"], found["node"]) == ("team/faulty=true:NoSchedule", "gpu-1")
        services.request(world.node(), "release", actor="user:ann", reason="", now=world.now)
        world.work()
        assert world.kube.get_node(NODE).taints == (theirs,)
    finally:
        world.uninstall()


def test_inv_19_the_portals_own_taint_of_another_code_gives_way_and_goes_with_the_rest(db: None) -> None:
    world = World(policy=TAINT)
    try:
        for code in (62, 79):
            world.fault(code)
            assert world.until("succeeded").outcome == "isolated"
            assert world.kube.get_node(NODE).taints == (port.Taint("team/faulty", str(code), "NoSchedule"),)
            world.sync()
        services.request(world.node(), "release", actor="user:ann", reason="", now=world.now)
        world.work()
        assert world.kube.get_node(NODE).taints == ()
    finally:
        world.uninstall()


@pytest.mark.parametrize("phase", ["drain", "reboot"])
def test_inv_20_a_manual_uncordon_ends_the_rescue(world: World, phase: str) -> None:
    world.kube.add_pod("default", "train-0", node=NODE, labels={"app": "train"})
    if phase == "drain":
        world.kube.add_budget("default", "keep", match={"app": "train"})
    world.fault(62)
    world.work()
    if phase == "reboot":
        world.until_reboot_is_asked()
    evictions = len(world.kube.called("evict"))

    world.kube.uncordon(NODE)
    world.sync()
    world.work()

    rescue = world.rescue()
    assert (rescue.state, rescue.outcome) == ("cancelled", "cancelled")
    assert "uncordoned_by_hand" in codes_of(rescue.because)
    node = world.kube.get_node(NODE)
    assert not node.unschedulable
    assert marks.ANNOTATION not in node.annotations
    assert marks.STATE_LABEL not in node.labels
    assert len(world.kube.called("evict")) == evictions


def test_inv_24_a_budget_that_refuses_is_named_and_waited_out(world: World) -> None:
    world.kube.add_pod("default", "train-0", node=NODE, labels={"app": "train"})
    world.kube.add_budget("default", "keep", match={"app": "train"})
    world.fault(62)
    world.work()
    world.pass_time(2)

    step = world.step("drain")
    assert step.state == "waiting"
    assert dict(found_in(step.because, "drain_blocked").params)["budgets"] == "keep"
    assert world.rescue().state == "waiting"


def test_inv_21_a_drain_that_runs_out_of_time_holds_and_nothing_is_rebooted(world: World) -> None:
    world.kube.add_pod("default", "train-0", node=NODE, labels={"app": "train"})
    world.kube.add_budget("default", "keep", match={"app": "train"})
    world.fault(62)
    rescue = world.until("held", seconds=30)

    assert dict(found_in(rescue.because, "drain_timeout").params)["pods"] == "default/train-0"
    assert rescue.needs_human
    assert world.kube.get_node(NODE).unschedulable
    world.pass_time(3600)
    assert world.kube.called("ensure_job") == []


def test_a_held_drain_can_be_retried_or_skipped_by_a_person(world: World) -> None:
    world.kube.add_pod("default", "train-0", node=NODE, labels={"app": "train"})
    world.kube.add_budget("default", "keep", match={"app": "train"})
    world.fault(62)
    rescue = world.until("held", seconds=30)

    services.retry(rescue, actor="user:anna", reason="the budget is being fixed", now=world.now)
    rescue = world.until("held", seconds=30)
    services.skip(rescue, actor="user:anna", reason="the pod may go", now=world.now)
    world.until_reboot_is_asked()

    assert world.step("drain").state == "skipped"
    with refused(services.RescueRefused, "nothing_to_skip"):
        services.skip(world.rescue(), actor="user:bo", reason="", now=world.now)


def test_inv_22_release_is_one_patch(world: World) -> None:
    world.fault(62)
    world.until_reboot_is_asked()
    services.cancel(world.rescue(), actor="user:anna", reason="", now=world.now)
    before = len([call for call in world.kube.writes if call.verb == "apply_node"])

    services.request(world.node(), "release", actor="user:anna", reason="fixed by hand", now=world.now)
    world.work()

    assert len([call for call in world.kube.writes if call.verb == "apply_node"]) == before + 1
    node = world.kube.get_node(NODE)
    assert (node.unschedulable, marks.ANNOTATION in node.annotations) == (False, False)
    taken_back = reasons.of("node_taken_back_because", by="user:anna", why="fixed by hand")
    assert Incident.objects.get().closed_why == taken_back


def test_inv_08_a_node_has_one_open_rescue(world: World) -> None:
    world.fault(62)
    world.fault(48)
    world.work()

    assert Rescue.objects.count() == 1
    held = Decision.objects.get(answer="hold")
    assert held.reasons[-1] == reasons.of("rescue_open", rescue=str(world.rescue().pk))
    with refused(services.RescueRefused, "rescue_in_the_way"):
        services.request(world.node(), "reboot", actor="user:anna", reason="", now=world.now)


def test_inv_09_a_worker_that_lost_its_lease_does_not_settle_a_step(world: World) -> None:
    world.fault(62)

    apply_node = world.kube.apply_node

    def late(*args: object, **kwargs: object) -> object:
        """While the call is in flight an operator cancels: the answer that comes back must not count."""
        services.cancel(world.rescue(), actor="user:anna", reason="no", now=world.now)
        return apply_node(*args, **kwargs)

    world.kube.apply_node = late
    world.work()

    rescue = world.rescue()
    assert (rescue.state, world.step("cordon").state) == ("cancelled", "cancelled")
    assert world.step("drain").attempts == 0


def test_inv_16_an_ambiguous_reboot_is_not_requested_again_blindly(world: World) -> None:
    world.fault(62)
    world.kube.fail("ensure_job", port.Unavailable("timed out", ambiguous=True), after=True)
    while not world.kube.called("ensure_job"):
        world.pass_time()
    world.kube.reboot(NODE)
    world.pass_time()
    world.pass_time()

    assert world.step("reboot").state == "done"
    assert len(world.kube.called("ensure_job")) == 1


def test_the_agent_reboots_where_one_reports(world: World) -> None:
    type(world.cluster).objects.update(reboot="auto")
    world.fault(62)
    asked = world.until_reboot_is_asked()

    command = Command.objects.get(kind="reboot")
    assert asked == reasons.of("agent_command", command=str(command.pk))
    assert (command.kind, command.args) == ("reboot", {"boot_id": world.kube.get_node(NODE).boot_id})
    world.reboot()
    assert world.until("succeeded").outcome == "healed"


def test_inv_38_silence_is_no_proof_of_health(world: World) -> None:
    world.fault(62)
    world.until_reboot_is_asked()
    world.kube.reboot(NODE)
    rescue = world.until("held", seconds=30)

    assert code_of(rescue.because) == "agent_not_back"
    assert world.kube.get_node(NODE).unschedulable
    assert rescue.verified is None


def test_a_fault_after_the_reboot_fails_the_verification(world: World) -> None:
    world.fault(62)
    world.until_reboot_is_asked()
    world.kube.reboot(NODE)
    world.until("waiting", step="verify")
    world.fault(79)
    rescue = world.until("failed")

    assert "xid 79" in str(found_in(rescue.because, "faults_since_repair"))
    assert rescue.verified is False
    assert world.kube.get_node(NODE).unschedulable
    world.pass_time(600)
    world.fault(62)
    world.work()
    assert Rescue.objects.count() == 1
    assert Decision.objects.filter(answer="hold").latest("pk").reasons[-1].code == "left_to_people"


def test_inv_39_a_fault_during_verification_restarts_the_rescue_and_opens_no_second_one(world: World) -> None:
    world.fault(62)
    world.until_reboot_is_asked()
    world.kube.reboot(NODE)
    world.until("waiting", step="verify")
    before = world.rescue().plan_hash
    world.fault(64)  # the same rule means it
    world.pass_time()
    rescue = world.rescue()
    names = [step.name for step in rescue.steps.order_by("index")]
    assert names == [
        "cordon",
        "drain",
        "reboot",
        "ready",
        "verify",
        "uncordon",
        "drain",
        "reboot",
        "ready",
        "verify",
        "uncordon",
    ]
    assert (Rescue.objects.count(), rescue.state in ("running", "waiting")) == (1, True)
    assert rescue.plan_hash != before
    for _ in range(5):
        world.pass_time()
    assert len(world.kube.called("ensure_job")) == 2
    world.reboot()
    rescue = world.until("succeeded")
    assert (rescue.outcome, rescue.verified) == ("healed", True)
    assert set(Incident.objects.values_list("state", flat=True)) == {"closed"}


def test_inv_35_a_fault_that_comes_back_twice_is_held_for_a_person(world: World) -> None:
    world.fault(62)
    for jobs in (1, 2):
        for _ in range(50):
            if len(world.kube.called("ensure_job")) == jobs:
                break
            world.pass_time()
        world.kube.reboot(NODE)
        world.fault(62)
        for _ in range(4):
            world.pass_time()
    rescue = world.rescue()
    assert (rescue.state, rescue.needs_human, Rescue.objects.count()) == ("failed", True, 1)
    world.pass_time(300)
    assert len(world.kube.called("ensure_job")) == 2


def test_inv_48_shadow_mode_writes_nothing(world: World) -> None:
    type(world.cluster).objects.update(mode="shadow")
    world.fault(62)
    world.work()

    assert Decision.objects.get().answer == "shadow"
    assert [step["name"] for step in Decision.objects.get().steps][:3] == ["cordon", "drain", "reboot"]
    assert world.kube.writes == []


def test_pause_stops_before_the_next_call_and_resume_goes_on(world: World) -> None:
    world.kube.add_pod("default", "train-0", node=NODE, labels={"app": "train"})
    world.kube.add_budget("default", "keep", match={"app": "train"})
    world.fault(62)
    world.work()
    fleet.pause(cluster=None, reason="look first", actor="user:anna", now=world.now)
    writes = len(world.kube.writes)
    world.pass_time(10)
    world.pass_time(10)

    assert len(world.kube.writes) == writes
    assert world.step("drain").why == reasons.of("paused_because", why="look first")
    fleet.resume(cluster=None, reason="seen", actor="user:anna", now=world.now)
    world.pass_time(10)
    assert len(world.kube.writes) > writes


def test_inv_37_an_excluded_node_gets_no_rescue(world: World) -> None:
    world.kube.add_pod("default", "train-0", node=NODE, labels={"app": "train"})
    world.fault(62)
    world.kube.label_node(NODE, {"kcover.io/exclude": "true"})
    world.sync()
    world.work()

    assert Decision.objects.get().answer == "none"
    assert Rescue.objects.count() == 0


def test_inv_37_exclusion_in_the_middle_stops_the_drain(world: World) -> None:
    world.kube.add_pod("default", "train-0", node=NODE, labels={"app": "train"})
    world.kube.add_budget("default", "keep", match={"app": "train"})
    world.fault(62)
    world.work()
    asked = len(world.kube.called("evict"))
    world.kube.label_node(NODE, {"kcover.io/exclude": "true"})
    world.sync()
    world.pass_time(20)

    assert len(world.kube.called("evict")) == asked
    assert code_of(world.step("drain").because) == "excluded"


def test_the_same_plan_is_not_repeated_on_an_isolated_node(db: None) -> None:
    world = World(policy=CORDON)
    try:
        world.fault(62)
        assert world.until("succeeded").outcome == "isolated"
        world.now = world.now.replace(minute=30)
        world.fault(62)
        world.work()

        assert Rescue.objects.count() == 1
        assert Decision.objects.latest("pk").reasons[-1].code == "done_already"
        assert Incident.objects.get().count == 2
    finally:
        world.uninstall()


def test_uncordoning_an_isolated_node_by_hand_removes_the_markers(db: None) -> None:
    world = World(policy=CORDON)
    try:
        world.fault(62)
        world.until("succeeded")
        world.sync()
        world.kube.uncordon(NODE)
        world.sync()
        world.work()

        node = world.kube.get_node(NODE)
        assert marks.ANNOTATION not in node.annotations
        assert marks.STATE_LABEL not in node.labels
        assert world.rescue().requested_by == "system"
        assert Incident.objects.get().state == "closed"
    finally:
        world.uninstall()


def test_a_rescue_survives_an_api_server_that_is_away(world: World) -> None:
    world.kube.fail("apply_node", port.Unavailable("connection refused"), times=3)
    world.fault(62)
    world.work()

    step = world.step("cordon")
    assert (step.state, step.failures) == ("waiting", 1)
    rescue = world.until("done", step="cordon", seconds=5)
    assert rescue.steps.get(name="cordon").attempts == 4


@pytest.mark.parametrize("ambiguous", [False, True])
def test_an_api_server_that_is_away_for_an_hour_leaves_no_rescue_to_a_person(world: World, ambiguous: bool) -> None:
    world.kube.fail("apply_node", port.Unavailable("no route to host", ambiguous=ambiguous), times=1000)
    world.fault(62)
    for _ in range(60):
        world.now += timedelta(seconds=72)  # the longest that is waited between two tries
        world.work()

    # A server that takes calls and never answers has been called often enough; one that was not reached has not.
    assert (world.rescue().state == "held") == ambiguous
    assert 40 <= world.step("cordon").attempts <= 61
    world.kube._failures.clear()
    world.pass_time(72)
    assert (world.step("cordon").state == "done") == (not ambiguous)


def test_a_step_that_breaks_each_time_is_held_for_a_person(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(context: object) -> None:
        raise ValueError("a mistake")

    monkeypatch.setitem(registry.ACTIONS, "drain", broken)
    world.fault(62)
    for _ in range(60):
        with contextlib.suppress(ValueError):
            world.work()
        world.now += lease.TIME + timedelta(seconds=1)

    rescue, step = world.rescue(), world.step("drain")
    assert (rescue.state, rescue.hold, rescue.needs_human) == ("held", "step", True)
    assert (step.state, step.attempts) == ("failed", 40)
    assert code_of(step.because) == "no_outcome"
    assert Entry.objects.filter(verb="step.held", rescue=rescue.pk).count() == 1
    monkeypatch.undo()
    services.retry(rescue, actor="user:ann", reason="mended", now=world.now)
    world.work()
    assert world.step("drain").state == "done"


def test_workers_that_died_are_forgotten_once_one_lived(world: World) -> None:
    world.fault(62)
    world.until_reboot_is_asked()
    Step.objects.filter(name="reboot").update(failures=38, state="running")  # as the last of them left it
    Rescue.objects.update(state="running", due_at=world.now, lease_until=world.now)
    world.work()
    assert (world.step("reboot").state, world.step("reboot").failures) == ("waiting", 0)


def test_inv_02_a_resent_batch_changes_nothing(world: World) -> None:
    batch = "0d9b6c1e-3a55-4c0e-9d3f-5f2b8f0c7a11"
    fault = Fault(kind="xid", code=62, pci="0000:4e:00", source="kmsg", sequence=7)
    assert world.report(fault, batch=batch).accepted == 1
    again = world.report(fault, batch=batch)

    assert (again.accepted, again.duplicates) == (0, 1)
    assert Incident.objects.get().count == 1


def test_an_unknown_node_is_kept_and_never_acted_on(world: World) -> None:
    world.report(Fault(kind="xid", code=62), node="elsewhere", boot_id="b1")
    world.work()

    assert Decision.objects.get().answer == "none"
    assert Decision.objects.get().reasons[0] == reasons.of("node_unknown", cluster="c1", node="elsewhere")
    world.kube.add_node("elsewhere", gpus=8, boot_id="b1")
    world.sync()
    incidents.redecide_nodes([world.node("elsewhere")], now=world.now)
    world.work()
    assert world.rescue("elsewhere").state in ("running", "waiting")


def test_manual_reboot_goes_through_the_same_engine(world: World) -> None:
    preview = services.preview(world.node(), "reboot", now=world.now)
    assert [step["name"] for step in preview.steps][:2] == ["cordon", "drain"]
    assert preview.held_back == []
    first = services.request(world.node(), "reboot", actor="user:anna", reason="firmware", now=world.now, key="k1")
    again = services.request(world.node(), "reboot", actor="user:anna", reason="firmware", now=world.now, key="k1")

    assert again.pk == first.pk
    world.until_reboot_is_asked()
    world.reboot()
    rescue = world.until("succeeded")
    assert (rescue.outcome, rescue.requested_by) == ("done", "user:anna")
    assert not world.kube.get_node(NODE).unschedulable


def test_auto_takes_the_job_where_no_agent_reported_lately(world: World) -> None:
    type(world.cluster).objects.update(reboot="auto")
    world.kube.add_pod("default", "train-0", node=NODE, labels={"app": "train"})
    world.kube.add_budget("default", "keep", match={"app": "train"})
    world.fault(62)
    world.work()
    world.pass_time(150)
    world.kube.remove_pod("default", "train-0")

    assert str(world.until_reboot_is_asked()).startswith("job kcover-jobs/")


def test_a_node_that_was_taken_back_is_not_rescued_again_for_earlier_faults(world: World) -> None:
    world.fault(62)
    world.until_reboot_is_asked()
    world.fault(48)  # held, and judged again and again
    world.work()
    world.kube.uncordon(NODE)
    world.sync()
    world.work()
    for _ in range(5):
        world.pass_time(20)

    assert Rescue.objects.count() == 1
    assert set(Incident.objects.values_list("state", flat=True)) == {"closed"}
    assert world.kube.job_state("kcover-jobs", "kcover-reboot-1-2-0").exists is False
    world.fault(62)  # a new occurrence is a new fault
    world.work()
    assert Rescue.objects.count() == 2


def test_a_cancelled_rescue_leaves_the_node_to_people(world: World) -> None:
    world.kube.fail("apply_node", port.Unavailable("away"), times=50)
    world.fault(62)
    world.fault(48)
    world.work()
    services.cancel(world.rescue(), actor="user:anna", reason="wait", now=world.now)
    for _ in range(5):
        world.pass_time(20)

    assert Rescue.objects.count() == 1


def test_ending_a_rescue_withdraws_the_command_on_offer(world: World) -> None:
    type(world.cluster).objects.update(reboot="auto")
    world.fault(62)
    world.until_reboot_is_asked()
    services.request(world.node(), "release", actor="user:anna", reason="it is fine", now=world.now)

    assert Command.objects.get(kind="reboot").state == "expired"
    assert world.report().commands == ()


def test_a_paused_portal_offers_no_reboot(world: World) -> None:
    type(world.cluster).objects.update(reboot="auto")
    world.fault(62)
    world.until_reboot_is_asked()
    fleet.pause(cluster=None, reason="stop", actor="user:anna", now=world.now)
    assert world.report().commands == ()
    fleet.resume(cluster=None, reason="go", actor="user:anna", now=world.now)
    assert len(world.report().commands) == 1


def test_old_log_lines_that_are_read_again_open_no_incident(world: World) -> None:
    world.fault(62, sequence=7)
    world.work()
    services.request(world.node(), "release", actor="user:anna", reason="fine", now=world.now)
    world.pass_time(60)
    assert Incident.objects.get().state == "closed"

    world.fault(62, sequence=7)
    assert Incident.objects.get().state == "closed"


def test_a_fault_of_the_new_boot_is_not_verified_away_however_early_it_came(world: World) -> None:
    world.fault(62)
    world.until_reboot_is_asked()
    world.kube.reboot(NODE)
    world.fault(79)  # delivered before the portal has looked at the node again
    rescue = world.until("failed")

    assert "xid 79" in str(found_in(rescue.because, "faults_since_repair"))
    assert Incident.objects.get(code="79").state == "open"


def test_retrying_a_held_reboot_does_not_reboot_a_node_that_is_back(world: World) -> None:
    world.fault(62)
    world.until_reboot_is_asked()
    rescue = world.until("held", seconds=120)
    world.kube.reboot(NODE)
    world.sync()
    services.retry(rescue, actor="user:anna", reason="look again", now=world.now)
    world.work()

    assert world.step("reboot").state == "done"
    assert len(world.kube.called("ensure_job")) == 1


def test_an_operators_own_cordon_is_not_lifted_by_a_policy(world: World) -> None:
    services.request(world.node(), "cordon", actor="user:anna", reason="maintenance", now=world.now)
    world.work()
    world.sync()
    world.fault(62)
    world.work()

    assert Decision.objects.get().answer == "hold"
    assert Rescue.objects.count() == 1
    assert world.kube.get_node(NODE).unschedulable


def test_lifting_a_foreign_cordon_ends_the_rescue_too(world: World) -> None:
    world.kube.cordon(NODE)
    world.sync()
    world.kube.add_pod("default", "train-0", node=NODE, labels={"app": "train"})
    world.kube.add_budget("default", "keep", match={"app": "train"})
    world.fault(62)
    world.work()
    world.kube.uncordon(NODE)
    world.sync()
    world.work()

    assert world.rescue().state == "cancelled"
