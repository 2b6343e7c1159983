"""Ways to reboot a machine. Each driver is one module: ``ask`` (idempotent by key) and ``ended`` (did it refuse?).

Whether the machine did reboot is never a driver's word: the node's boot id tells (invariant 16).
"""

from typing import Protocol

from kcover_portal.rescue.actions.context import Context


class Driver(Protocol):
    """What each module of this package offers."""

    def ask(self, context: Context, *, key: str, boot_id: str) -> str:
        """Asks for one reboot of that boot, once for each key; returns what was asked, in words."""

    def ended(self, context: Context, *, key: str) -> str | None:
        """Why what was asked will not reboot the machine; None while it still may."""
