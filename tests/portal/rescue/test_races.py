"""Concurrency: clicks against workers, clicks against clicks, the watch against both."""

from datetime import timedelta

import pytest

from kcover import audit
from kcover.nodes import marks
from kcover_portal.fleet import services as fleet
from kcover_portal.kube import port
from kcover_portal.ledger.models import Entry
from kcover_portal.rescue import queries, services
from kcover_portal.rescue.control import approvals
from kcover_portal.rescue.engine import runner
from kcover_portal.rescue.models import Rescue
from kcover_portal.rescue.step import context, lease
from tests.codes import codes_of, found_in, refused
from tests.portal.rescue import test_actions_webhook
from tests.portal.rescue.between import before_query
from tests.portal.rescue.other_system import OtherSystem
from tests.portal.rescue.test_approvals import GATED
from tests.portal.rescue.world import CORDON, NODE, World

pytestmark = pytest.mark.django_db


def held_drain(world: World) -> Rescue:
    world.kube.add_pod("default", "train-0", node=NODE, labels={"app": "train"})
    world.kube.add_budget("default", "keep", match={"app": "train"})
    world.fault(62)
    return world.until("held", seconds=30)


def cordons(world: World) -> int:
    return len([call for call in world.kube.writes if call.verb == "apply_node"])


def test_a_click_on_an_outdated_step_changes_nothing(world: World) -> None:
    seen = held_drain(world)
    drain = seen.steps.get(name="drain").index
    services.skip(world.rescue(), actor="user:bo", reason="it may go", now=world.now)  # somebody else was faster
    type(world.cluster).objects.update(ready_within=5)
    world.until("held", seconds=10)
    assert world.step("reboot").state == "failed"
    with refused(services.RescueRefused, "other_step"):
        services.skip(seen, actor="user:anna", reason="it may go", now=world.now, step=drain)
    assert (world.step("reboot").state, world.rescue().state) == ("failed", "held")


def test_a_hanging_label_call_does_not_write_to_a_released_node(world: World) -> None:
    world.fault(62)
    world.kube.add_pod("default", "train-0", node=NODE)
    real, calls = world.kube.apply_node, []

    def slow(name: str, wanted: object, **more: object) -> object:
        calls.append(name)
        if len(calls) == 2:  # after the cordon: the label hangs until its lease has run out
            services.cancel(world.rescue(), actor="user:ann", reason="", now=world.now)
            released = services.request(world.node(), "release", actor="user:ann", reason="", now=world.now)
            world.now += lease.TIME + timedelta(seconds=1)
            services.run(released.pk, clock=world.clock)
            assert released.steps.get(state="done").name == "release"
        return real(name, wanted, **more)

    world.kube.apply_node = slow
    world.work()
    assert calls == [NODE] * 3
    assert marks.STATE_LABEL not in world.kube.get_node(NODE).labels
    assert Entry.objects.filter(verb="label.failed").count() == 1


def test_a_label_is_not_written_to_a_node_that_is_uncordoned_meanwhile(world: World) -> None:
    world.fault(62)
    world.kube.add_pod("default", "train-0", node=NODE)
    real, calls = world.kube.apply_node, []

    def uncordoned(name: str, wanted: object, **more: object) -> object:
        calls.append(name)
        if len(calls) == 2:
            world.kube.uncordon(NODE)
        return real(name, wanted, **more)

    world.kube.apply_node = uncordoned
    world.work()
    assert world.rescue().state == "cancelled"
    assert "uncordoned_by_hand" in codes_of(world.rescue().because)
    assert marks.STATE_LABEL not in world.kube.get_node(NODE).labels


def test_a_click_on_an_outdated_page_is_checked_against_the_current_plan(world: World) -> None:
    seen = held_drain(world)
    Rescue.objects.update(plan_hash="f" * 16)
    with refused(services.RescueRefused, "plan_changed"):
        services.retry(seen, actor="user:anna", reason="", now=world.now, plan_hash=seen.plan_hash)


