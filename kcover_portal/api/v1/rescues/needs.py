"""What needs attention, one entry a cause, and what people do about an entry."""

from collections.abc import Callable
from datetime import datetime
from typing import Any, ClassVar

from django.utils import timezone
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.generics import get_object_or_404
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.reverse import reverse
from rest_framework.views import APIView

from kcover import reasons
from kcover.needs import KINDS
from kcover_portal.accounts import queries as accounts
from kcover_portal.accounts.models import Verb
from kcover_portal.api import http_errors, idempotency, pagination
from kcover_portal.api.authentication import principal
from kcover_portal.api.permissions import require
from kcover_portal.api.v1 import base
from kcover_portal.api.v1.reason_fields import ReasonSerializer
from kcover_portal.api.v1.rescues.needs_person import ItemSerializer
from kcover_portal.api.v1.schema import Schema
from kcover_portal.fleet.models import Cluster
from kcover_portal.needs import queries, services
from kcover_portal.needs.models import NeedAct

KEY = OpenApiParameter(idempotency.HEADER, str, OpenApiParameter.HEADER)
DRY_RUN = OpenApiParameter("dry_run", bool, description="check the request and return the need as it is")


class PlaceSerializer(serializers.Serializer[Any]):
    """What all nodes share: the narrowest domain of the cluster's topology."""

    domain = serializers.CharField()
    value = serializers.CharField()


class NextActSerializer(serializers.Serializer[Any]):
    """An act that the caller may do next; its body is that of the path."""

    name = serializers.CharField()
    method = serializers.CharField()
    path = serializers.CharField()
    node = serializers.CharField(help_text='"" if it is not about one node')


class NoteSerializer(serializers.Serializer[NeedAct]):
    """A note."""

    by = serializers.CharField()
    at = serializers.DateTimeField()
    text = serializers.CharField()


class NeedSerializer(serializers.Serializer[queries.Entry]):
    """One cause. ``rows``: what it is made of."""

    id = serializers.CharField()
    kind = serializers.ChoiceField(KINDS)
    cluster = serializers.CharField(source="cluster.name")
    nodes = serializers.ListField(child=serializers.CharField())
    place = serializers.SerializerMethodField()
    severity = serializers.CharField(help_text='of faults; "" otherwise')
    since = serializers.DateTimeField(allow_null=True)
    until = serializers.DateTimeField(allow_null=True, help_text="when the first approval expires, or a date passes")
    what = serializers.SerializerMethodField(help_text="one sentence")
    what_reason = ReasonSerializer(source="what")
    meaning = serializers.CharField(help_text='of the code, in NVIDIA\'s catalog; "" if it has none')
    why = serializers.SerializerMethodField(help_text="why it waits")
    why_reasons = ReasonSerializer(source="why", many=True)
    advice = serializers.CharField(help_text='the usual remedy of the code; "" if there is none')
    other_faults = serializers.IntegerField(source="others", help_text="further open faults of its nodes")
    actions = serializers.SerializerMethodField()
    acknowledged_by = serializers.CharField(source="handling.acknowledged_by")
    acknowledged_at = serializers.DateTimeField(source="handling.acknowledged_at", allow_null=True)
    assigned_to = serializers.CharField(source="handling.assigned_to")
    snoozed_until = serializers.DateTimeField(source="handling.snoozed_until", allow_null=True)
    notes = NoteSerializer(source="handling.notes", many=True)
    rows = ItemSerializer(source="items", many=True)

    @extend_schema(responses=PlaceSerializer)
    def get_place(self, entry: queries.Entry) -> dict[str, str] | None:
        """Returns what its nodes share, or null."""
        return {"domain": entry.place[0], "value": entry.place[1]} if entry.place else None

    def get_what(self, entry: queries.Entry) -> str:
        """Returns the English sentence."""
        return str(entry.what)

    def get_why(self, entry: queries.Entry) -> str:
        """Returns the English sentences of the reasons."""
        return str(reasons.both(*entry.why))

    @extend_schema(responses=NextActSerializer(many=True))
    def get_actions(self, entry: queries.Entry) -> list[dict[str, str]]:
        """Returns what the caller may do next about its first 50 rows."""
        return [
            {
                "name": act.name,
                "method": act.method,
                "path": reverse(f"api:{act.rest.view}", args=act.rest.args),
                "node": act.node,
            }
            for act in queries.next_acts(entry, principal(self.context["request"]))
        ]


class NeedsSerializer(serializers.Serializer[Any]):
    """A page. ``count``: all that are not snoozed. ``left_out``: by kind, the rows too many to be read."""

    count = serializers.IntegerField()
    next = serializers.URLField(allow_null=True)
    previous = serializers.URLField(allow_null=True)
    results = NeedSerializer(many=True)
    left_out = serializers.DictField(child=serializers.IntegerField())


class AcknowledgeBody(base.ActSerializer):
    """A reason, if there is one."""


class AssignBody(base.ActSerializer):
    """The user's name; "" for nobody."""

    aliases: ClassVar = {"assigned_to": "assignee"}

    assignee = serializers.CharField(allow_blank=True, max_length=150)


