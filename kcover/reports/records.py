"""What reports are calculated from: one record for each node, fault, rescue and repair."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from enum import StrEnum

NO_TIME = timedelta(0)
HOUR = timedelta(hours=1)


class By(StrEnum):
    """By what a report groups its sums."""

    CODE = "code"
    POOL = "pool"
    PART = "part"
    POLICY = "policy"
    RULE = "rule"
    PHASE = "phase"
    CLUSTER = "cluster"


@dataclass(frozen=True, slots=True)
class Span:
    """A time; ``until`` None: it has not ended."""

    since: datetime
    until: datetime | None = None

    def within(self, since: datetime, until: datetime) -> timedelta:
        """How much of it lies between two times."""
        return max(NO_TIME, min(self.until or until, until) - max(self.since, since))


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A node. ``listed``: the time in which its cluster listed it. ``price``: of one GPU hour; None: not set."""

    node: int
    name: str
    cluster: str
    pool: str
    gpus: int
    listed: Span
    price: Decimal | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A fault of a node. Not among them: what programs cause, drills, and faults of severity ``info``.

    ``device`` "": the whole node. ``stops``: the device does no work while the fault is open. ``policy`` and
    ``rule``: of the rescue that handled it. ``happened_at``: by the node's clock; None: not known any more.
    """

    node: int
    kind: str
    code: str
    device: str
    open: Span
    stops: bool
    policy: str = ""
    rule: str = ""
    happened_at: datetime | None = None
    in_storm: bool = False

    @property
    def cause(self) -> str:
        """The fault in short: ``xid 79``."""
        return f"{self.kind} {self.code}"


@dataclass(frozen=True, slots=True)
class Run:
    """A step of a rescue that was begun; ``state``: of ``lifecycle.STEP``."""

    name: str
    state: str
    time: Span


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """A rescue. ``cause``: its fault in short, "" if a person asked for it without one. ``rule``: of its policy.

    ``by_hand``: a person asked for it. ``touched``: a person approved, retried or skipped something. ``held``: the
    times in which it waited for a person or a guard.
    """

    pk: int
    node: int
    cause: str
    policy: str
    by_hand: bool
    open: Span
    state: str
    outcome: str
    rule: str = ""
    verified: bool | None = None
    touched: bool = False
    held: Sequence[Span] = ()
    approvals: Sequence[timedelta] = ()
    runs: Sequence[Run] = ()


@dataclass(frozen=True, slots=True)
class Isolation:
    """The time in which the portal kept new work off a node, and the rescue that isolated it."""

    node: int
    time: Span
    work: Work


@dataclass(frozen=True, slots=True)
class Repair:
    """A repair at the desk, from its report until it was closed."""

    node: int
    time: Span


@dataclass(frozen=True, slots=True, kw_only=True)
class Records:
    """Everything that a report is calculated from. ``restarts``: how long restarts of training jobs took."""

    places: Sequence[Place] = ()
    faults: Sequence[Fault] = ()
    works: Sequence[Work] = ()
    isolations: Sequence[Isolation] = ()
    repairs: Sequence[Repair] = ()
    restarts: Sequence[tuple[datetime, timedelta]] = field(default=())
