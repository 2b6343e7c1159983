"""The steps that isolated single devices of a node, and the GPUs that stay isolated when the node returns."""

from collections.abc import Collection, Mapping

from django.db.models import QuerySet

from kcover.actions import quarantine_device
from kcover.nodes import marks as core_marks
from kcover_portal.fleet.models import Node
from kcover_portal.incidents.models import Incident
from kcover_portal.rescue.models import Rescue, Step
from kcover_portal.rescue.queries import gpu_names


def by_rules(node: Node, rules: Collection[str]) -> list[tuple[int, quarantine_device.Progress]]:
    """What the steps that made these DeviceTaintRules did, each with the key of its rescue, oldest first. One query."""
    steps = Step.objects.filter(rescue__node=node, name=quarantine_device.SPEC.name, progress__rule__in=list(rules))
    ordered = steps.order_by("rescue_id", "index")
    return [(step.rescue_id, step.progress_as(quarantine_device.Progress)) for step in ordered]


def noted(rescue: Rescue) -> frozenset[str]:
    """The rules that the rows of the rescue and of its node know of. The live node may name others."""
    rows = (core_marks.read(rescue.marks), core_marks.read(rescue.node.marks))
    return frozenset(rule for marks in rows if marks is not None for rule, _ in marks.devices)


def keeps_others(rescue: Rescue) -> bool:
    """Returns whether the node's return leaves the rules of other rescues: it does unless a person asked for it."""
    return rescue.origin != Rescue.Origin.MANUAL


def of_others(rescue: Rescue, rules: Collection[str]) -> dict[str, int]:
    """The rules among these that other rescues of the node made for other GPUs, each with its last rescue.

    A rule that no row knows counts as one of these: its GPU is not proved healthy.
    """
    found = dict.fromkeys(rules, rescue.pk)
    own: set[str] = set()
    for maker, made in by_rules(rescue.node, rules):
        found[made.rule] = maker
        if maker == rescue.pk or _is_cause(rescue, made.gpu):
            own.add(made.rule)
    return {rule: maker for rule, maker in found.items() if rule not in own}


def answered(rescue: Rescue, faults: QuerySet[Incident]) -> QuerySet[Incident]:
    """The faults of the rescue's node that its verification answers.

    What may be a fault of a GPU that stays isolated is left out: a healthy node proves nothing about it.
    """
    rules = noted(rescue) if keeps_others(rescue) else frozenset()
    others = of_others(rescue, rules) if rules else {}
    if not others:
        return faults
    slots = gpu_names.slots_of(rescue.node)
    isolated = [made.gpu for _, made in by_rules(rescue.node, others)]
    left = [one.pk for one in faults if any(gpu_names.may_be_on(one, gpu, slots) for gpu in isolated)]
    return faults.exclude(pk__in=left)


def _is_cause(rescue: Rescue, gpu: Mapping[str, str]) -> bool:
    """Returns whether the fault for which the rescue was opened, open or not, names this GPU."""
    fault = rescue.decision.incident if rescue.decision is not None else None
    slots = gpu_names.slots_of(rescue.node)
    cause = gpu_names.of_fault(fault, slots) if fault is not None else None
    return cause is not None and gpu_names.key(cause, slots) == gpu_names.key(gpu, slots)
