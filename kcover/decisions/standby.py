"""Warm standbys: choose the standby that replaces a node, and what it takes over of the node's role.

KCE's WarmStandbyPolicy: the first rule that the node meets and that has a free standby decides; one of its standbys is
chosen at random. If no rule finds one, any free standby is chosen. If none is free, the rescue continues without one.
"""

import json
import random
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from kcover import reasons
from kcover.nodes import node_stage
from kcover.policy import document
from kcover.values import kube_names

LABEL = node_stage.STANDBY_LABEL
PROOF = "node-restriction.kubernetes.io/standby"  # a label that no kubelet may set (NodeRestriction)
ANNOTATION = (
    "kcover.io/standing-in"  # what the portal changed on it; separate from a rescue's mark, because it may carry both
)
RESERVED = node_stage.Stage.RESERVED.value  # its state label from the reservation until it enters service

Taint = tuple[str, str, str]  # key, value, effect

# Labels and taints with these prefixes describe the machine or somebody's state, never a role.
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
    """A node that carries ``LABEL``. ``healthy``: no open fault, not isolated. ``promised``: another rescue has it.

    ``proven``: it has no readiness taint, so it is not before its first work. ``tested``: it passed its last pair
    tests, where the cluster asks for them. ``doubt``: see ``doubt_of``.
    """

    name: str
    labels: Mapping[str, str]
    ready: bool
    healthy: bool
    promised: bool
    on_probation: bool = False
    proven: bool = True
    tested: bool = True
    doubt: reasons.Reason | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenStandby:
    """The chosen standby. ``rule``: the index of the rule that selected it, None if no rule did."""

    name: str
    rule: int | None
    because: tuple[reasons.Reason, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shortage:
    """No standby is free. The reasons say why, for each of them."""

    because: tuple[reasons.Reason, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Handover:
    """The changes that give the standby the node's role."""

    labels: Mapping[str, str] = field(default_factory=dict)
    drop_labels: tuple[str, ...] = ()
    add_taints: tuple[Taint, ...] = ()
    drop_taints: tuple[Taint, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class StandbyMark:
    """The portal's changes to a standby, stored on the standby, so that exactly these can be reverted.

    ``before``, ``after``: the old and the new value of each label that was set or removed (None: absent). ``added``,
    ``dropped``: taints. ``active`` False: it is only reserved.
    """

    assignment: int
    rescue: int
    origin: str
    active: bool = False
    uncordoned: bool = False
    before: Mapping[str, str | None] = field(default_factory=dict)
    after: Mapping[str, str | None] = field(default_factory=dict)
    added: tuple[Taint, ...] = ()
    dropped: tuple[Taint, ...] = ()

    def proved(self, known: Sequence["StandbyMark"]) -> "StandbyMark":
        """Those of these changes that the portal's own records state. The standby's kubelet may write the annotation.

        The values are those of the records. The state label, which a kubelet may set by itself, needs none.
        """
        stated = {key: (row.before.get(key), row.after[key]) for row in known for key in row.after}
        if node_stage.STATE_LABEL in self.after:
            state = (self.before.get(node_stage.STATE_LABEL), self.after[node_stage.STATE_LABEL])
            stated.setdefault(node_stage.STATE_LABEL, state)
        keys = [key for key in self.after if key in stated and not kube_names.is_fixed_label(key)]
        return replace(
            self,
            active=self.active and any(row.active for row in known),
            uncordoned=self.uncordoned and any(row.uncordoned for row in known),
            before={key: stated[key][0] for key in keys},
            after={key: stated[key][1] for key in keys},
            added=tuple(one for one in self.added if any(one in row.added for row in known)),
            dropped=tuple(one for one in self.dropped if any(one in row.dropped for row in known)),
        )

    def to_json(self) -> dict[str, Any]:
        """The content of the annotation and of the database row."""
        return {
            "assignment": self.assignment,
            "rescue": self.rescue,
            "origin": self.origin,
            "active": self.active,
            "before": {
                "unschedulable": self.uncordoned,
                "labels": dict(self.before),
                "taints": [list(taint) for taint in self.dropped],
            },
            "after": {"labels": dict(self.after), "taints": [list(taint) for taint in self.added]},
        }

    def render(self) -> str:
        """The annotation's text."""
        return json.dumps(self.to_json(), sort_keys=True, separators=(",", ":"))


def read_mark(text: str) -> StandbyMark | None:
    """Parse an annotation. None for anything that the portal did not write."""
    try:
        return mark_of(json.loads(text))
    except (ValueError, RecursionError):
        return None


def mark_of(content: Any) -> StandbyMark | None:
    """The mark from the result of ``to_json``; None for anything else."""
    try:
        before, after = content["before"], content["after"]
        return StandbyMark(
            assignment=int(content["assignment"]),
            rescue=int(content["rescue"]),
            origin=str(content["origin"]),
            active=content["active"] is True,
            uncordoned=before["unschedulable"] is True,
            before=_labels(before["labels"]),
            after=_labels(after["labels"]),
            added=_taints(after["taints"]),
            dropped=_taints(before["taints"]),
        )
    except (KeyError, TypeError, ValueError, AttributeError):
        return None


def choose(
    rules: Iterable[document.StandbyRule],
    standbys: Iterable[Standby],
    *,
    origin: str,
    labels: Mapping[str, str],
    chance: random.Random,
) -> ChosenStandby | Shortage:
    """Choose the standby for the node ``origin`` with these labels.

    The answer may be outdated at once: lock the standby's row and ask again before reserving it.
    """
    spares = sorted((standby for standby in standbys if standby.name != origin), key=lambda standby: standby.name)
    busy = [why_busy(standby) for standby in spares]
    free = [standby for standby, why in zip(spares, busy, strict=True) if why is None]
    for rule in sorted(rules, key=lambda rule: rule.index):
        fitting = (
            [standby for standby in free if _meets(standby.labels, rule.target)] if _meets(labels, rule.origin) else []
        )
        if fitting:
            taken = chance.choice(fitting)
            reason = reasons.of("standby_by_rule", standby=taken.name, rule=str(rule.index + 1), free=len(fitting))
            return ChosenStandby(name=taken.name, rule=rule.index, because=(reason,))
    if free:
        taken = chance.choice(free)
        reason = reasons.of("standby_of_any", standby=taken.name, free=len(free))
        return ChosenStandby(name=taken.name, rule=None, because=(reason,))
    shortage = reasons.of("standby_shortage", standbys=len(spares))
    return Shortage(because=(shortage, *(why for why in busy if why is not None)))


def rule_met(
    rules: Iterable[document.StandbyRule], *, labels: Mapping[str, str], standby_labels: Mapping[str, str]
) -> document.StandbyRule | None:
    """The first rule by which the standby may replace a node with these labels."""
    in_order = sorted(rules, key=lambda rule: rule.index)
    return next((met for met in in_order if _meets(labels, met.origin) and _meets(standby_labels, met.target)), None)


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
    """The labels and taints of the node that move to the standby.

    A label moves if it is a role: ``node-role.kubernetes.io/…``, one of ``keys`` (such as the pool label), or a label
    by which the rule selects nodes. A label that the rule also requires of the standby stays as it is. Facts about the
    machine (host name, zone, GPU model) and the roles of the control plane never move. Taints move unless Kubernetes or
    the portal added them (``ours``: those of rescues), or the standby has one with that key and effect. The standby's
    own label and taint are removed.
    """
    target = rule.target if rule else {}
    wanted = {*keys, *(rule.origin if rule else {})} - target.keys()
    moved = {
        key: value
        for key, value in labels.items()
        if (key in wanted or key.startswith(kube_names.ROLE_PREFIX))
        and _is_of_a_role(key)
        and not kube_names.is_fixed_label(key)
    }
    kept = {(key, effect) for key, _, effect in standby_taints}
    added = [
        taint for taint in taints if _is_of_a_role(taint[0]) and taint not in ours and (taint[0], taint[2]) not in kept
    ]
    return Handover(
        labels={key: value for key, value in sorted(moved.items()) if standby_labels.get(key) != value},
        drop_labels=(LABEL,) if LABEL in standby_labels else (),
        add_taints=tuple(sorted(added)),
        drop_taints=tuple(sorted(taint for taint in standby_taints if taint[0] == LABEL)),
    )


def _is_of_a_role(key: str) -> bool:
    return not key.startswith(_NOT_A_ROLE) and key not in kube_names.CONTROL_PLANE


def _meets(labels: Mapping[str, str], wanted: Mapping[str, str]) -> bool:
    return all(labels.get(key) == value for key, value in wanted.items())


def doubt_of(
    name: str, *, labels: Mapping[str, str], taint_keys: Collection[str], unschedulable: bool
) -> reasons.Reason | None:
    """The reason why the node may not be a standby, or not an empty one, by an administrator's will; None if it is.

    A kubelet can set ``LABEL`` on its own node, but not ``PROOF`` and no taint. A cordon is lifted only from a node
    with ``PROOF``: the taint keeps a standby empty by itself, so a cordon beside it has another cause.
    """
    if labels.get(PROOF) == "true":
        return None
    if LABEL not in taint_keys:
        return reasons.of("standby_unproved", standby=name, label=f"{PROOF}=true", taint=LABEL)
    return reasons.of("standby_cordoned", standby=name, label=f"{PROOF}=true") if unschedulable else None


def why_busy(standby: Standby) -> reasons.Reason | None:
    """The reason why a standby is not free; None if it is."""
    if standby.doubt is not None:
        return standby.doubt
    if not standby.ready:
        return reasons.of("standby_not_ready", standby=standby.name)
    if not standby.healthy:
        return reasons.of("standby_unhealthy", standby=standby.name)
    if not standby.proven:
        return reasons.of("node_before_first_work", node=standby.name)
    if standby.on_probation:
        return reasons.of("node_on_probation", node=standby.name)
    if not standby.tested:
        return reasons.of("standby_untested", standby=standby.name)
    if standby.promised:
        return reasons.of("standby_promised", standby=standby.name)
    return None


def _labels(content: Mapping[Any, Any]) -> dict[str, str | None]:
    return {str(key): None if value is None else str(value) for key, value in content.items()}


def _taints(content: Iterable[Iterable[Any]]) -> tuple[Taint, ...]:
    return tuple((str(key), str(value), str(effect)) for key, value, effect in content)