class SnoozeBody(base.ActSerializer):
    """Until when; null brings it back."""

    aliases: ClassVar = {"snoozed_until": "until"}

    until = serializers.DateTimeField(allow_null=True)


class NoteBody(base.StrictSerializer):
    """The note."""

    aliases: ClassVar = {"note": "text"}

    text = serializers.CharField(max_length=base.MAX_REASON_CHARACTERS)


class NeedsList(APIView):
    """What needs attention, one entry a cause, in the part of the fleet that the caller may see."""

    schema = Schema()

    @extend_schema(
        operation_id="needs_list",
        parameters=[
            OpenApiParameter("cluster", str, OpenApiParameter.QUERY),
            OpenApiParameter("page_size", int, OpenApiParameter.QUERY, description="up to 1000; 100 by default"),
            OpenApiParameter("cursor", str, OpenApiParameter.QUERY),
        ],
        responses={200: NeedsSerializer},
    )
    def get(self, request: Request) -> Response:
        """Returns the entries, the worst first, and among those the oldest; snoozed ones too."""
        base.known_only(request, ("cluster", *pagination.PAGE_PARAMETERS))
        scope = accounts.scope(principal(request))
        clusters = scope.clusters()
        if "cluster" in request.query_params:
            clusters = Cluster.objects.filter(pk=get_object_or_404(clusters, name=request.query_params["cluster"]).pk)
        found = queries.entries(scope, list(clusters), now=timezone.now())
        page = pagination.page_of(request, found.entries, key=queries.urgency)
        links: dict[str, Any] = {"next": page.next, "previous": page.previous}
        body = {"count": len(found.open), **links, "results": page.results, "left_out": found.left_out}
        return Response(NeedsSerializer(body, context={"request": request}).data)


class NeedAction(base.ActionView):
    """An act about one need."""

    body: ClassVar[type[serializers.Serializer[Any]]]
    act: ClassVar[Callable[..., NeedAct]]

    def _post(self, request: Request, need: str) -> Response:
        base.known_only(request, ("dry_run",))
        scope, now = accounts.scope(principal(request)), timezone.now()
        entry = _found(scope, need, now=now)
        for place in services.places_of(entry):
            require(request, Verb.REPAIR, place)
        given = base.body_of(request, self.body)
        if not base.flag(request, "dry_run"):
            type(self).act(entry, actor=accounts.actor(principal(request)), now=now, **given)
            entry = _found(scope, need, now=now)
        return Response(NeedSerializer(entry, context={"request": request}).data)


def _found(scope: accounts.Scope, need: str, *, now: datetime) -> queries.Entry:
    entry = queries.entry(scope, list(scope.clusters()), need, now=now)
    if entry is None:
        raise http_errors.NotFound(reasons.of("need_unknown"))
    return entry


class Acknowledge(NeedAction):
    """Somebody has seen it and takes care."""

    body, act = AcknowledgeBody, staticmethod(services.acknowledge)

    @extend_schema(
        operation_id="needs_acknowledge", parameters=[KEY, DRY_RUN], request=AcknowledgeBody, responses=NeedSerializer
    )
    @idempotency.once
    def post(self, request: Request, need: str) -> Response:
        """Acknowledges the need. It stays on the list; a new node or a higher severity ends the acknowledgement."""
        return self._post(request, need)


class Unacknowledge(NeedAction):
    """Nobody takes care any more."""

    body, act = AcknowledgeBody, staticmethod(services.unacknowledge)

    @extend_schema(
        operation_id="needs_unacknowledge", parameters=[KEY, DRY_RUN], request=AcknowledgeBody, responses=NeedSerializer
    )
    @idempotency.once
    def post(self, request: Request, need: str) -> Response:
        """Takes an acknowledgement back, whoever gave it. 409 if there is none."""
        return self._post(request, need)


class Assign(NeedAction):
    """Somebody is made responsible."""

    body, act = AssignBody, staticmethod(services.assign)

    @extend_schema(operation_id="needs_assign", parameters=[KEY, DRY_RUN], request=AssignBody, responses=NeedSerializer)
    @idempotency.once
    def post(self, request: Request, need: str) -> Response:
        """Assigns the need to a user who may act on its nodes."""
        return self._post(request, need)


class Snooze(NeedAction):
    """It is out of sight for a while."""

    body, act = SnoozeBody, staticmethod(services.snooze)

    @extend_schema(operation_id="needs_snooze", parameters=[KEY, DRY_RUN], request=SnoozeBody, responses=NeedSerializer)
    @idempotency.once
    def post(self, request: Request, need: str) -> Response:
        """Snoozes the need for at most 7 days; a new node or a higher severity brings it back. 409 for approvals."""
        return self._post(request, need)


class Note(NeedAction):
    """A note for whoever looks next."""

    body, act = NoteBody, staticmethod(services.note)

    @extend_schema(operation_id="needs_note", parameters=[KEY, DRY_RUN], request=NoteBody, responses=NeedSerializer)
    @idempotency.once
    def post(self, request: Request, need: str) -> Response:
        """Adds a note to the need."""
        return self._post(request, need)
