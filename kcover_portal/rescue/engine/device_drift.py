"""Devices that a rescue left isolated, and whose DeviceTaintRule somebody has deleted since.

Such a device takes work again although nobody proved it healthy. A person decides: the rule is not made again, because
whoever deleted it may have had a reason.
"""

import logging
from collections.abc import Sequence
from datetime import datetime
from typing import Final

from django.db import transaction

from kcover import audit, reasons
from kcover.actions import quarantine_device
from kcover.nodes import marks as core_marks
from kcover.plans import lifecycle
from kcover_portal.config import log_context
from kcover_portal.fleet import queries as fleet
from kcover_portal.fleet.models import Cluster, Node
from kcover_portal.kube import port
from kcover_portal.ledger import services as ledger
from kcover_portal.rescue import queries
from kcover_portal.rescue.models import Rescue, Step
from kcover_portal.rescue.step.devices import device_rules

log = logging.getLogger(__name__)

CODE: Final = "device_rule_gone"
MAX_RESCUES: Final = 1000  # in one round

Pair = tuple[str, str]  # a rule and its device


def look(*, now: datetime) -> None:
    """Notes each closed rescue whose node's mark names a rule that the cluster no longer has.

    A rescue that is noted already is left out. The rows are read before the rules, so a rule that is made meanwhile is
    not missed. Clusters that do not answer or are paused are left for a later round.
    """
    rows = Rescue.objects.filter(marks__changed__devices__isnull=False, state__in=lifecycle.CLOSED_RESCUE)
    found = rows.filter(node__in_cluster=True).select_related("node__cluster").order_by("pk")[:MAX_RESCUES]
    by_cluster: dict[Cluster, list[Rescue]] = {}
    for rescue in found:
        if not reasons.says(rescue.why, CODE):
            by_cluster.setdefault(rescue.node.cluster, []).append(rescue)
    for cluster, rescues in by_cluster.items():
        if fleet.mode_of(cluster)[0] in fleet.MODES_WITHOUT_WRITES:
            continue
        with log_context.bound(cluster=cluster.name):
            _look_in(cluster, rescues, now=now)


def _look_in(cluster: Cluster, rescues: Sequence[Rescue], *, now: datetime) -> None:
    try:
        kube = fleet.connect(cluster)
        kind = device_rules.served(kube)
        present = {one.name for one in kube.custom_objects(kind)} if kind is not None else set()
    except port.KubeError as error:
        log.info("%s: rules of devices were not checked: %s", cluster.name, error)
        return
    for rescue in rescues:
        gone = _gone(rescue, present)
        if gone:
            _note(rescue, gone, now=now)


def _gone(rescue: Rescue, present: set[str]) -> list[Pair]:
    """The devices of the rescue's marks that were isolated and are not any more."""
    marks = core_marks.read(rescue.marks)
    missing = [pair for pair in marks.devices if pair[0] not in present] if marks is not None else []
    if not missing:
        return []
    steps = Step.objects.filter(rescue__node=rescue.node, name=quarantine_device.SPEC.name, state=Step.State.DONE)
    isolated = steps.filter(
        progress__isolated=quarantine_device.DEVICE, progress__rule__in=[rule for rule, _ in missing]
    )
    made = set(isolated.values_list("progress__rule", flat=True))
    return [pair for pair in missing if pair[0] in made]


@transaction.atomic
def _note(rescue: Rescue, gone: Sequence[Pair], *, now: datetime) -> None:
    """Leaves the rescue to a person, unless a rescue of its node has changed something meanwhile."""
    node = Node.objects.select_for_update(of=("self",), no_key=True).select_related("cluster").get(pk=rescue.node_id)
    if queries.open_on(node) is not None:
        return
    names = {"rules": ", ".join(rule for rule, _ in gone), "devices": ", ".join(device for _, device in gone)}
    because = reasons.of(CODE, node=node.name, **names)
    same = Rescue.objects.filter(pk=rescue.pk, marks=rescue.marks, state=rescue.state)
    if same.update(needs_human=True, because=because.to_json()):
        act = audit.DeviceRuleGone(rescue=rescue.pk, node=node.name, because=because)
        ledger.record(node.cluster.name, act, actor="system", now=now)
