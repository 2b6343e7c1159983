"""What is said: the report of an agent and the portal's answer."""

from dataclasses import dataclass
from datetime import datetime

from kcover.fault import Check, Command, CommandResult, Fault, Inventory
from kcover.wire.fields import VERSION


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What one node's agent tells. ``batch_id`` is a lower-case UUID, the same when the report is sent again;
    ``inventory`` is None unless it changed; ``sent_at`` is the agent's clock, in UTC."""

    node: str
    boot_id: str
    batch_id: str
    sent_at: datetime
    agent: str = ""
    inventory: Inventory | None = None
    faults: tuple[Fault, ...] = ()
    checks: tuple[Check, ...] = ()
    command_results: tuple[CommandResult, ...] = ()
    version: int = VERSION


@dataclass(frozen=True, slots=True)
class Rejected:
    """An item that was not taken: where it is (``faults/3/code``) and what is wrong with it."""

    path: str
    reason: str


@dataclass(frozen=True, slots=True)
class Decoded:
    """A report with only the good items in it, and what was wrong with the others."""

    report: Report
    rejected: tuple[Rejected, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What became of a report, item by item, and what the node is asked to do.

    ``unread`` lists commands in a received answer that this side does not understand; it is never sent.
    """

    accepted: int = 0
    duplicates: int = 0
    rejected: tuple[Rejected, ...] = ()
    commands: tuple[Command, ...] = ()
    unread: tuple[Rejected, ...] = ()
