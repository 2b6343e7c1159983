"""NVSentinel's janitor as the driver of a power cycle and of a GPU reset: one object for one request."""

from collections.abc import Iterator

import pytest

from kcover_portal.kube import port
from kcover_portal.machines import services as machines
from kcover_portal.machines.models import Driver
from kcover_portal.rescue.step.drivers import janitor_reset
from tests import proofs
from tests.codes import code_of, codes_of
from tests.portal.rescue import worker_kills
from tests.portal.rescue.world import HEAL, NODE, World

pytestmark = pytest.mark.django_db
OWN = HEAL.replace("rescue.ksyun.com/v1", "kcover.io/v1")
CYCLE = OWN.replace("name: reboot", "name: powerCycle")
RESET = OWN.replace("name: reboot", "name: gpuReset")
GPU = "GPU-7d7b8c7e-5a1c-4c7f-9f5e-2f2d1f3a4b5c"


class Janitor(World):
    """A world with NVSentinel."""

    def __init__(self, policy: str) -> None:
        super().__init__(policy=policy)
        machines.DRIVERS.make(
            Driver(name="janitor", kind="nvsentinel", cluster=self.cluster), {}, actor="user:ann", now=self.now
        )

    def asked(self, kind: port.CustomKind) -> list[port.CustomObject]:
        return self.kube.custom_objects(kind)

    def go_on(self, seconds: float = 1, rounds: int = 8) -> None:
        for _ in range(rounds):
            self.work()
            self.pass_time(seconds)
            self.report()


@pytest.fixture
def cycle() -> Iterator[Janitor]:
    made = Janitor(CYCLE)
    yield made
    made.uninstall()


@pytest.fixture
def reset() -> Iterator[Janitor]:
    made = Janitor(RESET)
    yield made
    made.uninstall()


@pytest.mark.parametrize("after", [None, False, True])
def test_a_machine_is_rebooted_by_one_object(cycle: Janitor, after: bool | None) -> None:
    if after is not None:
        worker_kills.kill_at(cycle.kube, "create_object", call=1, after=after)
    cycle.fault(62)
    for _ in range(6):
        worker_kills.work(cycle)
        cycle.sync()
    cycle.go_on(rounds=3)
    if after is False:  # nobody knows whether it arrived: only the boot ID is watched
        assert cycle.asked(port.REBOOT_NODE) == []
        assert code_of(cycle.step("power_cycle").because) == "machine_cycle_requested"
        return
    (made,) = cycle.asked(port.REBOOT_NODE)
    assert made.spec == {"nodeName": NODE, "force": False}
    cycle.kube.reboot(NODE)
    cycle.go_on(2, 30)
    assert (cycle.rescue().outcome, len(cycle.asked(port.REBOOT_NODE))) == ("healed", 1)
    assert proofs.broken_claim(cycle.rescue()) == ""


@pytest.mark.parametrize(
    ("error", "state", "code"),
    [
        (port.NotFound("no such kind"), "held", "machine_cycle_refused"),
        (port.RefusedByServer("403"), "held", "machine_cycle_refused"),
        (port.Unavailable("504", ambiguous=True), "waiting", "machine_cycle_requested"),
    ],
)
def test_each_failed_request_has_its_outcome(cycle: Janitor, error: port.KubeError, state: str, code: str) -> None:
    cycle.kube.fail("create_object", error)
    cycle.fault(62)
    cycle.go_on()
    assert (cycle.rescue().state, codes_of(cycle.rescue().because)[0]) == (state, code)
    assert len(cycle.kube.called("create_object")) == 1


@pytest.mark.parametrize("created", [False, True])
def test_a_conflict_is_retried_with_the_same_object(cycle: Janitor, created: bool) -> None:
    cycle.kube.fail("create_object", port.Conflict("409"), after=created)
    cycle.fault(62)
    cycle.go_on()
    assert len(cycle.asked(port.REBOOT_NODE)) == 1
    cycle.kube.reboot(NODE)
    cycle.go_on(2, 30)
    assert (cycle.rescue().outcome, len(cycle.asked(port.REBOOT_NODE))) == ("healed", 1)


@pytest.mark.parametrize(("phase", "state"), [("Succeeded", "succeeded"), ("Failed", "held")])
def test_one_gpu_is_reset(reset: Janitor, phase: str, state: str) -> None:
    reset.fault(62, gpu_uuid=GPU)
    reset.go_on()
    (made,) = reset.asked(port.GPU_RESET)
    assert made.spec == {"nodeName": NODE, "selector": {"uuids": [GPU]}}
    assert reset.step("reset").state == "waiting"
    reset.kube.objects.merge("GPUReset.janitor.dgxc.nvidia.com", "", made.name, {"status": {"phase": phase}})
    reset.go_on(2, 20)
    assert reset.rescue().state == state
    assert len(reset.asked(port.GPU_RESET)) == 1


def test_a_gpu_is_named_by_its_address_or_not_at_all() -> None:
    assert janitor_reset._selector({"pci": "0000:4e:00"}) == {"pciBusIDs": ["0000:4e:00.0"]}
    assert janitor_reset._selector({"gpu_uuid": "GPU-1"}) is None
    assert janitor_reset._selector({}) is None


def test_a_deleted_object_is_no_proof(reset: Janitor) -> None:
    reset.fault(62, gpu_uuid=GPU)
    reset.go_on()
    (made,) = reset.asked(port.GPU_RESET)
    reset.kube.remove_custom_object(port.GPU_RESET, made.name)
    reset.go_on(2, 10)
    assert (reset.rescue().state, code_of(reset.rescue().because)) == ("held", "reset_unconfirmed")
