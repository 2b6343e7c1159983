"""The protocols of management controllers. Each module has ``look`` and ``switch``; to add one, name it in ``DRIVERS``.

``look`` reads and may be repeated. ``switch`` makes one request and never repeats it: whoever calls it records the
request first, and reads the power afterwards.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, Protocol

from kcover_portal.machines.drivers import redfish
from kcover_portal.machines.drivers.values import Machine, Power, Seen, Switched, Unreadable

__all__ = ["DRIVERS", "Machine", "MachineDriver", "Power", "Seen", "Switched", "Unreadable"]


class MachineDriver(Protocol):
    """The interface of each module of this package."""

    def look(self, machine: Machine) -> Seen:
        """What the controller says about its machine. Raises Unreadable."""

    def switch(self, machine: Machine, seen: Seen, power: Power) -> Switched:
        """Requests once that the machine is switched on, or off without a shutdown of its system."""


DRIVERS: Final[Mapping[str, MachineDriver]] = MappingProxyType({"redfish": redfish})
