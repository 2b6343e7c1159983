"""Reads of channels, routes and deliveries."""

from collections.abc import Callable, Collection, Sequence
from datetime import datetime, timedelta
from fnmatch import fnmatchcase
from typing import Any

from django.db.models import Count, Exists, Min, OuterRef, Q, QuerySet, Subquery, Value
from django.db.models.functions import Concat

from kcover.notify import events, retries
from kcover_portal.incidents.models import Incident
from kcover_portal.ledger.models import Chain
from kcover_portal.lib.prepared import Prepared
from kcover_portal.notify.models import Alert, Channel, Cursor, Delivery, NamespaceRoute, Notice, Route
from kcover_portal.rescue.models import Step
from kcover_portal.runtime.services import claims

INCIDENTS = "incidents"  # name of the cursor
MAX_DUE = 20  # deliveries that one sweep wakes workers for
REPEAT_EVERY = timedelta(minutes=1)  # an Alertmanager's open alerts; Prometheus does so as well
MAX_CONCURRENT_SENDS = 2  # a receiver that hangs must not take the workers from the rescues


def channels() -> QuerySet[Channel]:
    """All channels by name, with the person that each belongs to."""
    return (
        Channel.objects.select_related("person")
        .prefetch_related("routes__cluster", "namespace_routes__cluster")
        .order_by("name")
    )


def pagers() -> list[Channel]:
    """All pagers. They get the ends of their alerts whether or not a route still selects them.

    The ends of a disabled pager are recorded and dropped, so that no shared page stays open.
    """
    return list(Channel.objects.filter(kind__in=Channel.PAGERS))


def repeating(*, now: datetime) -> QuerySet[Channel]:
    """The Alertmanagers that are due to get their open alerts again."""
    rows = Channel.objects.filter(kind=Channel.Kind.ALERTMANAGER, enabled=True).filter(
        Q(repeat_at__isnull=True) | Q(repeat_at__lte=now)
    )
    return rows.filter(Exists(Alert.objects.filter(channel=OuterRef("pk")))).order_by("pk")


def owner_channels(names: Collection[str]) -> list[Channel]:
    """Those of the channels that an admin released for the owners of jobs."""
    if not names:
        return []
    rows = Channel.objects.filter(name__in=names, enabled=True, for_owners=True)
    return list(rows.exclude(kind__in=Channel.PAGERS))


def namespace_routes() -> QuerySet[NamespaceRoute]:
    """The channels of namespaces, by cluster and namespace."""
    return NamespaceRoute.objects.select_related("channel", "cluster")


def channels_of_namespaces(cluster: int) -> Callable[[str], str]:
    """Reads the namespaces' channels of a cluster (by key).

    Returns a function from a namespace to the name of its channel, "" for none. An exact name counts before a pattern,
    and a longer pattern before a shorter one. Channels that are disabled or not released do not count.
    """
    usable = NamespaceRoute.objects.filter(cluster=cluster, channel__enabled=True, channel__for_owners=True)
    rows = usable.order_by().values_list("namespace", "channel__name")
    found = sorted(rows, key=lambda row: ("*" in row[0], -len(row[0]), row[0]))

    def channel_of(namespace: str) -> str:
        return next((channel for pattern, channel in found if fnmatchcase(namespace, pattern)), "")

    return channel_of


def channel_names() -> frozenset[str]:
    """The names that a rule's ``notify`` may use."""
    return frozenset(Channel.objects.values_list("name", flat=True))


def routes() -> list[tuple[Route, events.Route]]:
    """Every route to an enabled channel, as its row and as the core's value."""
    rows = Route.objects.filter(channel__enabled=True).select_related("channel", "cluster")
    return [(row, as_core(row)) for row in rows]


def as_core(row: Route) -> events.Route:
    """A route as the core's value."""
    return events.Route(kinds=frozenset(row.kinds), cluster=row.cluster.name if row.cluster else "", least=row.least)


def due(*, now: datetime, limit: int = MAX_DUE) -> list[int]:
    """Deliveries that a worker may send: due, not leased, with no earlier delivery under way for the same channel.

    While a delivery is being retried, the channel's next one continues to batch: a channel that was down gets one
    message afterwards and not a hundred. A pager's next delivery does not wait for one that has used all its attempts.
    """
    return _SENDABLE.rows(now=now)[:limit]


