"""A node that states the machine of its neighbour has nobody's power switched."""

import uuid
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from kcover_portal.fleet.models import Cluster, Node
from kcover_portal.ledger.models import Entry
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

    def steal(self, system_uuid: str = "") -> None:
        def edit(found: dict[str, Any]) -> None:
            found["status"]["nodeInfo"]["systemUUID"] = system_uuid or self.victim.system_uuid.upper()
            found["metadata"].setdefault("annotations", {})["kcover.io/bmc"] = "127.0.0.1"

        self.kube.objects.edit("Node", "", NODE, edit)
        self.sync()
        self.report()

    def steal_provider_id(self, machine: str, *, behind: str) -> None:
        """The API server lets a kubelet state the providerID when it registers, and once while there is none."""
        another_form = machine.replace("eu-1a", "") + behind  # of the same instance

        def state(found: dict[str, Any], stated: str) -> None:
            found.setdefault("spec", {})["providerID"] = stated

        for name, stated in ((VICTIM, machine), (NODE, another_form)):
            self.kube.objects.edit("Node", "", name, partial(state, stated=stated))
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


@pytest.mark.parametrize("provider", ["aws:///eu-1a/i-0victim", f"k3s://{NODE}"])
@pytest.mark.parametrize("behind", ["", "/"])
def test_no_request_names_an_instance_that_two_nodes_state(settings: Any, provider: str, behind: str) -> None:
    """A cloud was asked to power-cycle the neighbour's instance."""
    settings.KCOVER_OUTGOING_HOSTS = ("127.0.0.1",)
    world, other = Thief(), OtherSystem(SECRET)
    try:
        machines.DRIVERS.make(
            Driver(name="cloud", kind="webhook", cluster=world.cluster, url=other.url),
            {"username": "", "password": SECRET, "settings": {}},
            actor="user:ann",
            now=world.now,
        )
        world.steal_provider_id(provider, behind=behind)
        assert world.until_held() == "machine_uuid_shared"
        assert other.calls == 0
    finally:
        other.stop()
        world.uninstall()


@pytest.mark.parametrize(
    ("mine", "code"), [("aws:///eu-1a/i-0victim", "machine_shared_elsewhere"), (f"k3s://{NODE}", "")]
)
def test_a_node_of_another_cluster_is_not_named(mine: str, code: str) -> None:
    """The reader of one cluster may not know the other. Two clusters may have one name for a node of each."""
    world = World(policy=POLICY, nodes=1)
    try:
        hidden = Cluster.objects.create(name="hidden", created_at=world.now)
        Node.objects.create(
            cluster=hidden,
            name="vault-7",
            uid="u7",
            provider_id=mine,
            in_cluster=True,
            created_at=world.now,
            synced_at=world.now,
        )
        world.kube.objects.edit("Node", "", NODE, lambda found: found.setdefault("spec", {}).update(providerID=mine))
        driver = Driver(name="cloud", kind="webhook", cluster=world.cluster, url="https://cloud.example")
        controller = machines.controller_of(world.node(), world.kube.get_node(NODE), driver=driver)
        if not code:
            world.sync()
            controller.row.refresh_from_db()
            controller.check_stated()
            return
        with pytest.raises(machines.Unusable) as found:
            controller.check_stated()
        assert found.value.reason.code == code
        assert not {"hidden", "vault-7"}.intersection(dict(found.value.reason.params).values())
    finally:
        world.uninstall()


@pytest.mark.parametrize("before", [(), ("Not Settable",), (str(uuid.UUID(int=0)),)])
def test_a_machine_that_the_node_did_not_join_with_waits_for_an_admin(before: tuple[str, ...]) -> None:
    """It was powered off although it is no node: a database server whose controller is within the driver's hosts.

    ``before``: what the node states in between. No UUID was no other one, and the next one was the first.
    """
    world, server = Thief(), str(uuid.uuid4())
    controller = Controller(uuid=server)
    address = f"http://{{bmc}}:{controller.url.rpartition(':')[2]}"
    settings = {"insecure": True, "off_seconds": 0, "hosts": ["127.0.0.0/8"]}
    try:
        machines.DRIVERS.make(
            Driver(name="bmc", kind="redfish", cluster=world.cluster, url=address),
            {"username": USERNAME, "password": SECRET, "settings": settings},
            actor="user:ann",
            now=world.now,
        )
        joined = world.node().system_uuid
        for stated in (*before, server):
            world.steal(stated)
        assert world.node().restated == {"system_uuid": joined}
        assert world.until_held() == "machine_restated"
        assert controller.asked == []
        with pytest.raises(CommandError, match="driver confirm bmc"):
            call_command("driver", "test", "bmc", "--node", NODE)
        because = ("--reason", "its board was replaced")
        confirm = ("driver", "confirm", "bmc", "--node", VICTIM, NODE, *because, "--machine")
        with pytest.raises(CommandError, match=server):  # the admin saw another board when the node stated that
            call_command(*confirm, str(uuid.uuid4()), "Not Settable")
        assert world.node().restated == {"system_uuid": joined}
        call_command(*confirm, str(uuid.uuid4()), server.upper())
        assert world.node().restated == {}
        entry = Entry.objects.get(verb="machine.confirmed")
        assert (entry.node, entry.data["system_uuid"], entry.data["reason"]) == (NODE, server, "its board was replaced")
        call_command(*confirm, server)
        assert Entry.objects.filter(verb="machine.confirmed").count() == 1
    finally:
        controller.stop()
        world.uninstall()


