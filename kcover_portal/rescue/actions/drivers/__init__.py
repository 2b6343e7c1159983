"""Ways to reboot a machine, and to reset a GPU. Each driver is one module: ``ask`` (idempotent by key) and ``ended``.

Whether the machine did reboot is never a driver's word: the node's boot id tells (invariant 16). Nothing but its driver
tells how a reset went, and the verification after it whether it helped.
"""

from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol

from kcover_portal.rescue.actions.context import Context


class Driver(Protocol):
    """What each module of this package offers."""

    BELIEVED_AFTER: timedelta  # since it was asked; before, its word that it failed may be the machine going down

    def ask(self, context: Context, *, key: str, boot_id: str) -> str:
        """Asks for one reboot of that boot, once for each key; returns what was asked, in words."""

    def ended(self, context: Context, *, key: str) -> str | None:
        """Why what was asked has ended without a word of success; None while it has not. It may have ended with the
        machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reset:
    """How a reset went, by the driver's word. Not ``done``: refused, failed, or nobody knows."""

    done: bool
    said: str


class Resetter(Protocol):
    """What each module of this package that resets GPUs offers."""

    def refusal(self, context: Context) -> str | None:
        """Why this way is closed now; None where it is open."""

    def ask(self, context: Context, *, key: str, gpu: dict[str, str]) -> str:
        """Asks for one reset of that GPU (``gpu_uuid`` or ``pci``), once for each key; returns what was asked."""

    def ended(self, context: Context, *, key: str) -> Reset | None:
        """How it went; None while that is to come."""
