"""The protocols of management controllers. Each module has ``look`` and ``switch``; to add one, name it in ``DRIVERS``.
A controller that cannot be read has ``ask`` instead, and is in ``REQUESTED``.

``look`` reads and may be repeated. ``switch`` makes one request and never repeats it: whoever calls it records the
request first, and reads the power afterwards.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final, Protocol

from kcover_portal.machines.drivers import ipmi, nvsentinel, redfish, webhook
from kcover_portal.machines.drivers.values import (
    Machine as Machine,
    Power as Power,
    Seen as Seen,
    Switched as Switched,
    Unreadable as Unreadable,
)


class MachineDriver(Protocol):
    """The interface of each module of this package."""

    def look(self, machine: Machine) -> Seen:
        """What the controller says about its machine. Raises Unreadable."""

    def switch(self, machine: Machine, seen: Seen, power: Power) -> Switched:
        """Requests once that the machine is switched on, or off without a shutdown of its system."""


class RequestedDriver(Protocol):
    """The interface of a driver that asks another system to power-cycle a machine, and cannot read its power."""

    POWER_CYCLE: str
    TEST: str

    def ask(self, machine: Machine, document: Mapping[str, Any], *, action: str, delivery: str) -> Switched:
        """Makes one request. ``delivery``: its name, which stays the same when it is sent again."""


DRIVERS: Final[Mapping[str, MachineDriver]] = MappingProxyType({"redfish": redfish, "ipmi": ipmi})
REQUESTED: Final[Mapping[str, RequestedDriver]] = MappingProxyType({"webhook": webhook, "nvsentinel": nvsentinel})
