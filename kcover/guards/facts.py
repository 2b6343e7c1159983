"""What the guards weigh: counts that the portal gathers, for one node at one moment.

The counts and what is done on their strength belong into one transaction under the cluster's lock; otherwise two nodes
that are judged at once both see the last free place (invariant 29).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from datetime import datetime
from typing import Any

EXCLUDE_LABEL = "kcover.io/exclude"

TRAITS = ("code", "job", "switch", "agent_version")
SCOPES = ("all", "cluster", "pool", "node")


@dataclass(frozen=True, slots=True, kw_only=True)
class Slots:
    """The nodes over which one budget counts. ``scope`` names them: "cluster east", "pool a100", "zone=b".

    ``taken``: nodes with an open rescue or with the portal's marks; a stuck node is among them until it is released.
    """

    scope: str
    eligible: int
    taken: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """The node's pool. ``healthy``: nodes that are Ready and take work, the node itself among them if it does."""

    name: str
    eligible: int
    healthy: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Symptom:
    """Something that the fault at hand shares with faults of other nodes, and on how many distinct nodes (this one
    included) it was seen within the storm's window. ``trait`` is one of ``TRAITS``; one that every node has (the only
    agent version there is) tells nothing apart and is left out."""

    trait: str
    value: str
    nodes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Faulty:
    """Distinct nodes of the cluster on which a node fault was first seen within the last 10 min, 1 h and 6 h."""

    ten_minutes: int = 0
    hour: int = 0
    six_hours: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Maintenance:
    """A window in which people work: from ``start`` until before ``end``, on all clusters or on the ``name`` of one
    cluster, pool or node."""

    start: datetime
    end: datetime
    scope: str = "all"
    name: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleFacts:
    """One rule with a budget or a cooldown: its places, of the nodes that it selects, and when its last rescue of this
    node ended."""

    slots: Slots
    last_ended_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """One node and what surrounds it.

    ``eligible``: GPU nodes that the cluster has and that are not excluded, isolated ones included, so that the
    denominator does not shrink. ``isolated_lately``: distinct nodes that the portal took out of scheduling within the
    breaker's window. ``holds_slot``: the node has a place already (an open rescue or marks). ``serving``: it is Ready
    and schedulable; False under a foreign cordon. ``slots``: of the cluster's budget. ``rules``: by ``Candidate.name``,
    for every rule with a budget or a cooldown.
    """

    cluster: str
    node: str
    eligible: int
    isolated_lately: int
    slots: Slots
    pool: Pool
    labels: Mapping[str, str] = field(default_factory=dict)
    serving: bool = True
    holds_slot: bool = False
    symptoms: tuple[Symptom, ...] = ()
    faulty: Faulty = field(default_factory=Faulty)
    last_rescue_ended_at: datetime | None = None
    maintenance: tuple[Maintenance, ...] = ()
    rules: Mapping[str, RuleFacts] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """The facts as plain JSON, for the record of a decision."""
        return {one.name: _plain(getattr(self, one.name)) for one in fields(self)}


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, Mapping):
        return {key: _plain(one) for key, one in value.items()}
    if isinstance(value, tuple):
        return [_plain(one) for one in value]
    if is_dataclass(value):
        return {one.name: _plain(getattr(value, one.name)) for one in fields(value)}
    return value
