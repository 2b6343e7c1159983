"""Repairs of machines."""

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum

from kcover.audit import subjects
from kcover.audit.base import Act
from kcover.audit.fleet import Change
from kcover.reasons import Reason
from kcover.repairs import repairs


class RepairAct(Act):
    """An act on a repair. ``node``: the name of its machine."""

    repair: int
    node: str

    @property
    def subject(self) -> str:
        return subjects.repair(self.repair)


class RepairOpened(RepairAct, verb="repair.reported"):
    """A repair was reported. ``because``: why; ``reason``: a person's own words. ``of_rescue``: its rescue's id."""

    part: repairs.Part
    because: tuple[Reason, ...]
    reason: str = ""
    vendor: str = ""
    queue: str = ""
    ticket: str = ""
    assignee: str = ""
    due: datetime | None = None
    of_rescue: int | None = None


class RepairChanged(RepairAct, verb="repair.changed"):
    """Details of a repair were changed; its state stays."""

    changed: Mapping[str, Change]
    reason: str = ""


class RepairCommented(RepairAct, verb="repair.commented"):
    """A vendor said something about a repair, and changed nothing."""

    reason: str


class VendorTermsChanged(Act, verb="vendor_terms.changed", subject="vendor {vendor}"):
    """The terms of a vendor were set, changed or removed."""

    vendor: str
    changed: Mapping[str, Change]
    reason: str = ""


class RepairMove(StrEnum):
    """The state that a repair enters: any but the first, which ``RepairOpened`` records."""

    ACCEPTED = "accepted"
    IN_REPAIR = "in_repair"
    RETURNED = "returned"
    VALIDATING = "validating"
    CLOSED = "closed"
    REFUSED = "refused"


class RepairMoved(RepairAct, verb="repair.{state}"):
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
