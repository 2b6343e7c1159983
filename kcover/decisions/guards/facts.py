"""The input of the guards: counts that the portal gathers for one node at one moment.

The counts and the act that relies on them belong in one transaction under the cluster's lock. Otherwise two nodes that
are decided at once would both see the last free slot (invariant 29).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from datetime import datetime
from typing import Any

from kcover import reasons

EXCLUDE_LABEL = "kcover.io/exclude"

TRAITS = ("code", "job", "switch", "agent_version")
SCOPES = ("all", "cluster", "pool", "node", "label", "rack", "leaf", "nvlink")


@dataclass(frozen=True, slots=True, kw_only=True)
class Slots:
    """The nodes that one budget covers: those of a cluster, a pool, a label's value or a scope, or those of a rule.

    ``by``: one of ``SCOPES`` or rule. ``name``: of the cluster, pool or rule, or ``zone=b``; a pool may have none.
    ``taken``: nodes with an open rescue or with the portal's marks. A stuck node counts until it is released.
    """

    by: str
    name: str
    eligible: int
    taken: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """The node's pool. ``healthy``: nodes that are Ready and schedulable, including the node itself if it is."""

    name: str
    eligible: int
    healthy: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Symptom:
    """Something that the fault at hand shares with faults of other nodes.

    ``nodes``: distinct nodes, this one included, that showed it within the storm's window. ``trait``: one of
    ``TRAITS``. ``kind``: of a fault's code (trait ``code``); "" for other traits. A value that all nodes share (the
    only agent version) distinguishes nothing and is left out.
    """

    trait: str
    kind: str = ""
    value: str
    nodes: int

    @property
    def key(self) -> tuple[str, str, str]:
        """The identity of the symptom: trait, kind and value."""
        return self.trait, self.kind, self.value

    @property
    def text(self) -> str:
        """The value for people: ``xid 62``, ``leaf-3``."""
        return f"{self.kind} {self.value}" if self.kind else self.value


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultyNodes:
    """Distinct nodes of the cluster on which a node fault was first seen within the last 10 min, 1 h and 6 h."""

    ten_minutes: int = 0
    hour: int = 0
    six_hours: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultHistory:
    """The statistics that the rate guard learned from the cluster's own past; see ``guards.chance``.

    ``faults``: nodes that became faulty in ``node_hours``. The others: how many other nodes had become faulty within 10
    min, 1 h and 6 h before each of these faults, in total.
    """

    node_hours: int = 0
    faults: int = 0
    ten_minutes: int = 0
    hour: int = 0
    six_hours: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Maintenance:
    """A maintenance window from ``start`` until before ``end``, for all clusters, a cluster or some of its nodes.

    ``scope``: one of ``SCOPES``. ``name``: of the cluster, pool, label, domain or node, several with commas.
    ``covers``: whether the node at hand is inside, where its name, pool and cluster do not tell; else None.
    """

    start: datetime
    end: datetime
    scope: str = "all"
    name: str = ""
    reason: str = ""
    covers: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleFacts:
    """A rule with a budget or a cooldown: its slots over the nodes it selects, and the end of its last rescue here."""

    slots: Slots
    last_ended_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """One node and its surroundings.

    ``eligible``: GPU nodes of the cluster that are not excluded and not before their first work. Isolated nodes count,
    so that the denominator does not shrink. ``isolated_lately``: distinct nodes that the portal isolated within the
    breaker's window. ``holds_slot``: the node has an open rescue or marks. ``serving``: it is Ready and schedulable;
    False under a foreign cordon. ``slots``: those of the cluster's budget; without one, those that its storms have
    taken. ``scoped``: those of the scopes with a budget of their own that the node is in, by their place in the
    settings ("0"). ``hardware``: the fault at hand is a hardware Xid or SXid of the node itself. ``rules``: by
    ``Candidate.name``, for rules with a budget or cooldown.
    """

    cluster: str
    node: str
    eligible: int
    isolated_lately: int
    slots: Slots
    scoped: Mapping[str, Slots] = field(default_factory=dict)
    pool: Pool
    labels: Mapping[str, str] = field(default_factory=dict)
    serving: bool = True
    holds_slot: bool = False
    hardware: bool = False
    symptoms: tuple[Symptom, ...] = ()
    faulty: FaultyNodes = field(default_factory=FaultyNodes)
    past: FaultHistory = field(default_factory=FaultHistory)
    last_rescue_ended_at: datetime | None = None
    maintenance: tuple[Maintenance, ...] = ()
    rules: Mapping[str, RuleFacts] = field(default_factory=dict)

    def is_covered_by(self, window: Maintenance) -> bool:
        """Returns whether the window is for this node. Raises KeyError for a scope that ``covers`` has to tell."""
        if window.covers is not None:
            return window.covers
        names = {"cluster": self.cluster, "pool": self.pool.name, "node": self.node}
        return window.scope == "all" or window.name == names[window.scope]

    def to_json(self) -> dict[str, Any]:
        """The facts as plain JSON, stored with a decision."""
        return {field.name: _plain(getattr(self, field.name)) for field in fields(self)}


def scope_name(kind: str, name: str) -> reasons.Reason:
    """What a maintenance window or a budget covers, as a parameter. ``kind``: one of ``SCOPES``, or label or rule."""
    if kind == "all":
        return reasons.of("scope_all")
    return reasons.of(f"scope_{kind}", name=pool_name(name) if kind == "pool" else name)


def pool_name(name: str) -> reasons.Value:
    """A pool as a parameter; "" is the pool of the nodes without one."""
    return name or reasons.of("pool_unnamed")


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    if is_dataclass(value):
        return {item.name: _plain(getattr(value, item.name)) for item in fields(value)}
    return value
