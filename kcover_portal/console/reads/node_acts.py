"""The acts that apply to a node as it is now. Only what is shown: the server judges each act when it is requested."""

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any

from kcover import actions
from kcover.decisions import guards
from kcover.plans import lifecycle
from kcover_portal.accounts import queries as accounts
from kcover_portal.accounts.models import User
from kcover_portal.console import presentation
from kcover_portal.console.reads.bulk_actions import NODE_VERBS
from kcover_portal.fleet import queries as fleet
from kcover_portal.fleet.models import Node
from kcover_portal.incidents.models import Incident
from kcover_portal.rescue.control import requests
from kcover_portal.rescue.models import Rescue
from kcover_portal.rescue.queries import headroom, needs_person, standbys


def offered_to(
    user: User, node: Node, under_way: Rescue | None, open_incidents: Collection[Incident], *, now: datetime
) -> Sequence[str]:
    """``offered``, of which the person may use."""
    acts = offered(node, under_way, open_incidents, now=now)
    return [verb for verb in acts if accounts.may(user, requests.right_for(verb), node)]


def offered(
    node: Node, under_way: Rescue | None, open_incidents: Collection[Incident], *, now: datetime
) -> Sequence[str]:
    """The acts of ``NODE_VERBS`` that change something on the node, in that order.

    An act that only a guard, a pause, an exclusion or a held rescue holds back is offered: its dialog says what is in
    the way. So is a cordon during a rescue, until the node is cordoned. A node that the cluster does not list has no
    act. While the cluster is out of reach, the state of the node is in doubt, and every act is offered.
    """
    if fleet.out_of_reach(node.cluster, now=now):
        return NODE_VERBS
    if not node.in_cluster:
        return ()
    is_at_work = under_way is not None and under_way.state != Rescue.State.HELD
    excluded = node.labels.get(guards.EXCLUDE_LABEL) == "true"
    applies = {
        "cordon": not node.unschedulable,
        "uncordon": node.unschedulable or bool(node.marks) or node.not_ready_since is not None,
        "drain": not is_at_work,
        "reboot": not is_at_work,
        "offline": not is_at_work,
        "release": under_way is not None or _has_something_to_release(node, open_incidents),
        "exclude": not excluded,
        "end_exclusion": excluded,
    }
    return [verb for verb in NODE_VERBS if applies[verb]]


def rooms(node: Node, plan: requests.Preview, *, now: datetime) -> list[tuple[Any, int, int]]:
    """The limits that an isolation of the node uses up: the guard, how many nodes it allows now, and afterwards."""
    if not any(actions.ACTIONS[step["name"]].isolates for step in plan.steps):
        return []
    found = headroom.around_isolation(node, now=now)
    return [(presentation.GUARDS[guard].label, *room) for guard, room in found.items()]


def _has_something_to_release(node: Node, open_incidents: Collection[Incident]) -> bool:
    """Returns whether the portal left something on the node, or leaves its faults to people until it is released."""
    if node.marks or node.not_ready_since is not None or node.probation_until is not None:
        return True
    closed = Rescue.objects.filter(node=node, state__in=lifecycle.CLOSED_RESCUE).order_by("-pk")
    if closed.exclude(marks={}).exists() or standbys.standing_in(node) is not None:
        return True
    past = list(closed[:1])
    return any(needs_person.blocking_rescue(past, incident) is not None for incident in open_incidents)
