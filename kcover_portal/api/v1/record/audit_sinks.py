"""Sinks of the audit stream. They require ``stream-audit`` everywhere, and a fresh second factor to change them."""

from typing import Any

from django.db.models import QuerySet
from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from kcover_portal import encryption
from kcover_portal.accounts import queries as accounts
from kcover_portal.accounts.models import Verb
from kcover_portal.api import pagination
from kcover_portal.api.authentication import principal
from kcover_portal.api.permissions import require, step_up
from kcover_portal.api.v1 import base
from kcover_portal.api.v1.reason_fields import SentenceField
from kcover_portal.audit_stream import queries, services
from kcover_portal.audit_stream.models import Sink
from kcover_portal.audit_stream.queries import topics
from kcover_portal.audit_stream.services import kinds


class SinkSerializer(serializers.ModelSerializer[Sink]):
    """A sink. ``behind``: records that it has not received; ``lag_seconds``: the age of the oldest of them."""

    address = serializers.CharField(source="shown_address", read_only=True)
    signed = serializers.SerializerMethodField()
    receives = serializers.SerializerMethodField()
    options = serializers.DictField(child=serializers.CharField(), read_only=True)
    behind = serializers.SerializerMethodField()
    lag_seconds = serializers.SerializerMethodField()
    problem = SentenceField()

    class Meta:
        model = Sink
        fields = (
            *(
                "id",
                "name",
                "kind",
                "address",
                "signed",
                "receives",
                "options",
                "topics",
                "enabled",
                "created_by",
                "created_at",
            ),
            *("behind", "lag_seconds", "sent", "sent_at", "failures", "attempts", "due_at", "problem"),
        )

    def get_signed(self, row: Sink) -> bool:
        return encryption.is_set(row, "secret")

    def get_receives(self, row: Sink) -> bool:
        """Returns whether the portal takes signed messages for the sink."""
        return encryption.is_set(row, "incoming_key")

    def get_behind(self, row: Sink) -> int:
        return queries.lag(row, now=timezone.now()).records

    def get_lag_seconds(self, row: Sink) -> int:
        return int(queries.lag(row, now=timezone.now()).age.total_seconds())


class SinkSettings(base.StrictSerializer):
    """Settings of a sink. ``secret`` and the path of a webhook's address are never shown again.

    ``options``: ``tenant`` and ``user`` of Loki, ``region`` of an S3 bucket, ``vendor`` of a webhook;
    ``project``, ``user``, ``issue_type``, ``labels``, ``close_transition`` and ``states`` of Jira;
    ``reply_to`` and ``senders`` of mail. ``vendors``: whose repairs the sink receives, with semicolons between them.
    """

    address = serializers.CharField(required=False, max_length=kinds.LONGEST_ADDRESS)
    secret = serializers.CharField(required=False, allow_blank=True, max_length=kinds.LONGEST_SECRET)
    incoming_secret = serializers.CharField(
        required=False,
        allow_blank=True,
        max_length=kinds.LONGEST_SECRET,
        help_text="of Jira and mail: signs what arrives",
    )
    options = serializers.DictField(child=serializers.CharField(allow_blank=True), required=False)
    topics = serializers.ListField(
        child=serializers.ChoiceField(sorted(topics.TOPICS)), required=False, min_length=1, max_length=20
    )
    enabled = serializers.BooleanField(required=False)


class SinkBody(SinkSettings):
    """A new sink. ``whole``: it also receives what happened before it was created."""

    name = serializers.CharField(max_length=63)
    kind = serializers.ChoiceField(Sink.Kind.choices)
    whole = serializers.BooleanField(required=False, default=False)


class SinkPatch(SinkSettings):
    """Settings to change, and the reason."""

    reason = serializers.CharField(required=False, allow_blank=True, max_length=base.MAX_REASON_CHARACTERS, default="")


class AuditSinks(base.ReadViewSet[Sink]):
    """Sinks by name."""

    queryset = Sink.objects.prefetch_related("positions")
    serializer_class = SinkSerializer
    pagination_class = pagination.ByName
    lookup_field = "name"

    def get_queryset(self) -> QuerySet[Sink]:
        """Returns the sinks. Raises Forbidden unless the caller has ``stream-audit`` everywhere."""
        rows = Sink.objects.prefetch_related("positions")
        if getattr(self, "swagger_fake_view", False):
            return rows.none()
        require(self.request, Verb.STREAM_AUDIT, None)
        return rows

    @extend_schema(request=SinkBody, responses={201: SinkSerializer})
    def create(self, request: Request) -> Response:
        """Creates a sink. There is no idempotency key, because the secret must not be stored for comparison."""
        base.known_only(request)
        require(request, Verb.STREAM_AUDIT, None)
        step_up(request)
        body = base.body_of(request, SinkBody)
        name, kind, whole = body.pop("name"), body.pop("kind"), body.pop("whole")
        row = services.make_sink(name, kind, body, whole=whole, actor=_actor(request), now=timezone.now())
        return Response(SinkSerializer(row).data, status=201)

    @extend_schema(request=SinkPatch, responses={200: SinkSerializer})
    def partial_update(self, request: Request, name: str) -> Response:
        """Changes the named settings, all or none."""
        base.known_only(request)
        row = self.get_object()
        step_up(request)
        body: dict[str, Any] = base.body_of(request, SinkPatch)
        reason = body.pop("reason")
        services.change_sink(row, body, actor=_actor(request), reason=reason, now=timezone.now())
        return Response(SinkSerializer(row).data)

    @extend_schema(responses={204: None})
    def destroy(self, request: Request, name: str) -> Response:
        """Deletes a sink. What it has not received is not sent."""
        base.known_only(request)
        row = self.get_object()
        step_up(request)
        services.delete_sink(row, actor=_actor(request), reason="", now=timezone.now())
        return Response(status=204)


def _actor(request: Request) -> str:
    return accounts.actor(principal(request))
