"""Reading channels, routes and deliveries."""

from collections.abc import Sequence
from datetime import datetime

from django.db.models import Count, Exists, Min, OuterRef, Q, QuerySet

from kcover import notices
from kcover.policy import document
from kcover_portal.notify.models import Channel, Delivery, Notice, Route
from kcover_portal.policies import queries as policies
from kcover_portal.rescue.models import Step

AT_ONE_TIME = 2  # sends under way: a receiver that hangs must not take the workers from the rescues


def channels() -> QuerySet[Channel]:
    """All channels by name, with the person that each belongs to."""
    return Channel.objects.select_related("person").prefetch_related("routes__cluster").order_by("name")


def pagers() -> list[Channel]:
    """All pagers: they are told of what ends whether or not a route still asks for it.

    Of one that is switched off the ends are noted and dropped, so that what is over holds no shared page open.
    """
    return list(Channel.objects.filter(kind__in=Channel.PAGERS))


def channel_names() -> frozenset[str]:
    """The names that a rule's ``notify`` may use."""
    return frozenset(Channel.objects.values_list("name", flat=True))


def routes() -> list[tuple[Route, notices.Route]]:
    """Every route to a channel that is switched on, as its row and as the kernel weighs it."""
    rows = Route.objects.filter(channel__enabled=True).select_related("channel", "cluster")
    return [(row, as_kernel(row)) for row in rows]


def as_kernel(row: Route) -> notices.Route:
    """A route as the kernel weighs it."""
    return notices.Route(kinds=frozenset(row.kinds), cluster=row.cluster.name if row.cluster else "", least=row.least)


def rules_naming(channel: str) -> list[str]:
    """The rules in force that name the channel: a channel in use is not deleted."""
    found = []
    for row in policies.in_force():
        try:
            policy = document.read(row.document)
        except document.PolicyInvalid:
            continue
        rules = policy.rules if isinstance(policy, document.Policy) else ()
        for rule in rules:
            named = {action.attribute.get("channel") for action in rule.actions if action.name == "notify"}
            if channel in named:
                found.append(f"{policy.name}#{rule.index + 1}")
    return found


def due(*, now: datetime, limit: int = 20) -> list[int]:
    """Deliveries that a worker may send: due, under no lease, and none under way for the same channel before them.

    A message whose channel has one that is tried again goes on gathering: a channel that is down gets one message
    afterwards and not a hundred. Only a pager's does not wait for what was tried so often that it is tried for a day.
    """
    earlier = Delivery.objects.filter(
        channel=OuterRef("channel"), test=False, gathers=False, state__in=Delivery.UNDER_WAY
    ).exclude(channel__kind__in=Channel.PAGERS, state=Delivery.State.PENDING, attempts__gte=len(notices.BACK_OFF))
    rows = Delivery.objects.filter(_free(now), state__in=Delivery.UNDER_WAY, due_at__lte=now)
    rows = rows.exclude(Q(gathers=True) & Exists(earlier)).order_by("due_at")
    return list(rows.values_list("pk", flat=True)[:limit])


def sending(*, now: datetime) -> int:
    """How many are being sent at this moment."""
    return Delivery.objects.filter(state=Delivery.State.SENDING, lease_until__gt=now).count()


def claimable(pk: int, *, now: datetime) -> QuerySet[Delivery]:
    """The delivery, if a worker may take it now."""
    return Delivery.objects.filter(_free(now), pk=pk, state__in=Delivery.UNDER_WAY, due_at__lte=now)


def _free(now: datetime) -> Q:
    return Q(lease_until__isnull=True) | Q(lease_until__lte=now)


def happenings(delivery: Delivery) -> list[notices.Happening]:
    """What the delivery tells, oldest first. What changed several alerts of a pager is told once."""
    found = [(row, happening(row)) for row in delivery.notices.order_by("pk")]
    seen: set[notices.Happening] = set()
    told = []
    for row, one in found:
        if not row.action or one not in seen:
            told.append(one)
        seen.add(one)
    return told


def happening(row: Notice) -> notices.Happening:
    """What the row tells."""
    return notices.Happening(
        kind=row.kind,
        at=row.at,
        cluster=row.cluster,
        node=row.node,
        what=row.what,
        severity=row.severity,
        record=row.record,
        because=row.because,
        drill=row.drill,
        nodes=row.nodes,
        again=row.again,
    )


def steps_told_by(delivery: Delivery) -> list[int]:
    """The steps of rescues that wait for this delivery."""
    return list(Step.objects.filter(pk__in=delivery.notices.values("step")).values_list("pk", flat=True))


def may_yet_tell(step: int) -> bool:
    """Whether another delivery that has the step's word is still under way."""
    return Notice.objects.filter(step=step, delivery__state__in=Delivery.UNDER_WAY).exists()


def taken_up(steps: Sequence[Step]) -> set[str]:
    """The keys of those among these steps' words that have their notices."""
    rows = Notice.objects.filter(key__in=[step_key(step) for step in steps])
    return set(rows.values_list("key", flat=True))


def step_key(step: Step) -> str:
    """Names what a step has to tell for all time; an operator's retry is another word."""
    return f"step-{step.pk}-{step.progress.get('retry', 0)}"


def counts() -> list[tuple[str, str, int]]:
    """How many deliveries are kept, by channel and state."""
    rows = Delivery.objects.order_by().values_list("name", "state").annotate(n=Count("pk"))
    return [(name, state, n) for name, state, n in rows]


def oldest_waiting() -> datetime | None:
    """Since when the oldest message waits that is due and not gathering."""
    rows = Delivery.objects.filter(state__in=Delivery.UNDER_WAY, attempts__gt=0)
    found: datetime | None = rows.aggregate(at=Min("opened_at"))["at"]
    return found