@pytest.mark.parametrize("at", ["before", "as it is asked once more"])
def test_a_cancel_between_the_decision_and_its_cordon_is_in_time(
    db: None, at: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(policy=CORDON)
    module, name = (runner, "go_on") if at == "before" else (context.call_checks, "check")
    real = getattr(module, name)

    def cancelled_first(*args: object, **more: object) -> object:
        monkeypatch.setattr(module, name, real)
        services.cancel(world.rescue(), actor="user:anna", reason="no", now=world.now)
        return real(*args, **more)

    try:
        world.fault(62)
        monkeypatch.setattr(module, name, cancelled_first)
        services.decide_and_run([world.node().incidents.get().pk], clock=world.clock)
        assert cordons(world) == 0
        failed = audit.ClusterCallFailed.of_entry(Entry.objects.get(verb="cordon.failed"))
        assert not failed.held_back
        assert world.rescue().state == "cancelled"
    finally:
        world.uninstall()


def test_a_release_waits_for_the_lease_that_was_renewed_in_this_moment(world: World) -> None:
    """The row is read under its lock, not as it was when the request came in."""
    world.fault(62)
    world.work()
    later = world.now + timedelta(seconds=50)
    node = world.node()

    def renewed_meanwhile() -> None:
        Rescue.objects.update(state="running", lease_until=later)

    with before_query('FROM "fleet_node"', renewed_meanwhile):
        made = services.request(node, "release", actor="user:anna", reason="", now=world.now)
    world.pass_time(49)
    assert world.rescue() == made
    assert world.rescue().state == "running"  # the worker that was cut short may be in a call until then
    world.pass_time(1)
    assert world.rescue().state == "succeeded"


class TestHeldAndUncordoned:
    """A held rescue whose node the watch shows uncordoned: it is looked at, and its step is nobody's but a person's."""

    def hold(self, world: World) -> Rescue:
        """The API server hung for long when the reboot was to be asked for."""
        world.fault(62)
        world.kube.fail("ensure_job", port.Unavailable("timed out", ambiguous=True), times=1000)
        rescue = world.until("held", seconds=120)
        assert dict(found_in(rescue.because, "tried_often").params)["count"] == 40
        world.kube._failures.clear()
        return rescue

    def shows_uncordoned(self, world: World) -> None:
        """The watch tells of an uncordon that somebody has taken back since."""
        world.kube.uncordon(NODE)
        world.sync()
        world.kube.cordon(NODE)

    def test_a_held_rescue_whose_node_is_still_cordoned_stays_held(self, world: World) -> None:
        rescue = self.hold(world)
        self.shows_uncordoned(world)
        world.work()
        world.work()
        found = world.rescue()
        assert (found.state, found.hold, found.because) == ("held", "step", rescue.because)
        assert world.kube.objects.list("Job") == []
        assert world.step("reboot").state == "failed"
        services.retry(found, actor="user:anna", reason="go", now=world.now)
        world.work()
        assert len(world.kube.objects.list("Job")) == 1

    def test_inv_20_a_held_rescue_of_an_uncordoned_node_ends(self, world: World) -> None:
        self.hold(world)
        world.kube.uncordon(NODE)
        world.sync()
        world.work()
        assert world.rescue().state == "cancelled"
        assert marks.ANNOTATION not in world.kube.get_node(NODE).annotations

    def test_inv_20_a_held_rescue_ends_once_the_cluster_answers(self, world: World) -> None:
        self.hold(world)
        world.kube.uncordon(NODE)
        world.sync()
        world.kube.fail("get_node", port.Unavailable("away"), times=2)
        for _ in range(4):
            world.work()
            assert world.kube.objects.list("Job") == []
            world.now += timedelta(seconds=6)
        assert world.rescue().state == "cancelled"

    def test_inv_20_a_held_rescue_ends_once_writes_are_allowed(self, world: World) -> None:
        self.hold(world)
        fleet.pause(cluster=world.cluster, reason="stop", actor="user:anna", now=world.now)
        world.kube.uncordon(NODE)
        world.sync()
        world.work()
        writes = len(world.kube.writes)
        world.now += timedelta(seconds=600)
        world.work()
        assert len(world.kube.writes) == writes
        assert world.step("reboot").state == "failed"
        fleet.resume(cluster=world.cluster, reason="go", actor="user:anna", now=world.now)
        world.now += timedelta(seconds=6)
        world.work()
        assert world.rescue().state == "cancelled"
        assert marks.ANNOTATION not in world.kube.get_node(NODE).annotations


def test_a_vote_that_came_before_the_sweep_ended_the_question_counts(db: None) -> None:
    world = World(policy=GATED % 1)
    try:
        world.fault(62)
        world.work()
        later = world.now + timedelta(seconds=3601)

        def approved_first() -> None:
            services.approve(world.rescue(), actor="user:ann", reason="in time", now=world.now)

        with before_query("SAVEPOINT", approved_first):  # after the rescues that are due were found
            assert approvals.expire(now=later) == 0
        assert world.rescue().state == "running"
    finally:
        world.uninstall()


def test_inv_10_a_machine_that_another_system_replaces_is_left_to_it_until_its_callback(db: None, settings) -> None:
    settings.KCOVER_PUBLIC_URL = "https://portal.example"
    other = OtherSystem("shared")
    policy = test_actions_webhook.POLICY.format(url=other.url, wait=', waittime: "2h"')
    world = World(policy=policy.rstrip() + "\n        - {name: runChecks}\n")
    try:
        world.cluster.decision_secret = "shared"
        world.cluster.save()
        world.fault(62)
        world.work()
        world.kube.delete_node(NODE)
        world.sync()
        world.kube.add_node(NODE, gpus=8)
        calls = len(world.kube.calls)
        for _ in range(5):
            world.now += timedelta(seconds=60)
            services.sweep(now=world.now)
            world.work()
        assert len(world.kube.calls) == calls
        world.sync()
        services.sweep(now=world.now)
        world.work()
        world.fault(62)
        world.work()
        assert (Rescue.objects.get().state, Rescue.objects.get().hold) == ("waiting", "external")
        services.callback(Rescue.objects.get(), "done", now=world.now)
        world.work()
        assert (Rescue.objects.get().state, Rescue.objects.get().outcome) == ("cancelled", "replaced")
        assert not world.kube.get_node(NODE).unschedulable
        assert queries.due(now=world.now + lease.TIME) == []
    finally:
        world.uninstall()
        other.stop()
