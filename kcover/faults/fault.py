"""The values that agent and portal exchange: faults, checks and inventory of a node, and commands to its agent."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from kcover.values.sequence_ranges import Ranges

KINDS = ("xid", "sxid", "check", "agent", "preflight", "pod", "other")  # that an agent reports
# Of other systems: a node's condition (code Type=Status/Reason), an alert (alertname), a Kubernetes Event (reason),
# NVSentinel (checkName/errorCode), gpud (component). An agent reports none of them.
SOURCE_KINDS = ("condition", "alert", "event", "health", "gpud")
OVERFLOW = "overflow"  # of the incident that counts the faults beyond the bounds of a node
INCIDENT_KINDS = (*KINDS, *SOURCE_KINDS, OVERFLOW)  # of the incidents of a node, and that rules match
NUMERIC_KINDS = ("xid", "sxid")  # their codes are int32; the codes of all others are text
CODE_WORD = re.compile(r"[a-z0-9_.-]{1,64}")  # a code that an agent reports, the name of a check
PHRASED_KINDS = ("pod", *SOURCE_KINDS)  # their codes are the words of other systems
# A code of a phrased kind; the code of a pod is its reason. Letters and digits of any script, with their marks, but no
# other space, control, direction mark or private character.
CODE_PHRASE = re.compile(
    r"(?:[A-Za-z0-9_.=/ -]|[^\x00-\xa0\xad\u061c\u1680\u180e\u2000-\u200b\u200e-\u206f\u3000"
    r"\ud800-\uf8ff\ufeff\ufff0-\uffff\U000e0000-\U0010ffff]){1,128}"
)
CHECK_STATUSES = ("pass", "warn", "fail", "error", "skipped")  # error: the check itself broke
COMMAND_KINDS = ("run_check", "reboot", "reset_gpu", "collect_evidence")
RESULT_STATUSES = ("done", "failed", "refused", "expired")


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One fault as its source reports it.

    ``code`` is an int (0 to 2**31-1) for ``xid`` and ``sxid``, the container's reason (``CODE_PHRASE``) for ``pod``, a
    word ``[a-z0-9_.-]{1,64}`` for every other kind.
    ``pci`` is the address as printed, lower case, without ``PCI:`` and MIG part. ``seen_at`` is the agent's clock: it
    is displayed, but never used for ordering. ``drill`` marks a line that a program wrote to the kernel log (facility
    1). ``records``: the sequence numbers of the log records it stands for, if there are more than ``sequence`` alone.
    ``lines_before``: the kernel's lines before it, oldest first, with their time (UTC); "" if unknown.
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
    lines_before: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One GPU, named as by its driver."""

    index: int
    uuid: str
    pci: str | None = None
    model: str = ""
    serial: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Nic:
    """One network adapter with a serial number. ``name``: of its ports, as the kernel names them."""

    serial: str
    name: str = ""
    pci: str | None = None
    model: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Inventory:
    """The driver, kernel and parts of a node; sent when they change. Serial numbers are "" if unknown."""

    driver: str = ""
    kernel: str = ""
    gpus: tuple[Gpu, ...] = ()
    machine_serial: str = ""
    board_serial: str = ""
    nics: tuple[Nic, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One result of a health check; ``device`` is the UUID of a GPU, a peer node or empty."""

    name: str
    status: str
    device: str = ""
    value: float | None = None
    unit: str = ""
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A request of the portal to the agent of one node, executed at most once by id."""

    id: str
    kind: str
    created_at: datetime
    expires_at: datetime
    args: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandResult:
    """The result of a command; the agent sends it in its next report."""

    id: str
    status: str
    finished_at: datetime | None = None
    message: str = ""
    output: Mapping[str, Any] = field(default_factory=dict)
