"""An act on several nodes: each is requested by itself, and a node that is refused does not stop the others.

There is no transaction around them, because the audit log must be the last lock of each.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from kcover import reasons
from kcover_portal.accounts import queries as accounts
from kcover_portal.accounts.models import Role, User
from kcover_portal.fleet.models import Node
from kcover_portal.rescue.control import requests
from kcover_portal.rescue.lifecycle.create import RescueRefused
from kcover_portal.rescue.models import Rescue
from kcover_portal.rescue.queries import blocking_budgets

MAX_NODES_AT_ONCE: Final = 100  # each is looked up in its cluster


@dataclass(frozen=True, slots=True)
class NodePreview:
    """What the act would do to a node. ``plan``: None if the caller may not act on the node."""

    node: Node
    held_back: list[reasons.Reason]
    plan: requests.Preview | None = None


@dataclass(frozen=True, slots=True)
class NodeResult:
    """The rescue of a node, or why there is none."""

    node: Node
    rescue: Rescue | None = None
    because: reasons.Reason | None = None


def preview_nodes(nodes: Iterable[Node], verb: str, *, who: accounts.Principal, now: datetime) -> list[NodePreview]:
    """The dry run of ``request_nodes``: writes nothing.

    Queries the cluster once per node if pods are evicted, and once for its disruption budgets.
    """
    found = []
    budgets = blocking_budgets.Budgets()
    for node in nodes:
        right = requests.right_for(verb)
        if not accounts.may(who, right, node):
            found.append(NodePreview(node, [lacking(right)]))
            continue
        plan = requests.preview(node, verb, now=now, by_person=isinstance(who, User), budgets=budgets)
        found.append(NodePreview(node, plan.held_back, plan))
    return found


def request_nodes(
    nodes: Iterable[Node], verb: str, *, who: accounts.Principal, reason: str, key: str | None, now: datetime
) -> list[NodeResult]:
    """Requests one rescue per node, each under the same guards as ``request``.

    ``key``: of the act; if it comes again, a node keeps the rescue that it got. None: each call is another act.
    """
    kind = Rescue.Requester.PERSON if isinstance(who, User) else Rescue.Requester.TOKEN
    results = []
    for node in nodes:
        try:
            right = requests.right_for(verb)
            if not accounts.may(who, right, node):
                raise RescueRefused(lacking(right))
            rescue = requests.request(
                node,
                verb,
                actor=accounts.actor(who),
                person=accounts.person(who),
                requester=kind.value,
                reason=reason,
                now=now,
                key=None if key is None else f"{key} {node.pk}",
            )
        except RescueRefused as error:
            results.append(NodeResult(node, because=error.reason))
        else:
            results.append(NodeResult(node, rescue))
    return results


def lacking(needed: str) -> reasons.Reason:
    """The reason that the caller lacks a right on a row."""
    return reasons.of("role_needed", role=str(Role(accounts.role_with(needed)).label))
