"""Bulk actions: the preview and the result of each row."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models import QuerySet
from django.urls import reverse
from django.utils.translation import gettext as _

from kcover.plans import plan
from kcover_portal.accounts import queries as accounts
from kcover_portal.accounts.models import User, Verb
from kcover_portal.console import action_labels, presentation
from kcover_portal.console.reads import rescues as reads
from kcover_portal.fleet.models import Node
from kcover_portal.lib import localization
from kcover_portal.rescue import services
from kcover_portal.rescue.models import Rescue
from kcover_portal.rescue.queries import needs_person

NODE_VERBS = plan.VERBS
RESCUE_VERBS: dict[str, tuple[Callable[..., Rescue], Verb]] = {
    "approve": (services.approve, Verb.APPROVE),
    "reject": (services.reject, Verb.APPROVE),
    "cancel": (services.cancel, Verb.REPAIR),
}


@dataclass(frozen=True, slots=True)
class BulkTarget:
    """A chosen row. ``key`` identifies it as it was seen: a rescue with its plan. ``refusals``: why it is left out.

    ``pods``: how many are evicted, None if the act evicts none. ``budgets``: the disruption budgets that block one.
    """

    key: str
    name: str
    cluster: str
    page: str
    text: str
    refusals: Sequence[str] = ()
    pods: int | None = None
    budgets: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class BulkResult:
    """The result of one row: its rescue, or why it was refused."""

    name: str
    page: str
    text: str
    refused: bool


@dataclass(frozen=True, slots=True)
class BulkAction:
    """An action on many rows of one list: how they are read, previewed (which writes nothing) and acted on.

    ``act`` gets the rows as they were seen (key and, for a rescue, plan) and ``once``, the key that makes the action
    idempotent.
    """

    verbs: Collection[str]
    read: Callable[[QuerySet[Any]], QuerySet[Any]]
    preview: Callable[..., list[BulkTarget]]
    act: Callable[..., list[BulkResult]]


def _preview_nodes(nodes: Iterable[Node], verb: str, *, user: User, now: datetime) -> list[BulkTarget]:
    """The effect of the action on each node; writes nothing. Queries the cluster once per node if pods are evicted."""
    return [
        BulkTarget(
            str(hit.node.pk),
            hit.node.name,
            hit.node.cluster.name,
            reverse("console:node", args=(hit.node.cluster.name, hit.node.name)),
            "",
            [localization.say(reason) for reason in hit.held_back],
            None if hit.plan is None or hit.plan.pods is None else len(hit.plan.pods),
            (hit.plan.budgets if hit.plan else None) or (),
        )
        for hit in services.preview_nodes(nodes, verb, who=user, now=now)
    ]


def _act_on_nodes(
    nodes: Iterable[Node], verb: str, *, user: User, reason: str, seen: Mapping[str, str], once: str, now: datetime
) -> list[BulkResult]:
    """Request one rescue per node; idempotent for the same ``once``."""
    answers = []
    for got in services.request_nodes(nodes, verb, who=user, reason=reason, key=f"console {user.pk} {once}", now=now):
        node = got.node
        if got.because is not None:
            page = reverse("console:node", args=(node.cluster.name, node.name))
            answers.append(BulkResult(node.name, page, localization.say(got.because), refused=True))
        elif got.rescue is not None:
            text = _("%(act)s requested: rescue %(number)d") % {
                "act": action_labels.verb(verb).label,
                "number": got.rescue.pk,
            }
            page = reverse("console:rescue", args=(got.rescue.pk,))
            answers.append(BulkResult(node.name, page, text, refused=False))
    return answers


def _preview_rescues(rescues: Iterable[Rescue], verb: str, *, user: User, now: datetime) -> list[BulkTarget]:
    """For which rescues the action is possible; ``text`` is the plan."""
    needed = RESCUE_VERBS[verb][1]
    found = []
    for rescue in rescues:
        steps = list(rescue.steps.all())
        refusals: list[str] = []
        if not accounts.may(user, needed, rescue.node):
            refusals.append(localization.say(services.lacking(needed)))
        elif verb not in reads.offered(rescue, steps):
            state = presentation.of("rescue", needs_person.status_of(rescue)).label
            refusals.append(_("not possible in state: %(state)s") % {"state": state})
        found.append(
            BulkTarget(
                f"{rescue.pk}:{rescue.plan_hash}",
                f"#{rescue.pk} {rescue.node.name}",
                rescue.cluster.name,
                reverse("console:rescue", args=(rescue.pk,)),
                " → ".join(str(reads.title(step)) for step in steps),
                refusals,
            )
        )
    return found


def _act_on_rescues(
    rescues: Iterable[Rescue], verb: str, *, user: User, reason: str, seen: Mapping[str, str], once: str, now: datetime
) -> list[BulkResult]:
    """Apply the action to each rescue for the plan that was shown; repeating it is refused by the service."""
    say, needed = RESCUE_VERBS[verb]
    answers = []
    for rescue in rescues:
        page = reverse("console:rescue", args=(rescue.pk,))
        name = f"#{rescue.pk} {rescue.node.name}"
        try:
            if not accounts.may(user, needed, rescue.node):
                raise services.RescueRefused(services.lacking(needed))
            more = (
                {"approver": accounts.may(user, Verb.APPROVE, rescue.node)} if verb == "cancel" else {"via": "console"}
            )
            say(rescue, actor=accounts.actor(user), reason=reason, now=now, plan_hash=seen[str(rescue.pk)], **more)
        except services.RescueRefused as error:
            answers.append(BulkResult(name, page, localization.say(error.reason), refused=True))
        else:
            answers.append(BulkResult(name, page, str(presentation.of("rescue", rescue.state).label), refused=False))
    return answers


KINDS = {
    "nodes": BulkAction(
        NODE_VERBS,
        lambda rows: rows.select_related("cluster").order_by("cluster__name", "name"),
        _preview_nodes,
        _act_on_nodes,
    ),
    "rescues": BulkAction(
        RESCUE_VERBS,
        lambda rows: rows.select_related("node", "cluster").prefetch_related("steps", "approvals").order_by("pk"),
        _preview_rescues,
        _act_on_rescues,
    ),
}
