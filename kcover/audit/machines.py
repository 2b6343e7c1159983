"""Machine drivers."""

from collections.abc import Mapping
from dataclasses import field
from typing import Any

from kcover.audit.base import Act
from kcover.audit.fleet import Change


class DriverAct(Act, subject="driver {driver}"):
    """An act on a machine driver."""

    driver: str


class DriverCreated(DriverAct, verb="driver.created"):
    """A driver was added. ``settings``: without its secret."""

    kind: str
    settings: Mapping[str, Any] = field(default_factory=dict)


class DriverChanged(DriverAct, verb="driver.changed"):
    """Settings of a driver were changed, or it was switched on or off. The secret is named without its value."""

    changed: Mapping[str, Change]
    reason: str = ""


class MachineConfirmed(Act, verb="machine.confirmed", subject="node {node}"):
    """An admin confirmed the machine that a node states, although the node has changed it since it joined."""

    node: str
    system_uuid: str
    provider_id: str
    reason: str


class DriverDeleted(DriverAct, verb="driver.deleted"):
    """A driver was removed. A power cycle that is under way then waits for a person."""

    kind: str
    reason: str = ""
