"""The controller of one node's machine: what it says, whether it is that machine's, and its switch."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import urlsplit

from kcover import reasons
from kcover.machines import machine_drivers
from kcover_portal.encryption import SecretUnreadable
from kcover_portal.fleet import queries as fleet
from kcover_portal.fleet.models import Node
from kcover_portal.kube import port
from kcover_portal.machines import drivers, queries
from kcover_portal.machines.drivers import Machine, Power, Seen, Switched, Unreadable
from kcover_portal.machines.models import Driver


class Unusable(reasons.ExplainedError):
    """The machine's power cannot be read or switched. ``lasting``: not before a person changes something.

    ``another_machine``: the controller belongs to another machine, so a stronger step could hit the wrong one.
    """

    def __init__(self, reason: reasons.Reason, *, lasting: bool, another_machine: bool = False) -> None:
        super().__init__(reason)
        self.lasting = lasting
        self.another_machine = another_machine


@dataclass(frozen=True, slots=True, kw_only=True)
class Controller:
    """One node's controller. ``row``, ``node``: the node as the portal has it, and the live one."""

    driver: Driver
    machine: Machine
    row: Node
    node: port.Node

    @property
    def host(self) -> str:
        """Its name, for people."""
        return urlsplit(self.machine.url).netloc or drivers.nvsentinel.NAME

    @property
    def off_time(self) -> timedelta:
        """How long the machine stays off in a power cycle."""
        return timedelta(seconds=self.driver.setting("off_seconds"))

    @property
    def is_requested(self) -> bool:
        """True if another system power-cycles the machine, and the power cannot be read."""
        return self.driver.kind in drivers.REQUESTED

    def ask(self, *, boot_id: str, delivery: str, now: datetime) -> Switched:
        """One request for a power cycle, made at most once; only for a controller that ``is_requested``."""
        driver = drivers.REQUESTED[self.driver.kind]
        return driver.ask(self.machine, self._document(boot_id, now), action=driver.POWER_CYCLE, delivery=delivery)

    def test(self, *, now: datetime) -> Switched:
        """One request that changes nothing; only for a controller that ``is_requested``."""
        driver = drivers.REQUESTED[self.driver.kind]
        return driver.ask(self.machine, self._document("", now), action=driver.TEST, delivery=f"test-{now.timestamp()}")

    def _document(self, boot_id: str, now: datetime) -> Mapping[str, Any]:
        return {
            "sent_at": now.isoformat(),
            "cluster": self.driver.cluster.name,
            "node": self.node.name,
            "uid": self.node.uid,
            "provider_id": self.node.provider_id,
            "system_uuid": self.node.system_uuid,
            "boot_id": boot_id,
        }

    def look(self) -> Seen:
        """What the controller says. Raises Unusable, also if it is not proved to be this node's controller."""
        try:
            seen = drivers.DRIVERS[self.driver.kind].look(self.machine)
        except Unreadable as error:
            raise Unusable(error.reason, lasting=error.lasting) from error
        if self.driver.setting("check_uuid"):
            same = machine_drivers.same_machine(seen.uuid, self.node.system_uuid)
            if same is None:
                unknown = reasons.of("machine_uuid_unknown", node=self.node.name, host=self.host, setting="check_uuid")
                raise Unusable(unknown, lasting=True)
            if not same:
                other = {"uuid": seen.uuid, "expected": self.node.system_uuid}
                differs = reasons.of("machine_uuid_differs", node=self.node.name, host=self.host, **other)
                raise Unusable(differs, lasting=True, another_machine=True)
        return seen

    def check_stated(self) -> None:
        """Raises Unusable unless the machine that the node states, by UUID and providerID, can be believed.

        A node states both itself. A stolen one could state those of another machine, and have it switched off. So no
        other node may state them, and not even this one may have stated another machine since it joined.
        """
        self._check_shared()
        self._check_restated()

    def _check_restated(self) -> None:
        """Raises Unusable if the node has changed the name by which its machine is proved, or named in a request."""
        row, live, by = self.row, self.node, []
        if self.is_requested or self.driver.setting("check_uuid"):
            by.append("system_uuid")
        if self.is_requested:
            by.append("provider_id")
        # What the watch has not seen counts, too.
        late = [name for name in by if not machine_drivers.same_name(name, getattr(row, name), getattr(live, name))]
        if changed := next((name for name in by if name in row.restated or name in late), ""):
            named = {"node": live.name, "identity": getattr(live, changed), "driver": self.driver.name}
            raise Unusable(reasons.of("machine_restated", **named), lasting=True, another_machine=True)

    def _check_shared(self) -> None:
        """Raises Unusable if another node states the machine of this one, by UUID or as what a request names."""
        others = Node.objects.filter(in_cluster=True).exclude(pk=self.row.pk).order_by("pk")
        others = others.exclude(uid=self.node.uid).select_related("cluster")  # a cluster that was added twice
        for key, uuid in others.exclude(system_uuid="").values_list("pk", "system_uuid"):
            if machine_drivers.same_machine(uuid, self.node.system_uuid):
                self._refuse_shared(others.get(pk=key), self.node.system_uuid)
        if not self.is_requested or not self.node.provider_id:
            return
        if machine_drivers.instance(self.node.provider_id) == self.node.name:  # as of k3s, in any of several clusters
            others = others.filter(cluster=self.row.cluster)
        for key, provider in others.exclude(provider_id="").values_list("pk", "provider_id"):
            if machine_drivers.same_instance(provider, self.node.provider_id):
                self._refuse_shared(others.get(pk=key), self.node.provider_id)

    def _refuse_shared(self, other: Node, identity: str) -> None:
        """Raises Unusable. Who may read it may not know the other cluster."""
        named: dict[str, reasons.Value] = {"node": self.node.name, "uuid": identity}
        if other.cluster_id == self.row.cluster_id:
            shared = reasons.of("machine_uuid_shared", other=other.name, cluster=other.cluster.name, **named)
        else:
            shared = reasons.of("machine_shared_elsewhere", **named)
        raise Unusable(shared, lasting=True, another_machine=True)

    def switch(self, seen: Seen, power: Power) -> Switched:
        """One request, made at most once."""
        return drivers.DRIVERS[self.driver.kind].switch(self.machine, seen, power)


