"""The number of approvals that a request by hand needs, of a person or a program (invariants 11, 44).

In approve mode somebody else approves each act that takes work away. During and after a two-person request about a
node, such acts on it need the same number of approvals. Otherwise one person could cancel the request and act alone.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta

from django.db.models import Q

from kcover import actions, reasons
from kcover.plans import lifecycle, plan
from kcover_portal.fleet.models import Cluster, Node
from kcover_portal.incidents.models import Incident
from kcover_portal.rescue.models import Rescue

# An unanswered two-person question binds its node this long after its faults are closed.
QUESTION_RETENTION = timedelta(days=1)


def needed(node: Node, steps: Sequence[plan.PlannedStep], *, by_person: bool, mode: str, now: datetime) -> int:
    """The number of approvals that the request needs; 0 if it may start at once.

    A person's cordon needs none. A program's plan waits in approve mode even if it only isolates.
    """
    takes_away = any(actions.takes_away(step.name, step.args) for step in steps)
    if not takes_away:
        return int(not by_person and mode == "approve")
    asked = two_person_question(node, now=now)
    return max(asked.approvers if asked else 0, int(is_required(node.cluster, by_person=by_person, mode=mode)))


def is_required(cluster: Cluster, *, by_person: bool, mode: str) -> bool:
    """Returns whether the cluster's settings ask for an approval of a request that takes work away."""
    if not by_person:
        return mode == "approve"
    always = cluster.hand_approval == Cluster.HandApproval.ALWAYS
    return always or (mode == "approve" and cluster.hand_approval == Cluster.HandApproval.MODE)


def two_person_question(node: Node, *, now: datetime) -> Rescue | None:
    """The request about this node that needs the most approvals and did not end in a success; None without one."""
    bound = Q(state__in=lifecycle.OPEN_RESCUE) | Q(closed_at__gt=now - QUESTION_RETENTION)
    bound |= Q(incidents__state=Incident.State.OPEN)
    rows = Rescue.objects.filter(bound, node=node, approvers__gt=1, gate__isnull=False)
    return rows.exclude(state=Rescue.State.SUCCEEDED).order_by("-approvers", "-pk").first()


def is_held_question(rescue: Rescue) -> bool:
    """Returns whether the rescue waits for the approval of two or more people."""
    return rescue.approvers > 1 and rescue.state == Rescue.State.HELD and rescue.hold == Rescue.Hold.APPROVAL


def question_about(incident: Incident) -> Rescue | None:
    """The held two-person question that closing the incident would end; None without one."""
    return next((rescue for rescue in incident.rescues.all() if is_held_question(rescue)), None)


def release_objection(under_way: Rescue | None) -> reasons.Reason | None:
    """The reason why a release must not end the rescue on the node: only approvers may end its request."""
    if under_way is None or not is_held_question(under_way):
        return None
    return reasons.of("question_first", rescue=str(under_way.pk), needed=under_way.approvers)
