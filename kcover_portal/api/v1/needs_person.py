"""What needs a person, as on the first page."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models import QuerySet
from django.utils import timezone
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.generics import get_object_or_404
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from kcover import reasons
from kcover.needs import Need
from kcover_portal import needs_person
from kcover_portal.accounts import queries as accounts
from kcover_portal.api.authentication import principal
from kcover_portal.api.v1 import base
from kcover_portal.api.v1.reason_fields import ReasonSerializer
from kcover_portal.api.v1.schema import Schema
from kcover_portal.fleet.models import Cluster
from kcover_portal.incidents.models import Incident
from kcover_portal.jobs.models import JobOrder
from kcover_portal.repairs.models import Repair
from kcover_portal.rescue.models import Rescue
from kcover_portal.rescue.queries import last_decisions
from kcover_portal.sources.models import Source

MAX_LISTED = 100  # items of one kind; ``counts`` has the number of all
TYPES = ("incident", "rescue", "job_order", "repair", "cluster", "source")


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One item that waits for a person. ``about``: the type of its row, and the row's id, or name if it has one."""

    kind: str
    cluster: str
    node: str = ""
    about: tuple[str, str]
    name: str
    since: datetime | None
    until: datetime | None = None
    why: tuple[reasons.Reason, ...] = ()
    message: str = ""

    @property
    def reason(self) -> str:
        """The English sentences of the reasons; the message if there are none."""
        return " ".join(map(str, self.why)) or self.message


class AboutSerializer(serializers.Serializer[Any]):
    """The row that an item is about; ``name`` is for people."""

    type = serializers.ChoiceField(TYPES)
    id = serializers.CharField(help_text="a number; of a cluster or source its name")
    name = serializers.CharField()


class ItemSerializer(serializers.Serializer[Item]):
    """One item that waits for a person."""

    kind = serializers.ChoiceField([str(kind) for kind in Need])
    cluster = serializers.CharField()
    node = serializers.CharField(help_text='"" if it is not about one node')
    about = serializers.SerializerMethodField()
    since = serializers.DateTimeField(allow_null=True)
    until = serializers.DateTimeField(allow_null=True, help_text="when a request for approval expires")
    reason = serializers.CharField()
    reasons = ReasonSerializer(source="why", many=True)

    @extend_schema(responses=AboutSerializer)
    def get_about(self, item: Item) -> dict[str, str]:
        """Returns the row that the item is about."""
        kind, key = item.about
        return {"type": kind, "id": key, "name": item.name}


class NeedsPersonSerializer(serializers.Serializer[Any]):
    """The response: at most MAX_LISTED items of each kind, the oldest first, and the number of all by kind."""

    count = serializers.IntegerField()
    counts = serializers.DictField(child=serializers.IntegerField())
    results = ItemSerializer(many=True)


class NeedsPersonList(APIView):
    """What needs a person, in the part of the fleet that the caller may see."""

    schema = Schema()

    @extend_schema(
        operation_id="needs_person_list",
        parameters=[OpenApiParameter("cluster", str, OpenApiParameter.QUERY)],
        responses={200: NeedsPersonSerializer},
    )
    def get(self, request: Request) -> Response:
        """Returns at most 100 items of each kind, the oldest first, and the number of all by kind."""
        base.known_only(request, ("cluster",))
        scope = accounts.scope(principal(request))
        clusters = scope.clusters()
        if "cluster" in request.query_params:
            name = get_object_or_404(clusters, name=request.query_params["cluster"]).name
            clusters = clusters.filter(name=name)
        seen = list(clusters)
        now = timezone.now()
        waiting = needs_person.of(scope, [cluster for cluster in seen if cluster in scope], now=now)
        parts = _parts(waiting, seen, now=now)
        counts = {kind: number for kind, (number, _items) in parts.items()}
        items = [item for _number, found in parts.values() for item in found]
        return Response(NeedsPersonSerializer({"count": sum(counts.values()), "counts": counts, "results": items}).data)


Part = tuple[int, list[Item]]  # the number of all, and the listed ones


