"""Warm standbys: which one takes over from a node, and what of the node's role it takes on.

KCE's WarmStandbyPolicy: the first rule that the node meets and that has a free standby decides, and one of its standbys
is taken at random; where no rule finds one, any free standby is. None free: go on without, and say so, never a loop.
"""

import random
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from kcover import reasons
from kcover.policy import document

LABEL = "kcover.io/standby"  # marks a spare; set by operators

Taint = tuple[str, str, str]  # key, value, effect

# What labels and taints with these beginnings say is about the machine, or is somebody's state, and never a role.
_ROLE = "node-role.kubernetes.io/"
_NOT_A_ROLE = (
    "kcover.io/",
    "kubernetes.io/",
    "beta.kubernetes.io/",
    "node.kubernetes.io/",
    "topology.kubernetes.io/",
    "failure-domain.beta.kubernetes.io/",
    "node.cloudprovider.kubernetes.io/",
    "feature.node.kubernetes.io/",
    "nvidia.com/",
    "autopilot.ibm.com/",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Standby:
    """A node that carries ``LABEL``. ``healthy``: no open fault, not isolated. ``promised``: another rescue has it."""

    name: str
    labels: Mapping[str, str]
    ready: bool
    healthy: bool
    promised: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """The standby that takes over; ``rule`` is the place of the rule that found it, None where none did."""

    name: str
    rule: int | None
    because: tuple[reasons.Reason, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shortage:
    """No standby is free; the reasons say why each of them is not."""

    because: tuple[reasons.Reason, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Handover:
    """What to change on the standby so that it does what the node did."""

    labels: Mapping[str, str] = field(default_factory=dict)
    drop_labels: tuple[str, ...] = ()
    add_taints: tuple[Taint, ...] = ()
    drop_taints: tuple[Taint, ...] = ()


def choose(
    rules: Iterable[document.StandbyRule],
    standbys: Iterable[Standby],
    *,
    origin: str,
    labels: Mapping[str, str],
    chance: random.Random,
) -> Chosen | Shortage:
    """The standby for the node ``origin`` with these labels.

    The answer is a fact of the moment: take the row's lock, and ask again under it, before the standby is promised.
    """
    spares = sorted((one for one in standbys if one.name != origin), key=lambda one: one.name)
    busy = [_busy(one) for one in spares]
    free = [one for one, why in zip(spares, busy, strict=True) if why is None]
    for rule in sorted(rules, key=lambda rule: rule.index):
        fitting = [one for one in free if _meets(one.labels, rule.target)] if _meets(labels, rule.origin) else []
        if fitting:
            taken = chance.choice(fitting)
            reason = reasons.of("standby_by_rule", standby=taken.name, rule=str(rule.index + 1), free=len(fitting))
            return Chosen(name=taken.name, rule=rule.index, because=(reason,))
    if free:
        taken = chance.choice(free)
        reason = reasons.of("standby_of_any", standby=taken.name, free=len(free))
        return Chosen(name=taken.name, rule=None, because=(reason,))
    shortage = reasons.of("standby_shortage", standbys=len(spares))
    return Shortage(because=(shortage, *(why for why in busy if why is not None)))


def handover(
    *,
    labels: Mapping[str, str],
    taints: Collection[Taint],
    standby_labels: Mapping[str, str],
    standby_taints: Collection[Taint],
    keys: Collection[str] = (),
    rule: document.StandbyRule | None = None,
    ours: Collection[Taint] = (),
) -> Handover:
    """What of the node's labels and taints goes over to the standby.

    A label goes over if it is a role: ``node-role.kubernetes.io/…``, one of ``keys`` (the cluster's pool label for
    example), or one by which the rule tells nodes to be replaced; one that the rule also asks of the standby stays the
    standby's. Facts of the machine (host name, zone, GPU model) never go over. Taints go over unless Kubernetes or the
    portal put them there (``ours``: what rescues added). The standby stops being one: its label and taint go.
    """
    target = rule.target if rule else {}
    wanted = {*keys, *(rule.origin if rule else {})} - target.keys()
    moved = {
        key: value
        for key, value in labels.items()
        if (key in wanted or key.startswith(_ROLE)) and not key.startswith(_NOT_A_ROLE)
    }
    added = [one for one in taints if not one[0].startswith(_NOT_A_ROLE) and one not in ours]
    return Handover(
        labels={key: value for key, value in sorted(moved.items()) if standby_labels.get(key) != value},
        drop_labels=(LABEL,) if LABEL in standby_labels else (),
        add_taints=tuple(sorted(one for one in added if one not in standby_taints)),
        drop_taints=tuple(sorted(one for one in standby_taints if one[0] == LABEL)),
    )


def _meets(labels: Mapping[str, str], wanted: Mapping[str, str]) -> bool:
    return all(labels.get(key) == value for key, value in wanted.items())


def _busy(standby: Standby) -> reasons.Reason | None:
    """Why a standby is not free."""
    if not standby.ready:
        return reasons.of("standby_not_ready", standby=standby.name)
    if not standby.healthy:
        return reasons.of("standby_unhealthy", standby=standby.name)
    if standby.promised:
        return reasons.of("standby_promised", standby=standby.name)
    return None
