"""Repairs of machines."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, ClassVar

from kcover import repairs
from kcover.audit import subjects
from kcover.audit.base import Act, register
from kcover.audit.fleet import Change
from kcover.reasons import Reason


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairAct(Act):
    """An act on a repair. ``node``: the name of its machine."""

    repair: int
    node: str

    @property
    def subject(self) -> str:
        """The repair."""
        return subjects.repair(self.repair)


@register
@dataclass(frozen=True, slots=True, kw_only=True)
class RepairOpened(RepairAct):
    """A repair was reported. ``because``: why; ``reason``: a person's own words. ``of_rescue``: its rescue's id."""

    VERB: ClassVar[str] = "repair.reported"

    part: repairs.Part
    because: tuple[Reason, ...]
    reason: str = ""
    vendor: str = ""
    queue: str = ""
    ticket: str = ""
    assignee: str = ""
    due: datetime | None = None
    of_rescue: int | None = None


@register
@dataclass(frozen=True, slots=True, kw_only=True)
class RepairChanged(RepairAct):
    """Details of a repair were changed; its state stays."""

    VERB: ClassVar[str] = "repair.changed"

    changed: Mapping[str, Change]
    reason: str = ""


@register
@dataclass(frozen=True, slots=True, kw_only=True)
class RepairCommented(RepairAct):
    """A vendor said something about a repair, and changed nothing."""

    VERB: ClassVar[str] = "repair.commented"

    reason: str


@register
@dataclass(frozen=True, slots=True, kw_only=True)
class VendorTermsChanged(Act):
    """The terms of a vendor were set, changed or removed."""

    VERB: ClassVar[str] = "vendor_terms.changed"

    vendor: str
    changed: Mapping[str, Change]
    reason: str = ""

    @property
    def subject(self) -> str:
        """The vendor."""
        return f"vendor {self.vendor}"


class RepairMove(StrEnum):
    """The state that a repair enters: any but the first, which ``RepairOpened`` records."""

    ACCEPTED = "accepted"
    IN_REPAIR = "in_repair"
    RETURNED = "returned"
    VALIDATING = "validating"
    CLOSED = "closed"
    REFUSED = "refused"


@register
@dataclass(frozen=True, slots=True, kw_only=True)
class RepairMoved(RepairAct):
    """A repair entered ``state``, from the state ``before``.

    ``reason``: a person's own words; ``because``: what the portal saw. ``action``: what is done, or was done, to the
    part. ``changed``: the details that changed with it.
    """

    state: RepairMove
    before: repairs.State
    reason: str = ""
    because: Reason | None = None
    action: str = ""
    changed: Mapping[str, Change]

    @classmethod
    def verbs(cls) -> Mapping[str, Mapping[str, Any]]:
        """``repair.<state>``."""
        return {f"repair.{state}": {"state": state} for state in RepairMove}

    @property
    def verb(self) -> str:
        """``repair.<state>``."""
        return f"repair.{self.state}"
