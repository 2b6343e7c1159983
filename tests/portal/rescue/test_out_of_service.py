"""Pods on a dead kubelet are freed by the out-of-service taint, once the machine is proved rebooted."""

from datetime import timedelta
from typing import Any

import pytest

from kcover_portal.fleet.models import Agent
from kcover_portal.kube import port
from kcover_portal.ledger.models import Entry
from kcover_portal.machines import services as machines
from kcover_portal.machines.models import Driver
from kcover_portal.rescue import services
from kcover_portal.rescue.actions import restart_jobs
from kcover_portal.rescue.models import Rescue
from kcover_portal.rescue.step.marks import out_of_service
from tests.portal.machines.controllers import PASSWORD, USERNAME, Controller
from tests.portal.rescue import worker_kills
from tests.portal.rescue.operators import WithOperators, pods_of
from tests.portal.rescue.test_actions_restart_jobs import GUARDS, POLICY, add_job
from tests.portal.rescue.world import NODE, World

pytestmark = pytest.mark.django_db
TAINT = out_of_service.TAINT


@pytest.fixture
def world():
    one = World(policy=POLICY, nodes=2, fake=WithOperators)
    one.cluster.guards = GUARDS
    one.cluster.save()
    add_job(one, "llm", NODE, "gpu-2")
    one.fault(62)
    one.kube.set_ready(NODE, False)
    one.pass_time()
    one.pass_time()
    yield one
    one.uninstall()


def taints(world: World) -> list[port.Taint]:
    return [taint for taint in world.kube.get_node(NODE).taints if taint.key == TAINT.key]


def calls(world: World) -> list[str]:
    return [
        f"{entry.verb} {entry.data['name']}"
        for entry in Entry.objects.filter(verb__in=("taint.begun", "untaint.begun")).order_by("pk")
    ]


def codes(world: World) -> str:
    return str(world.step("restart_jobs").because)


def test_pods_are_freed_once_the_agent_reports_another_boot(world: World) -> None:
    assert "kubelet_silent" in codes(world)
    assert taints(world) == []
    world.report(boot_id="after-the-crash")
    world.work()
    world.pass_time()
    assert taints(world) == [TAINT]
    world.until("succeeded")
    assert taints(world) == []
    assert {pod.node for pod in pods_of(world.kube)} == {"gpu-2"}
    assert calls(world) == ["taint.begun restart_jobs", "untaint.begun restart_jobs"]
    assert world.kube.get_node(NODE).unschedulable
    assert [taint for taint in world.rescue().marks["changed"]["taints"] if taint[0] == TAINT.key] == []


@pytest.mark.parametrize(
    "boot", ["same", "earlier", "kubelet ran in it", "no boot known"], ids=lambda name: name.replace(" ", "-")
)
def test_an_unproved_reboot_gets_no_taint_and_is_held_for_a_person(world: World, boot: str) -> None:
    known = world.kube.get_node(NODE).boot_id
    if boot == "earlier":
        world.node().__class__.objects.filter(name=NODE).update(past_boots=["long-ago"])
    edits = {"kubelet ran in it": "new", "no boot known": ""}
    if boot in edits:
        info = {"bootID": edits[boot]}
        world.kube.objects.edit("Node", "", NODE, lambda m: m["status"]["nodeInfo"].update(info))
    reported = {"same": known, "earlier": "long-ago", "kubelet ran in it": "new", "no boot known": "new"}[boot]
    for _ in range(3):
        world.report(boot_id=reported)
        world.pass_time()
    world.now += restart_jobs.RESTART_TIME_LIMIT
    world.report(boot_id=reported)
    world.work()
    assert (world.rescue().state, world.step("restart_jobs").state) == ("held", "failed")
    assert "reboot_not_proved" in codes(world)
    assert calls(world) == []


def test_a_boot_reported_before_the_kubelet_fell_silent_is_no_proof() -> None:
    one = World(policy=POLICY, nodes=2, fake=WithOperators)
    try:
        one.cluster.guards = GUARDS
        one.cluster.save()
        add_job(one, "llm", NODE, "gpu-2")
        one.fault(62)
        one.report(boot_id="not-noted-by-the-watch")
        one.kube.set_ready(NODE, False)
        for _ in range(5):
            one.pass_time()
        assert taints(one) == []
        assert "kubelet_silent" in codes(one)
    finally:
        one.uninstall()


@pytest.mark.parametrize("skew", [-3600, -31, -3, 86400])
def test_a_delayed_report_or_one_with_a_wrong_clock_is_no_proof(world: World, skew: float) -> None:
    world.report(boot_id="long-ago")
    Agent.objects.update(skew=skew)  # when it was written, less when it came
    for _ in range(2):
        world.kube.finish_deletions()
        world.sync()
        world.now += timedelta(seconds=1)
        world.work()
    assert taints(world) == []


