"""DeviceTaintRules of the portal: how one is named and found, and how they are taken back.

A rule is noted in the node's mark before it is created, and the mark goes only after the rule. The node owns the rule,
so Kubernetes deletes it together with the node. A rule is the portal's own if the mark names it, its label says so, and
this machine owns it. The mark alone proves nothing: the kubelet of the node may write it.
"""

import hashlib
import logging
from collections.abc import Collection
from dataclasses import dataclass, field
from functools import partial

from kcover import audit, reasons
from kcover.nodes import marks as core_marks
from kcover_portal.kube import port
from kcover_portal.kube.resource_slices import Device
from kcover_portal.rescue.queries import device_isolations
from kcover_portal.rescue.step.context import Context
from kcover_portal.rescue.step.errors import WriteForbidden

log = logging.getLogger(__name__)


class TaintLeft(WriteForbidden):
    """The node's mark names rules that are not deleted yet. ``rules``: their names."""

    def __init__(self, node: str, devices: Collection[tuple[str, str]]) -> None:
        super().__init__(
            reasons.of("device_taint_left", node=node, devices=", ".join(sorted(device for _, device in devices)))
        )
        self.rules = frozenset(rule for rule, _ in devices)


def name_of(node: port.Node, device: Device, *, effect: str) -> str:
    """The name of the rule: the same for each try, and another one for another machine or effect."""
    parts = (node.uid, device.driver, device.pool, device.name, effect)
    return "kcover-" + hashlib.sha256("\n".join(parts).encode()).hexdigest()[:20]


def served(kube: port.Cluster) -> port.CustomKind | None:
    """The newest version of DeviceTaintRules that the API server has; None if it has none."""
    return next((kind for kind in port.DEVICE_TAINT_RULES if kube.serves(kind)), None)


def named(kube: port.Cluster, kind: port.CustomKind, names: Collection[str]) -> list[port.CustomObject]:
    """The rules with these names, whoever made them."""
    return [one for one in kube.custom_objects(kind) if one.name in names]


@dataclass(slots=True, kw_only=True)
class Withdrawal:
    """The rules that are taken back with a node's mark.

    ``only_own``: the rescue returns the node after another fault, so the rules of other rescues for other GPUs stay in
    the mark. ``kept``: these, each with the rescue that made it. ``foreign``: rules that leave the mark and stay on the
    cluster, because they are not the portal's for this node. ``decided``: all rules that were looked at.
    """

    context: Context
    only_own: bool
    decided: set[str] = field(default_factory=set)
    kept: dict[str, int] = field(default_factory=dict)
    foreign: set[str] = field(default_factory=set)

    def withdraw(self, rules: Collection[str]) -> None:
        """Deletes the node's own rules that are not kept, each with its uid as a precondition.

        Raises AnotherMachine.
        """
        self.decided |= set(rules)
        kind = served(self.context.kube) if rules else None
        found = named(self.context.kube, kind, rules) if kind is not None else ()
        if not found:
            return
        others = device_isolations.of_others(self.context.rescue, rules) if self.only_own else {}
        node = self.context.kube.get_node(self.context.node.name)
        self.context.check_machine(node)
        for rule in found:
            if not is_own(rule, node):
                log.warning("%s: DeviceTaintRule %s in its mark is not its own and stays", node.name, rule.name)
                self.foreign.add(rule.name)
            elif rule.name in others:
                self.kept[rule.name] = others[rule.name]
            else:
                _delete(self.context, rule)

    def check(self, node: port.Node, marks: core_marks.Marks) -> None:
        """Raises TaintLeft if the mark names rules that nothing was decided about."""
        left = [pair for pair in marks.devices if pair[0] not in self.decided]
        if left:
            raise TaintLeft(node.name, left)

    def remaining(self, marks: core_marks.Marks) -> core_marks.Marks | None:
        """What stays of the mark: the rules that are kept, in the name of the last rescue that made one of them."""
        devices = tuple(pair for pair in marks.devices if pair[0] in self.kept)
        return (
            core_marks.Marks(rescue=max(self.kept[rule] for rule, _ in devices), devices=devices) if devices else None
        )

    @property
    def left_alone(self) -> reasons.Reason | None:
        """The reason that names rules of others in the mark; None if there are none."""
        return reasons.of("device_rules_foreign", rules=", ".join(sorted(self.foreign))) if self.foreign else None


def is_own(rule: port.CustomObject, node: port.Node) -> bool:
    """Returns whether the portal made the rule for this machine. A node can write neither its label nor its owner."""
    return rule.managed and node.uid in rule.owner_uids


def _delete(context: Context, rule: port.CustomObject) -> None:
    context.write(
        audit.Call.UNTAINT_DEVICE,
        partial(context.kube.delete_object, rule.kind, "", rule.name, uid=rule.uid),
        target=f"DeviceTaintRule {rule.name}",
        wanted=audit.DeviceTaint(rule=rule.name, uid=rule.uid),
    )
