"""Channels, routes and deliveries of notifications. They require an admin of all clusters.

Creating or changing a channel requires a fresh second factor, because a channel of a person carries links that answer
in the person's name.
"""

from typing import Any

from django.db.models import QuerySet
from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from kcover import reasons
from kcover.faults import catalog
from kcover.notify import events
from kcover_portal import encryption
from kcover_portal.accounts import queries as accounts
from kcover_portal.accounts.models import User, Verb
from kcover_portal.api import http_errors, idempotency
from kcover_portal.api.authentication import principal
from kcover_portal.api.permissions import require, step_up
from kcover_portal.api.v1 import base
from kcover_portal.api.v1.reason_fields import ReasonSerializer, SentenceField
from kcover_portal.api.v1.settings_rows import SettingsViewSet, change_body, new_body
from kcover_portal.lib.errors import FieldError
from kcover_portal.notify import services
from kcover_portal.notify.filtersets import DeliveryFilter
from kcover_portal.notify.models import Channel, Delivery, Notice, Route
from kcover_portal.settings_rows import MAX_NAME


class ChannelSerializer(serializers.ModelSerializer[Channel]):
    """A channel. Only the ``host`` of its address is shown; ``signed`` shows whether it has a secret."""

    host = serializers.CharField(read_only=True)
    signed = serializers.SerializerMethodField()
    person = serializers.SlugRelatedField[User](slug_field="username", read_only=True)
    trouble = SentenceField()

    class Meta:
        model = Channel
        fields = (
            *("id", "name", "kind", "host", "signed", "recipients", "language", "person", "batching", "min_interval"),
            *("remind", "for_owners", "quiet_hours", "digest_at", "time_zone"),
            *("enabled", "created_by", "created_at", "tried_at", "sent_at", "trouble"),
        )

    def get_signed(self, row: Channel) -> bool:
        return encryption.is_set(row, "secret")


class RouteSerializer(serializers.ModelSerializer[Route]):
    """The kinds of events that go to a channel; null ``cluster`` means all clusters."""

    channel = serializers.SlugRelatedField[Channel](slug_field="name", read_only=True)
    cluster = serializers.CharField(source="cluster.name", default=None)

    class Meta:
        model = Route
        fields = ("id", "channel", "kinds", "cluster", "least", "created_by", "created_at")


class RouteBody(base.StrictSerializer):
    """A new route. ``least``, the minimum severity, applies to incidents only."""

    channel = serializers.CharField(max_length=MAX_NAME)
    kinds = serializers.ListField(child=serializers.ChoiceField(events.KINDS), min_length=1)
    cluster = serializers.CharField(required=False, allow_null=True, default=None)
    least = serializers.ChoiceField(catalog.SEVERITIES, required=False, allow_blank=True, default="")


class NoticeSerializer(serializers.ModelSerializer[Notice]):
    """One event of a delivery."""

    because = SentenceField()
    because_reason = ReasonSerializer(source="why", read_only=True, allow_null=True)

    class Meta:
        model = Notice
        fields = (
            *("kind", "at", "cluster", "node", "what", "severity", "record"),
            *("because", "because_reason", "drill", "nodes", "again"),
        )


class DeliverySerializer(serializers.ModelSerializer[Delivery]):
    """A message: its text, the number of attempts and the last error."""

    channel = serializers.CharField(source="name")
    because = SentenceField()
    because_reason = ReasonSerializer(source="why", read_only=True, allow_null=True)

    class Meta:
        model = Delivery
        fields = (
            *("id", "channel", "state", "test", "subject", "text", "attempts", "because", "because_reason"),
            *("opened_at", "due_at", "closed_at", "omitted", "key"),
        )


class WholeDelivery(DeliverySerializer):
    """A message with its events."""

    events = NoticeSerializer(source="notices", many=True)

    class Meta(DeliverySerializer.Meta):
        fields = (*DeliverySerializer.Meta.fields, "events")  # type: ignore[assignment]


