"""The reset of one GPU: only if exactly one is affected and unused, once, with the agent's answer as the result."""

from datetime import timedelta

import pytest

from kcover import reasons
from kcover_portal.fleet.models import Command
from kcover_portal.incidents.models import Incident
from kcover_portal.kube import port
from kcover_portal.ledger.models import Entry
from kcover_portal.rescue import services
from kcover_portal.rescue.step import lease
from kcover_portal.rescue.step.drivers import agent
from tests.codes import code_of, codes_of, found_in
from tests.portal.rescue import agents, worker_kills
from tests.portal.rescue.world import NODE, PCI, World

pytestmark = pytest.mark.django_db
POLICY = """
apiVersion: kcover.io/v1
kind: RescuePolicy
metadata: {name: reset}
spec:
  rules:
    - priority: 10
      errorCode: ["48", "62"]
      actions:
        - name: cordon
        - {name: drain, attribute: {waittime: 10min}}
        - {name: gpuReset, attribute: {unCordon: "true"}}
      onDrainTimeout: proceed
"""


@pytest.fixture
def reset():
    made = World(policy=POLICY)
    made.cluster.hold_down = 2
    made.cluster.save()
    agents.comes_up(made)
    yield made
    made.uninstall()


def asked(world: World) -> Command:
    """Goes on until the agent is asked."""
    for _ in range(30):
        world.work()
        found = agents.commands("reset_gpu")
        if found:
            return found[0]
        world.pass_time()
    raise AssertionError(world.rescue().because)


def test_the_gpu_is_reset_and_the_node_healed(reset: World) -> None:
    reset.kube.add_pod("default", "train-0", node=NODE, gpus=8)
    reset.fault(62)
    command = asked(reset)
    assert command.args == {"gpu_uuid": f"GPU-{NODE}-0"}
    assert reset.kube.list_pods(node=NODE) == []
    reset.pass_time()
    assert reset.step("reset").state == "waiting"

    agents.answers(reset, command, message="GPU 0 was successfully reset.")
    reset.pass_time()
    reset.pass_time()
    reset.report()
    rescue = reset.until("succeeded")
    assert (rescue.outcome, rescue.verified) == ("healed", True)
    assert reset.step("reset").why == reasons.of("gpu_reset", gpu=f"GPU-{NODE}-0")
    assert not reset.kube.get_node(NODE).unschedulable
    assert Incident.objects.get().state == "closed"
    assert len(agents.commands("reset_gpu")) == 1
    assert reset.kube.called("ensure_job") == []
    verbs = list(Entry.objects.filter(verb__startswith="reset.").order_by("sequence").values_list("verb", flat=True))
    assert verbs == ["reset.begun", "reset.done"]


def test_a_gpu_without_an_inventory_is_reset_by_its_address(reset: World) -> None:
    reset.node().devices.all().delete()
    reset.fault(62)
    assert asked(reset).args == {"pci": PCI}


@pytest.mark.parametrize("kind", ["two", "switch", "none"])
def test_a_fault_of_several_gpus_is_held_for_a_person(reset: World, kind: str) -> None:
    reset.fault(62)
    match kind:
        case "two":
            reset.fault(48, pci="0000:5d:00")
        case "switch":
            incident = Incident.objects.get()
            Incident.objects.create(
                cluster=reset.cluster,
                node=incident.node,
                kind="sxid",
                code="12028",
                device="0000:c5:00",
                opened_at=reset.now,
                last_at=reset.now,
            )
        case "none":
            Incident.objects.update(gpu_uuid="", device="")
    rescue = reset.until("held")
    assert code_of(rescue.because) == ("several_gpus_hit" if kind == "two" else "fault_names_no_gpu")
    assert agents.commands("reset_gpu") == []


def test_two_codes_of_one_gpu_are_one_gpu(reset: World) -> None:
    reset.fault(62)
    reset.fault(48, pci=f"{PCI}.0")
    assert asked(reset).args == {"gpu_uuid": f"GPU-{NODE}-0"}


def test_a_gpu_in_use_is_not_reset(reset: World) -> None:
    reset.kube.add_pod("default", "train-0", node=NODE, gpus=8, labels={"app": "train"})
    reset.kube.add_budget("default", "keep", match={"app": "train"})
    reset.fault(62)
    rescue = reset.until("held", seconds=60)
    assert rescue.why == reasons.of("gpu_in_use", pods="default/train-0")
    assert agents.commands("reset_gpu") == []


def test_a_silent_agent_is_no_way_to_reset(reset: World) -> None:
    reset.now += timedelta(minutes=10)
    reset.fault(62)
    reset.node().agent.delete()
    assert code_of(reset.until("held").because) == "agent_silent_no_reset"


@pytest.mark.parametrize("status", ["failed", "refused", "expired", "never"])
def test_an_unconfirmed_reset_is_held_and_requested_once(reset: World, status: str) -> None:
    reset.fault(62)
    command = asked(reset)
    if status != "never":
        agents.answers(reset, command, status, "in use")
    rescue = reset.until("held", seconds=30)
    assert dict(found_in(rescue.because, "reset_unconfirmed").params)["gpu"] == f"GPU-{NODE}-0"
    assert reset.kube.get_node(NODE).unschedulable
    assert len(agents.commands("reset_gpu")) == 1
    services.retry(rescue, actor="user:anna", reason="again", now=reset.now)
    reset.report()
    reset.pass_time()
    assert len(agents.commands("reset_gpu")) == 2  # a person's word is a new request


def test_a_fault_that_comes_back_fails_the_proof(reset: World) -> None:
    reset.fault(62)
    agents.answers(reset, asked(reset))
    reset.pass_time()
    reset.report()
    reset.fault(31)  # a program's
    reset.fault(79)
    rescue = reset.until("failed")
    assert "xid 79" in str(found_in(rescue.because, "faults_since_repair"))


def test_a_rescue_that_ends_withdraws_the_request(reset: World) -> None:
    reset.fault(62)
    command = asked(reset)
    services.cancel(reset.rescue(), actor="user:anna", reason="", now=reset.now)
    command.refresh_from_db()
    assert (command.state, codes_of(command.because)) == ("expired", ["command_withdrawn", "its_rescue_ended"])


def test_a_guard_is_evaluated_right_before_the_reset(reset: World) -> None:
    reset.kube.label_node(NODE, {"kcover.io/exclude": "true"})
    reset.fault(62)
    reset.work()
    reset.pass_time(20)
    assert agents.commands("reset_gpu") == []


@pytest.mark.parametrize("after", [False, True])
def test_a_worker_that_dies_requests_one_reset(reset: World, monkeypatch: pytest.MonkeyPatch, after: bool) -> None:
    offer, died = agent.offer, []

    def dying(*args: object, **more: object) -> str:
        if died:
            return offer(*args, **more)
        died.append(offer(*args, **more) if after else "")
        raise worker_kills.Killed

    monkeypatch.setattr(agent, "offer", dying)
    reset.fault(62)
    while not worker_kills.work(reset):
        reset.now += timedelta(seconds=1)
    assert len(agents.commands("reset_gpu")) == after
    reset.report()
    reset.pass_time(lease.TIME.total_seconds())
    reset.work()
    assert len(agents.commands("reset_gpu")) == 1
    agents.answers(reset, agents.commands("reset_gpu")[0])
    reset.pass_time()
    assert reset.step("reset").state == "done"


def test_a_reset_is_requested_once_the_cluster_answers(reset: World) -> None:
    reset.fault(62)
    reset.kube.fail("list_pods", port.Unavailable("down"), times=3)
    assert asked(reset).state == "offered"