def _parts(waiting: needs_person.NeedsPerson, clusters: list[Cluster], *, now: datetime) -> Mapping[Need, Part]:
    """The items in these clusters by kind, in the order of ``Need``."""

    def part(rows: QuerySet[Any], order: str, items: Callable[[list[Any]], Iterable[Item]]) -> Part:
        here = rows.filter(cluster__in=clusters).select_related("cluster")
        listed = list(here.order_by(order, "pk")[:MAX_LISTED])
        return here.count() if len(listed) == MAX_LISTED else len(listed), list(items(listed))

    def of_cluster(kind: str) -> Callable[[list[Incident]], Iterable[Item]]:
        return lambda rows: [_incident(row, kind, (row.message_reason,)) for row in rows]

    return {
        Need.LEDGER: part(waiting.ledgers, "opened_at", of_cluster("ledger")),
        Need.STORM: part(waiting.storms, "opened_at", of_cluster("storm")),
        Need.RESCUE: part(waiting.rescues.select_related("node"), "opened_at", lambda rows: map(_left, rows)),
        Need.APPROVAL: part(waiting.approvals.select_related("node"), "expires_at", lambda rows: map(_approval, rows)),
        Need.INCIDENT: part(waiting.incidents.select_related("node"), "opened_at", _unhandled),
        Need.JOB: part(waiting.orders, "requested_at", lambda rows: map(_order, rows)),
        Need.REPAIR: part(
            waiting.repairs.select_related("node"), "reported_at", lambda rows: [_repair(row, now=now) for row in rows]
        ),
        Need.WATCH: (len(waiting.clusters), [_unwatched(cluster) for cluster in waiting.clusters[:MAX_LISTED]]),
        Need.SOURCE: part(waiting.sources, "error_at", lambda rows: map(_failing, rows)),
    }


def _incident(row: Incident, kind: str, why: Iterable[reasons.Reason | None]) -> Item:
    return Item(
        kind=kind,
        cluster=row.cluster.name,
        node=row.node.name if row.node else "",
        about=("incident", str(row.pk)),
        name=f"{row.kind} {row.code}",
        since=row.opened_at,
        why=tuple(reason for reason in why if reason is not None),
    )


def _unhandled(rows: list[Incident]) -> list[Item]:
    """Faults of nodes that no rescue handles, with the reasons of their last decisions."""
    latest = last_decisions.of(rows)
    return [_incident(row, "incident", latest[row.pk].reasons if row.pk in latest else ()) for row in rows]


def _left(row: Rescue) -> Item:
    return _rescue(row, "rescue", since=row.closed_at or row.opened_at)


def _approval(row: Rescue) -> Item:
    return _rescue(row, "approval", since=row.opened_at, until=row.expires_at)


def _rescue(row: Rescue, kind: str, *, since: datetime, until: datetime | None = None) -> Item:
    why = reasons.kept(row.because)
    return Item(
        kind=kind,
        cluster=row.cluster.name,
        node=row.node.name,
        about=("rescue", str(row.pk)),
        name=row.code,
        since=since,
        until=until,
        why=(why,) if why else (),
        message=row.outcome,
    )


def _order(row: JobOrder) -> Item:
    why = reasons.kept(row.because)
    return Item(
        kind="job",
        cluster=row.cluster.name,
        about=("job_order", str(row.pk)),
        name=f"{row.kind} {row.namespace}/{row.name}",
        since=row.requested_at,
        why=(why,) if why else (),
    )


def _repair(row: Repair, *, now: datetime) -> Item:
    why = row.need(now=now)
    return Item(
        kind="repair",
        cluster=row.cluster.name,
        node=row.node_name,
        about=("repair", str(row.pk)),
        name=str(row.part),
        since=row.reported_at,
        until=row.due,
        why=(why,) if why else (),
    )


def _unwatched(row: Cluster) -> Item:
    return Item(
        kind="watch",
        cluster=row.name,
        about=("cluster", row.name),
        name=row.name,
        since=row.watched_at,
        why=tuple(filter(None, (row.watch_failure,))),
    )


def _failing(row: Source) -> Item:
    why = reasons.kept(row.error)
    return Item(
        kind="source",
        cluster=row.cluster.name,
        about=("source", row.name),
        name=row.name,
        since=row.error_at,
        why=(why,) if why else (),
    )
