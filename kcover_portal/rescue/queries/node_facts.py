"""The facts about one node that a decision depends on."""

from datetime import datetime

from kcover import actions
from kcover.decisions import decide, guards
from kcover.nodes import marks as core_marks
from kcover.plans import lifecycle
from kcover_portal.fleet.models import Agent, Node
from kcover_portal.fleet.queries import boots
from kcover_portal.incidents.models import Incident
from kcover_portal.rescue.models import Rescue
from kcover_portal.rescue.queries import device_isolations, gpu_names, needs_person
from kcover_portal.rescue.queries.past_rescues import PastRescues


def node_facts(
    node: Node, incident: Incident, past: PastRescues, *, settings: guards.Settings, now: datetime
) -> decide.NodeFacts:
    """The node and its past rescues, as far as they matter for the incident."""
    rescues, ladder = past.of(node), settings.ladder
    open_rescue = next((rescue for rescue in rescues if rescue.state in lifecycle.OPEN_RESCUE), None)
    marked = next((rescue for rescue in rescues if rescue.marks), None)
    left = marked if marked and marked is not open_rescue else None
    people = needs_person.blocking_rescue(rescues, incident)
    mending, reboots = actions.names(lambda spec: spec.mends), actions.names(lambda spec: spec.ends_boot)
    code = f"{incident.kind} {incident.code}"
    return decide.NodeFacts(
        name=node.name,
        known=node.in_cluster,
        gpus=node.gpus,
        labels=node.labels,
        open_rescue=open_rescue.pk if open_rescue else None,
        left_to_people=people.pk if people else None,
        isolated_by=left.pk if left else None,
        isolated_plan=left.plan_hash if left and _covers(left, node, incident) else "",
        rebooted_since=_rebooted_since(node, incident),
        unshown_boot=_unshown_boot(node, incident),
        on_probation=node.probation_until is not None,
        recent_rescues=past.repairs(node, mending, since=now - settings.repeats.window),
        reboots_for_code=past.repairs(node, reboots, since=now - ladder.window, code=code)
        if ladder.reboots is not None
        else 0,
    )


def _covers(left: Rescue, node: Node, incident: Incident) -> bool:
    """Returns whether the fault is in what the rescue isolated: the whole node, or single GPUs."""
    marks = core_marks.read(left.marks)
    if marks is None or not marks.devices or marks.cordon or marks.foreign_cordon or marks.taints:
        return True
    slots = gpu_names.slots_of(node)
    gpu = gpu_names.of_fault(incident, slots)
    rules = [rule for rule, _ in marks.devices]
    isolated = {gpu_names.key(made.gpu, slots) for _, made in device_isolations.by_rules(node, rules)}
    return gpu is not None and gpu_names.key(gpu, slots) in isolated


def _rebooted_since(node: Node, incident: Incident) -> bool:
    """Returns whether the boot of the fault is over, and nothing was seen in the present one (invariant 15).

    The watch tells: it showed that boot before the present one, which also covers faults that an agent kept for hours.
    The node's agent tells too, because the fault carries the agent's boot ID. Its later reports count only for faults
    that were decided before and held back: an agent delivers what it kept before it reports its present boot.
    """
    if not incident.boot_id:
        return False
    # An agent's silence carries the boot ID of its last report, but it is the silence of the present boot.
    if incident.boot_id in node.past_boots and incident.kind != "agent":
        return not incident.occurrences.filter(boot_id=node.boot_id).exists() and not _is_unclear(node, incident)
    if incident.decided_at is None:
        return False
    later = Agent.objects.filter(node=node, boot_seen_at__gt=incident.last_at).exclude(boot_id=incident.boot_id)
    return later.exists()


def _is_unclear(node: Node, incident: Incident) -> bool:
    """Returns whether the fault happened while the portal was away, and the present boot may have begun before it."""
    if incident.boot_id not in node.past_boots:
        return False
    present = next(iter(boots.boots_of(node).boots), None)
    if present is None or present.since is None or present.after is None:
        return False
    seen = incident.occurrences.filter(earliest_at__gte=present.after, earliest_at__lt=present.since)
    return seen.exists() and not incident.occurrences.filter(boot_id=node.boot_id).exists()


def _unshown_boot(node: Node, incident: Incident) -> str:
    """The boot of the fault, if it is unknown whether that boot has ended (invariant 15); else "".

    Nobody looked when a boot began, and the fault happened meanwhile, by its own time: a person decides. Else the watch
    shows another boot and never showed this one. The agent may be ahead of the watch, or deliver a fault of a
    boot that began and ended unseen. The next update of the watch or of the agent decides (``_rebooted_since``).
    """
    if _is_unclear(node, incident):
        return incident.boot_id
    known = ("", node.boot_id, *node.past_boots)
    # An agent's silence is the silence of the present boot, whatever it reported last.
    if not node.boot_id or incident.boot_id in known or incident.kind == "agent":
        return ""
    return "" if incident.occurrences.filter(boot_id=node.boot_id).exists() else incident.boot_id
