"""A node that states the machine of its neighbour has nobody's power switched."""

from typing import Any

import pytest
from django.core.management import CommandError, call_command

from kcover_portal.machines import services as machines
from kcover_portal.machines.models import Driver
from tests.codes import code_of
from tests.portal.machines.controllers import USERNAME, Controller
from tests.portal.rescue.other_system import OtherSystem
from tests.portal.rescue.test_actions_power_cycle import POLICY
from tests.portal.rescue.world import NODE, World

pytestmark = pytest.mark.django_db
VICTIM = "gpu-2"
SECRET = "sixteen characters"


class Thief(World):
    """NODE's kubelet is stolen: it states the UUID of the victim, and the victim's controller."""

    def __init__(self) -> None:
        super().__init__(policy=POLICY, nodes=2)
        self.victim = self.kube.get_node(VICTIM)

    def steal(self) -> None:
        def edit(found: dict[str, Any]) -> None:
            found["status"]["nodeInfo"]["systemUUID"] = self.victim.system_uuid.upper()
            found["metadata"].setdefault("annotations", {})["kcover.io/bmc"] = "127.0.0.1"

        self.kube.objects.edit("Node", "", NODE, edit)
        self.sync()
        self.report()

    def until_held(self) -> str:
        self.fault(62)
        for _ in range(20):
            self.work()
            if self.rescue().state == "held":
                break
            self.pass_time(2)
        return code_of(self.rescue().because)


@pytest.mark.parametrize("kind", ["redfish", "webhook"])
def test_a_machine_that_two_nodes_state_is_left_alone(settings: Any, kind: str) -> None:
    """The victim was powered off with its pods running, and only the thief was cordoned and drained."""
    settings.KCOVER_OUTGOING_HOSTS = ("127.0.0.1",)
    world, other = Thief(), OtherSystem(SECRET)
    controller = Controller(uuid=world.victim.system_uuid)
    port = controller.url.rpartition(":")[2]
    address = {"redfish": f"http://{{bmc}}:{port}", "webhook": other.url}[kind]
    more = {"insecure": True, "off_seconds": 0, "hosts": ["127.0.0.0/8"]} if kind == "redfish" else {}
    user = USERNAME if kind == "redfish" else ""
    try:
        machines.DRIVERS.make(
            Driver(name="bmc", kind=kind, cluster=world.cluster, url=address),
            {"username": user, "password": SECRET, "settings": more},
            actor="user:ann",
            now=world.now,
        )
        world.steal()
        with pytest.raises(CommandError):
            call_command("driver", "test", "bmc", "--node", NODE)
        assert world.until_held() == "machine_uuid_shared"
        assert (controller.asked, other.calls) == ([], 0)
    finally:
        controller.stop()
        other.stop()
        world.uninstall()