def test_a_kubelet_that_still_posts_ends_its_pods_itself(world: World) -> None:
    def stop(manifest) -> None:
        manifest["status"]["conditions"] = [{"type": "Ready", "status": "False"}]

    world.kube.objects.edit("Node", "", NODE, stop)
    world.sync()
    world.work()
    world.report(boot_id="after-the-crash")
    world.now += timedelta(seconds=1)
    world.work()
    assert taints(world) == []
    assert world.step("restart_jobs").progress.get("silent_since") is None


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("call", [1, 2])
def test_a_worker_that_dies_at_either_patch_leaves_no_taint(world: World, call: int, after: bool) -> None:
    worker_kills.kill_at(world.kube, "apply_node", call=call, after=after)
    world.report(boot_id="after-the-crash")
    died = 0
    for _ in range(40):
        died += worker_kills.work(world)
        if world.rescue().state == "succeeded":
            break
        world.report(boot_id="after-the-crash")
        world.now += timedelta(seconds=1)
        world.kube.finish_deletions()
        world.sync()
    assert (died, world.rescue().state, taints(world)) == (1, "succeeded", [])


@pytest.mark.parametrize(
    "error", [port.Conflict("changed"), port.Unavailable("cut", ambiguous=True)], ids=["409", "cut"]
)
@pytest.mark.parametrize("after", [False, True])
def test_a_patch_that_fails_is_made_again(world: World, error: port.KubeError, after: bool) -> None:
    world.kube.fail("apply_node", error, after=after)
    world.report(boot_id="after-the-crash")
    world.pass_time()
    for _ in range(20):
        if taints(world):
            break
        world.pass_time(2)
    assert taints(world) == [TAINT]
    world.kube.fail("apply_node", error, after=after)
    world.until("succeeded", seconds=2)
    assert taints(world) == []


def test_the_taint_of_another_is_waited_for_and_kept(world: World) -> None:
    theirs = {"key": TAINT.key, "value": "admin", "effect": "NoSchedule"}
    world.kube.objects.edit("Node", "", NODE, lambda m: m["spec"].update(taints=[theirs]))
    world.until("succeeded")
    assert [taint.value for taint in taints(world)] == ["admin"]
    assert calls(world) == []


def test_guards_and_modes_hold_the_taint_back(world: World) -> None:
    world.kube.label_node(NODE, {"kcover.io/exclude": "true"})
    world.report(boot_id="after-the-crash")
    for _ in range(3):
        world.pass_time(5)
    assert (world.rescue().hold, taints(world), calls(world)) == ("guard", [], [])
    world.kube.label_node(NODE, {"kcover.io/exclude": None})
    world.cluster.mode = "shadow"
    world.cluster.save()
    world.report(boot_id="after-the-crash")
    for _ in range(3):
        world.pass_time(5)
    assert (taints(world), calls(world)) == ([], [])


def test_a_step_that_gives_up_takes_its_taint_along(world: World) -> None:
    world.kube.broken = frozenset({"llm"})
    world.report(boot_id="after-the-crash")
    world.pass_time()
    assert taints(world) == [TAINT]
    world.now += restart_jobs.RESTART_TIME_LIMIT
    world.work()
    assert (world.rescue().state, taints(world)) == ("held", [])


def test_a_step_that_an_operator_skips_leaves_the_taint_to_the_next_step_that_needs_the_node() -> None:
    heals = POLICY.replace("{name: restartJobs}", "{name: restartJobs}, {name: drain}, {name: reboot}")
    one = World(policy=heals, nodes=2, fake=WithOperators)
    try:
        one.cluster.guards = GUARDS
        one.cluster.save()
        add_job(one, "llm", NODE, "gpu-2")
        one.fault(62)
        one.kube.set_ready(NODE, False)
        one.pass_time()
        one.pass_time()
        one.report(boot_id="after-the-crash")
        one.now += timedelta(seconds=1)
        one.work()
        assert taints(one) == [TAINT]
        rescue = one.rescue()  # held while its taint could not be removed
        rescue.steps.filter(name="restart_jobs").update(state="failed")
        Rescue.objects.filter(pk=rescue.pk).update(state="held", hold="step", lease_until=None)
        services.skip(one.rescue(), actor="user:anna", reason="", now=one.now)
        one.until_reboot_is_asked()
        one.reboot()
        one.until("done", step="ready")
        assert taints(one) == []
    finally:
        one.uninstall()


@pytest.mark.parametrize(("power", "freed"), [("Off", True), ("On", False), ("Off of another machine", False)])
def test_pods_are_freed_once_the_controller_reports_that_the_machine_is_off(
    world: World, settings: Any, power: str, freed: bool
) -> None:
    settings.KCOVER_OUTGOING_HOSTS = ("127.0.0.1",)
    node = world.kube.get_node(NODE)
    controller = Controller(uuid=node.uid if "another" in power else node.system_uuid)
    try:
        controller.power = power.split()[0]
        given = {"insecure": True, "table": {NODE: controller.url}}
        credentials = {"username": USERNAME, "password": PASSWORD}
        machines.DRIVERS.make(
            Driver(name="bmc", kind="redfish", cluster=world.cluster),
            {**credentials, "settings": given},
            actor="user:ann",
            now=world.now,
        )
        for _ in range(10):
            world.pass_time()
        assert calls(world) == (["taint.begun restart_jobs", "untaint.begun restart_jobs"] if freed else [])
        assert taints(world) == []
        assert controller.asked == []
    finally:
        controller.stop()
