"""The messages: the report of an agent and the answer of the portal."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from kcover.faults.fault import Check, Command, CommandResult, Fault, Inventory
from kcover.wire.fields import VERSION, WireError


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The report of one node's agent.

    ``batch_id`` is a lower-case UUID and stays the same when the report is sent again. ``inventory`` is None unless it
    changed. ``figures``: numbers by GPU (UUID) and name (``kcover.nodes.gpu_figures``). ``sent_at`` is the agent's
    clock, in UTC.
    """

    node: str
    boot_id: str
    batch_id: str
    sent_at: datetime
    agent: str = ""
    inventory: Inventory | None = None
    faults: tuple[Fault, ...] = ()
    checks: tuple[Check, ...] = ()
    command_results: tuple[CommandResult, ...] = ()
    figures: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    version: int = VERSION


@dataclass(frozen=True, slots=True)
class Rejected:
    """An item that was rejected: its path (``faults/3/code``), and the code and the English text of the reason.

    An agent may get a code from a newer portal, so both are text.
    """

    path: str
    code: str
    reason: str

    @classmethod
    def of(cls, error: WireError, *, at: str = "") -> "Rejected":
        """The item that has the error. ``at``: the path of the object that was read."""
        return cls("/".join(filter(None, (at, error.path))), error.code, str(error.reason))


@dataclass(frozen=True, slots=True)
class Decoded:
    """A report with only its valid items, and the rejected ones."""

    report: Report
    rejected: tuple[Rejected, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The number of accepted items of a report, the rejected ones, and the commands for the node.

    ``unsupported`` lists commands in a received answer that this version does not support; it is never sent.
    """

    accepted: int = 0
    duplicates: int = 0
    rejected: tuple[Rejected, ...] = ()
    commands: tuple[Command, ...] = ()
    unsupported: tuple[Rejected, ...] = ()
