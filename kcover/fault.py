"""The words that agent and portal share: what a source saw on a node, and what it may be told to do."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from kcover.sequences import Ranges

KINDS = ("xid", "sxid", "check", "agent", "preflight", "pod", "other")
NUMERIC_KINDS = ("xid", "sxid")  # their codes are int32, all others are short words
CHECK_STATUSES = ("pass", "warn", "fail", "error", "skipped")  # error: the check itself broke
COMMAND_KINDS = ("run_check", "reboot", "reset_gpu")
RESULT_STATUSES = ("done", "failed", "refused", "expired")


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One thing that went wrong, as its source saw it.

    ``code`` is an int (0 to 2**31-1) for ``xid`` and ``sxid``, a word ``[a-z0-9_.-]{1,64}`` for every other kind.
    ``pci`` is the address as printed, lower case, without ``PCI:`` and MIG part. ``seen_at`` is the agent's clock:
    shown, never used to order anything. ``drill`` marks a line that a program wrote to the kernel log (facility 1).
    ``records``: the log records that it stands for, by sequence number, where they are more than ``sequence`` alone.
    """

    kind: str
    code: int | str
    pci: str | None = None
    gpu_uuid: str | None = None
    message: str = ""
    seen_at: datetime | None = None
    source: str = "other"
    sequence: int | None = None
    drill: bool = False
    count: int = 1
    records: Ranges = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One device as the driver names it."""

    index: int
    uuid: str
    pci: str | None = None
    model: str = ""
    serial: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Inventory:
    """What a node is made of; sent when it changed."""

    driver: str = ""
    kernel: str = ""
    gpus: tuple[Gpu, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One result of one health check; ``device`` is a GPU's UUID, a peer or empty."""

    name: str
    status: str
    device: str = ""
    value: float | None = None
    unit: str = ""
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """What the portal asks of one node's agent, executed at most once by id."""

    id: str
    kind: str
    created_at: datetime
    expires_at: datetime
    args: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandResult:
    """How a command ended, told by the agent in its next report."""

    id: str
    status: str
    finished_at: datetime | None = None
    message: str = ""
    output: Mapping[str, Any] = field(default_factory=dict)
