"""Machine drivers."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from kcover.audit.base import Act, register
from kcover.audit.fleet import Change


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverAct(Act):
    """An act on a machine driver."""

    driver: str

    @property
    def subject(self) -> str:
        """The driver."""
        return f"driver {self.driver}"


@register
@dataclass(frozen=True, slots=True, kw_only=True)
class DriverCreated(DriverAct):
    """A driver was added. ``settings``: without its secret."""

    VERB: ClassVar[str] = "driver.created"

    kind: str
    settings: Mapping[str, Any] = field(default_factory=dict)


@register
@dataclass(frozen=True, slots=True, kw_only=True)
class DriverChanged(DriverAct):
    """Settings of a driver were changed, or it was switched on or off. The secret is named without its value."""

    VERB: ClassVar[str] = "driver.changed"

    changed: Mapping[str, Change]


@register
@dataclass(frozen=True, slots=True, kw_only=True)
class DriverDeleted(DriverAct):
    """A driver was removed."""

    VERB: ClassVar[str] = "driver.deleted"

    kind: str