def controller_of(row: Node, node: port.Node, *, driver: Driver | None = None) -> Controller:
    """The controller of a node. ``driver``: None for the one that the node has. Raises Unusable."""
    driver = driver or queries.driver_of(row)
    if driver is None or driver.kind in machine_drivers.REPLACING:
        raise Unusable(reasons.of("machine_driver_missing", node=node.name, cluster=row.cluster.name), lasting=True)
    try:
        bmc = node.annotations.get(machine_drivers.ANNOTATION, "").strip()
        machine = Machine(
            url=_address(driver, node=node.name, bmc=bmc),
            username=driver.username,
            password=driver.password,
            system=driver.setting("system").replace(machine_drivers.NODE, node.name),
            seconds=float(driver.setting("timeout")),
            verify=not driver.setting("insecure"),
            cluster=fleet.connect(row.cluster) if driver.kind in machine_drivers.IN_CLUSTER else None,
        )
    except (machine_drivers.NoAddress, SecretUnreadable) as error:
        raise Unusable(error.reason, lasting=True) from error
    return Controller(driver=driver, machine=machine, row=row, node=node)


def _address(driver: Driver, *, node: str, bmc: str) -> str:
    """The address of a node's controller, or of the system that receives all requests. Raises NoAddress."""
    if driver.kind in (*machine_drivers.SIGNED, *machine_drivers.IN_CLUSTER):
        return driver.url
    return machine_drivers.address_of(driver.url, driver.settings, node=node, bmc=bmc)