def sendable(*, now: datetime) -> QuerySet[Delivery]:
    """The deliveries of ``due``, in the order of their due times."""
    earlier = Delivery.objects.filter(
        channel=OuterRef("channel"), test=False, batching=False, state__in=Delivery.UNDER_WAY
    ).exclude(channel__kind__in=Channel.PAGERS, state=Delivery.State.PENDING, attempts__gte=len(retries.RETRY_DELAYS))
    free = due_deliveries(now=now).filter(claims.free(now=now))
    return free.exclude(Q(batching=True) & Exists(earlier)).order_by("due_at")


def due_deliveries(*, now: datetime) -> QuerySet[Delivery]:
    """The deliveries whose time has come, also those that a worker has."""
    return Delivery.objects.filter(state__in=Delivery.UNDER_WAY, due_at__lte=now)


_SENDABLE: Prepared[int] = Prepared(lambda now: sendable(now=now).values_list("pk", flat=True)[:MAX_DUE], now=datetime)


def sending(*, now: datetime) -> int:
    """The number of deliveries that are being sent now."""
    return len(_SENDING.rows(now=now))


_SENDING: Prepared[int] = Prepared(
    lambda now: Delivery.objects.filter(state=Delivery.State.SENDING, lease_until__gt=now).values_list("pk", flat=True),
    now=datetime,
)


def unread() -> tuple[QuerySet[Any], QuerySet[Any], QuerySet[Any]]:
    """Chains with entries, incidents, and cursors with gaps, that were not read for events yet."""
    read = Cursor.objects.filter(name=Concat(Value("ledger "), OuterRef("cluster")), position__gte=OuterRef("sequence"))
    cursor = Cursor.objects.filter(name=INCIDENTS)
    newer = Incident.objects.filter(pk__gt=Subquery(cursor.values("position")))
    return Chain.objects.exclude(Exists(read)), newer, cursor.exclude(gaps={})


def events_of(delivery: Delivery) -> list[events.Event]:
    """The events of the delivery, oldest first. An event that changed several alerts of a pager counts once."""
    found = [(row, event_of(row)) for row in delivery.notices.order_by("pk")]
    seen: set[events.Event] = set()
    distinct = []
    for row, event in found:
        if not row.action or event not in seen:
            distinct.append(event)
        seen.add(event)
    return distinct


def event_of(row: Notice) -> events.Event:
    return events.Event(
        kind=row.kind,
        at=row.at,
        cluster=row.cluster,
        node=row.node,
        what=row.what,
        severity=row.severity,
        record=row.record,
        because=row.why,
        drill=row.drill,
        nodes=row.nodes,
        again=row.again,
    )


def steps_of(delivery: Delivery) -> list[int]:
    """The steps of rescues that wait for this delivery."""
    return list(Step.objects.filter(pk__in=delivery.notices.values("step")).values_list("pk", flat=True))


def is_pending(step: int) -> bool:
    """Returns whether another delivery with the step's message is still under way."""
    return Notice.objects.filter(step=step, delivery__state__in=Delivery.UNDER_WAY).exists()


def steps_collected(steps: Sequence[Step]) -> set[str]:
    """The keys of the steps that already have their notices."""
    rows = Notice.objects.filter(key__in=[step_key(step) for step in steps])
    return set(rows.values_list("key", flat=True))


def step_key(step: Step) -> str:
    """The key of a step's message. An operator's retry has a different key."""
    return f"step-{step.pk}-{step.typed_progress.retry}"


def counts() -> list[tuple[str, str, int]]:
    """The number of stored deliveries by channel and state."""
    rows = Delivery.objects.order_by().values_list("name", "state").annotate(n=Count("pk"))
    return [(name, state, n) for name, state, n in rows]


def oldest_waiting() -> datetime | None:
    """The opening time of the oldest message that was attempted and has not ended; None if there is none."""
    rows = Delivery.objects.filter(state__in=Delivery.UNDER_WAY, attempts__gt=0)
    found: datetime | None = rows.aggregate(at=Min("opened_at"))["at"]
    return found