@pytest.mark.parametrize(("after", "code"), [(timedelta(minutes=5), ""), (timedelta(hours=2), "machine_restated")])
def test_an_instance_is_named_while_a_node_joins_and_not_later(after: timedelta, code: str) -> None:
    """A cloud's own controller names it within minutes. Later, the API server lets the kubelet do it once."""
    world = World(policy=POLICY, nodes=1)
    try:
        world.pass_time(after.total_seconds())
        named = {"providerID": "aws:///eu-1a/i-0server"}
        world.kube.objects.edit("Node", "", NODE, lambda found: found.setdefault("spec", {}).update(named))
        world.sync()
        driver = Driver(name="cloud", kind="webhook", cluster=world.cluster, url="https://cloud.example")
        controller = machines.controller_of(world.node(), world.kube.get_node(NODE), driver=driver)
        if not code:
            controller.check_stated()
            return
        with pytest.raises(machines.Unusable) as found:
            controller.check_stated()
        assert found.value.reason.code == code
    finally:
        world.uninstall()


def test_a_node_that_is_created_again_joins_again() -> None:
    """Its cloud's controller named it two hours after the portal had seen the name first, and an admin was asked."""
    world = World(policy=POLICY, nodes=1)
    try:
        system_uuid = world.node().system_uuid
        world.pass_time(timedelta(hours=2).total_seconds())
        world.kube.objects.remove("Node", "", NODE)
        world.sync()
        world.kube.add_node(NODE, gpus=8, system_uuid=system_uuid)
        world.sync()
        world.kube.objects.edit("Node", "", NODE, lambda found: found["spec"].update(providerID="aws:///eu-1a/i-0mine"))
        world.sync()
        assert (world.node().provider_id, world.node().restated) == ("aws:///eu-1a/i-0mine", {})
    finally:
        world.uninstall()


@pytest.mark.parametrize(("after", "restated"), [(timedelta(minutes=5), {}), (timedelta(hours=2), {"system_uuid": ""})])
def test_a_node_that_joins_without_a_uuid_may_state_it_at_once(after: timedelta, restated: dict[str, str]) -> None:
    world = World(policy=POLICY, nodes=1)
    try:
        Node.objects.filter(name=NODE).update(system_uuid="")
        live = world.kube.get_node(NODE)
        driver = Driver(name="bmc", kind="redfish", cluster=world.cluster, url="https://{node}-bmc.example")
        with pytest.raises(machines.Unusable) as found:
            machines.controller_of(world.node(), live, driver=driver).check_stated()
        assert found.value.reason.code == "machine_restated"
        world.pass_time(after.total_seconds())
        world.sync()
        assert (world.node().system_uuid, world.node().restated) == (live.system_uuid, restated)
    finally:
        world.uninstall()


def test_what_a_node_states_gives_the_terminal_no_command() -> None:
    world = World(policy=POLICY, nodes=1)
    try:
        machines.DRIVERS.make(
            Driver(name="cloud", kind="webhook", cluster=world.cluster, url="https://cloud.example"),
            {"username": "", "password": SECRET, "settings": {}},
            actor="user:ann",
            now=world.now,
        )
        world.pass_time(timedelta(hours=2).total_seconds())
        named = {"providerID": "aws:///\x1b[2J\nall is well"}
        world.kube.objects.edit("Node", "", NODE, lambda found: found.setdefault("spec", {}).update(named))
        world.sync()
        with pytest.raises(CommandError) as refused:
            call_command("driver", "test", "cloud", "--node", NODE)
        assert "\\x1b[2J" in str(refused.value)
        assert not {"\x1b", "\n"}.intersection(str(refused.value))
    finally:
        world.uninstall()


def test_what_the_watch_has_not_seen_is_no_machine_of_the_node() -> None:
    world = World(policy=POLICY, nodes=1)
    try:
        driver = Driver(name="bmc", kind="redfish", cluster=world.cluster, url="https://{node}-bmc.example")
        live = replace(world.kube.get_node(NODE), system_uuid=str(uuid.uuid4()))
        with pytest.raises(machines.Unusable) as found:
            machines.controller_of(world.node(), live, driver=driver).check_stated()
        assert found.value.reason.code == "machine_restated"
        with pytest.raises(machines.Unusable) as found:
            machines.confirm(world.node(), live, machines=(), actor="user:ann", reason="seen", now=world.now)
        assert found.value.reason.code == "machine_not_seen"
        names_alone = Driver(settings={"check_uuid": False}, name="bmc", kind="redfish", url=driver.url)
        machines.controller_of(world.node(), live, driver=names_alone).check_stated()
    finally:
        world.uninstall()
