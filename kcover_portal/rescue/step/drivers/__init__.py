"""Drivers that reboot a machine or reset a GPU. Each driver is one module: ``ask`` (idempotent by key) and ``ended``.

A driver never reports that the machine rebooted: only the node's boot ID shows it (invariant 16). The result of a reset
is known from its driver alone; the verification afterwards shows whether it helped.
"""

from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol

from kcover.reasons import Reason
from kcover_portal.rescue.step.context import Context


class Driver(Protocol):
    """The interface of each module of this package."""

    BELIEVED_AFTER: timedelta  # since the request; a failure reported earlier may be the machine going down

    def ask(self, context: Context, *, key: str, boot_id: str) -> Reason:
        """Requests one reboot that ends that boot, once for each key; returns what names the request."""

    def ended(self, context: Context, *, key: str) -> Reason | None:
        """The reason why the request failed; None if it did not end, or may have ended with the machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reset:
    """The result of a reset, according to the driver. Not ``done``: refused, failed, or unknown."""

    done: bool
    reason: Reason


class Resetter(Protocol):
    """The interface of each module of this package that resets GPUs."""

    def refusal(self, context: Context) -> Reason | None:
        """The reason why this driver cannot be used now; None if it can."""

    def ask(self, context: Context, *, key: str, gpu: dict[str, str]) -> Reason:
        """Requests one reset of that GPU (``gpu_uuid`` or ``pci``), once for each key; returns what names it."""

    def ended(self, context: Context, *, key: str) -> Reset | None:
        """The result; None while it is not known yet."""