class Channels(SettingsViewSet[Channel]):
    """Channels by name."""

    serializer_class = ChannelSerializer
    resource = services.CHANNELS
    body_of_new = new_body(services.CHANNELS, "ChannelBody", "A new channel.")
    body_of_change = change_body(services.CHANNELS, "ChannelPatch", "Settings to change, and the reason.")
    of_create = "Creates a channel. There is no idempotency key, because the secrets must not be stored for comparison."
    of_delete = "Deletes a channel and its routes. 409 while an active rule names it."

    @extend_schema(operation_id="channels_test", request=None, responses={202: DeliverySerializer})
    @idempotency.once
    def test(self, request: Request, name: str) -> Response:
        """Sends a test message. The delivery shows the result."""
        base.known_only(request)
        delivery = services.test(self.get_object(), actor=_actor(request), now=timezone.now())
        return Response(DeliverySerializer(delivery).data, status=202)


class Routes(base.ReadViewSet[Route]):
    """Routes, newest first."""

    queryset = Route.objects.select_related("channel", "cluster")
    serializer_class = RouteSerializer

    def get_queryset(self) -> QuerySet[Route]:
        return _for_admins(self, Route.objects.select_related("channel", "cluster"))

    @extend_schema(request=RouteBody, responses={201: RouteSerializer})
    @idempotency.once
    def create(self, request: Request) -> Response:
        """Creates a route from events to a channel."""
        base.known_only(request)
        require(request, Verb.WRITE_CHANNELS, None)
        body: dict[str, Any] = base.body_of(request, RouteBody)
        step_up(request)
        channel = Channel.objects.filter(name=body["channel"]).first()
        if channel is None:
            raise FieldError("channel", reasons.of("unknown_channel", channel=body["channel"]))
        cluster = base.cluster_named(request, body["cluster"]) if body["cluster"] else None
        row = services.make_route(
            channel,
            kinds=body["kinds"],
            cluster=cluster,
            least=body["least"],
            actor=_actor(request),
            now=timezone.now(),
        )
        return Response(RouteSerializer(row).data, status=201)

    @extend_schema(responses={204: None})
    def destroy(self, request: Request, pk: int) -> Response:
        """Deletes a route."""
        base.known_only(request)
        row = self.get_object()
        step_up(request)
        services.delete_route(row, actor=_actor(request), reason="", now=timezone.now())
        return Response(status=204)


class Deliveries(base.ReadViewSet[Delivery]):
    """Deliveries, newest first. A single delivery includes its events."""

    queryset = Delivery.objects.all()
    serializer_class = DeliverySerializer
    filterset_class = DeliveryFilter

    def get_queryset(self) -> QuerySet[Delivery]:
        return _for_admins(self, Delivery.objects.all())

    def get_serializer_class(self) -> type[serializers.BaseSerializer[Delivery]]:
        """Returns the serializer; a single delivery includes its events."""
        return WholeDelivery if self.action == "retrieve" else DeliverySerializer

    @extend_schema(operation_id="deliveries_retry", request=None, responses={202: DeliverySerializer})
    @idempotency.once
    def retry(self, request: Request, pk: int) -> Response:
        """Retries a failed delivery. 409 if it has not failed."""
        base.known_only(request)
        row = self.get_object()
        if not services.again(row, now=timezone.now()):
            raise http_errors.Conflict(reasons.of("delivery_not_failed", delivery=str(pk)))
        row.refresh_from_db()
        return Response(DeliverySerializer(row).data, status=202)


def _for_admins(view: Any, rows: QuerySet[Any]) -> QuerySet[Any]:
    """Returns the rows. Raises Forbidden unless the caller is an admin of all clusters."""
    if getattr(view, "swagger_fake_view", False):
        return rows.none()
    require(view.request, Verb.WRITE_CHANNELS, None)
    return rows


def _actor(request: Request) -> str:
    return accounts.actor(principal(request))
