"""Sources of faults: their rows, tests of them, and the events that other systems send to them."""

from http import HTTPStatus
from typing import Any

import django_filters as filters
from django.utils import timezone
from django.utils.translation import gettext_lazy as _
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.generics import get_object_or_404
from rest_framework.request import Request
from rest_framework.response import Response

from kcover import reasons
from kcover.sources import cloudevents
from kcover_portal import encryption
from kcover_portal.accounts import queries as accounts
from kcover_portal.accounts.models import ApiToken, Verb
from kcover_portal.accounts.services import OwnerWithoutRole, check_owner
from kcover_portal.api import http_errors
from kcover_portal.api.authentication import principal
from kcover_portal.api.body_parsers import refuse_encoded
from kcover_portal.api.in_hand import InHand, SenderBusy
from kcover_portal.api.leaky_buckets import LeakyBuckets
from kcover_portal.api.permissions import RolePermission, require
from kcover_portal.api.v1 import base
from kcover_portal.api.v1.masked_fields import MaskedTextField
from kcover_portal.api.v1.reason_fields import ReasonSerializer, SentenceField
from kcover_portal.api.v1.settings_rows import SettingsViewSet, change_body, new_body
from kcover_portal.api.v1.sources.event_parsers import BatchParser, ItemsParser, StructuredParser
from kcover_portal.fleet.filtersets import Flag
from kcover_portal.fleet.models import Cluster
from kcover_portal.lib import localization
from kcover_portal.runtime.services import concurrency_limits
from kcover_portal.sources import queries, services
from kcover_portal.sources.models import Source

REQUESTS_PER_SECOND, BURST_REQUESTS = 10, 20  # of one source in one process
EVENTS_AT_ONCE, EVENTS_PER_HOUR = 1_000_000, 50_000  # new ones of one source in one process
EVENTS_RETENTION_SECONDS = 48 * 3600.0  # a million events at once are forgiven after 20 hours
MAX_SOURCES_AT_ONCE = 4  # of the 16 threads of a process
RETRY_AFTER = 2  # seconds; a thousand new alerts are stored within about that time


class SourceSerializer(serializers.ModelSerializer[Source]):
    """A source of faults. Its token is never shown; ``has_token`` shows whether it has one."""

    cluster = serializers.SlugRelatedField[Cluster](slug_field="name", read_only=True)
    url = MaskedTextField()
    has_token = serializers.SerializerMethodField()
    builtin = serializers.BooleanField(source="is_builtin", read_only=True, help_text="it exists for each cluster")
    lag_seconds = serializers.FloatField(source="lag", read_only=True, allow_null=True)
    last_event_at = serializers.DateTimeField(source="event_at", read_only=True, allow_null=True)
    error = SentenceField()
    error_reason = ReasonSerializer(source="why", read_only=True, allow_null=True)

    class Meta:
        model = Source
        fields = (
            *("id", "name", "kind", "cluster", "url", "has_token", "settings", "enabled", "builtin"),
            *("last_contact_at", "last_event_at", "lag_seconds", "accepted", "duplicates", "rejected"),
            *("error", "error_reason", "error_at", "created_by", "created_at"),
        )

    def get_has_token(self, row: Source) -> bool:
        return encryption.is_set(row, "token")


class SourceTestSerializer(serializers.Serializer[Any]):
    """The observations of a source in the last hour."""

    ok = serializers.BooleanField()
    seen = serializers.IntegerField(help_text="events, without repetitions")
    lag_seconds = serializers.FloatField(allow_null=True, help_text="from the newest event's own time to its arrival")
    error = serializers.CharField(allow_null=True)


class RejectedItemSerializer(serializers.Serializer[Any]):
    """An item that was left out, and why."""

    path = serializers.CharField()
    code = serializers.CharField()
    reason = serializers.CharField()


class IntakeSerializer(serializers.Serializer[Any]):
    """The results of the items of a request."""

    accepted = serializers.IntegerField()
    duplicates = serializers.IntegerField()
    rejected = RejectedItemSerializer(many=True)


class SourceFilter(filters.FilterSet):
    """Sources by kind and place."""

    kind = filters.MultipleChoiceFilter(choices=Source.Kind.choices, label=_("Kind"))
    cluster = filters.CharFilter(field_name="cluster__name", label=_("Cluster"))
    enabled = Flag(field_name="enabled", label=_("Enabled"))

    class Meta:
        model = Source
        fields: tuple[str, ...] = ()


class Sources(SettingsViewSet[Source]):
    """Sources by name."""

    serializer_class = SourceSerializer
    filterset_class = SourceFilter
    resource = services.SOURCES
    body_of_new = new_body(services.SOURCES, "SourceBody", "A new source.", of=base.ActSerializer)
    body_of_change = change_body(
        services.SOURCES,
        "SourcePatch",
        "The fields to change. ``token`` is never shown again. Settings that are not named stay; null removes one.",
    )
    of_create = (
        "Adds a source. Requires an admin of its cluster.\n\n"
        "There is no idempotency key, because the token must not be stored for comparison."
    )
    of_change = "Changes the named fields, all or none. Requires an admin of its cluster."
    of_delete = "Removes a source and revokes its tokens. 409 for a built-in source, or one that a rule names."


class Test(base.ActionView):
    """Asks a source what it saw."""

    @extend_schema(operation_id="sources_test", request=None, responses={200: SourceTestSerializer})
    def post(self, request: Request, name: str) -> Response:
        """Tells what the source saw in the last hour. Nothing is stored. Requires an operator of its cluster."""
        base.known_only(request)
        rows = accounts.visible(principal(request), Source.objects.select_related("cluster"), node=None)
        row = get_object_or_404(rows, name=name)
        require(request, Verb.GUARD, row.cluster)
        with base.place(request, concurrency_limits.SOURCE_TESTS):
            trial = services.try_here_or_by_worker(row, clock=timezone.now)
        said = localization.say(trial.error) if trial.error is not None else None
        answer = {"ok": trial.ok, "seen": trial.seen, "lag_seconds": trial.lag_seconds, "error": said}
        return Response(answer)


class Feeding(RolePermission):
    """Admits only tokens of kind source; the view checks that it is the token's own source."""

    def has_permission(self, request: Request, view: Any) -> bool:
        """Returns False (401) without a credential. Raises Forbidden for every other one."""
        if isinstance(request.auth, ApiToken) and request.auth.kind == ApiToken.Kind.SOURCE:
            return True
        super().has_permission(request, view)
        who = principal(request)
        if not isinstance(who, ApiToken) and not who.is_authenticated:
            return False
        raise http_errors.Forbidden(reasons.of("source_token_required"))


request_rates: LeakyBuckets[int] = LeakyBuckets(rate=REQUESTS_PER_SECOND, burst=BURST_REQUESTS)  # by key of the source
event_rates: LeakyBuckets[int] = LeakyBuckets(
    rate=EVENTS_PER_HOUR / 3600, burst=EVENTS_AT_ONCE, retention=EVENTS_RETENTION_SECONDS
)  # of new ones, because a request holds a thousand
in_hand: InHand[int] = InHand(most=MAX_SOURCES_AT_ONCE)


class Events(base.ActionView):
    """Takes the events of Alertmanager, and CloudEvents."""

    sources_too = True
    permission_classes = (Feeding,)
    parser_classes = (ItemsParser, StructuredParser, BatchParser)

    @extend_schema(
        operation_id="sources_events",
        request={"application/json": OpenApiTypes.OBJECT, cloudevents.STRUCTURED: OpenApiTypes.OBJECT},
        responses={202: IntakeSerializer},
    )
    def post(self, request: Request, name: str) -> Response:
        """Stores events; a repeated event changes nothing. Items that cannot be stored are listed in ``rejected``.

        Requires a token of kind source for this source. The answer comes once everything accepted is durable. Each
        source may send 10 requests per second, 20 in a burst, one at a time, and a million new events at once, then
        50,000 an hour (429; 503 for Alertmanager, which repeats after no other answer).
        """
        base.known_only(request)
        token, source = _own(request, name)
        if wait := request_rates.take(source.pk):
            limit = reasons.of("source_rate", source=name, rate=REQUESTS_PER_SECOND, burst=BURST_REQUESTS)
            raise _later(source, limit, retry_after=wait)
        if wait := event_rates.take(source.pk, count=0):
            limit = reasons.of("source_events_many", source=name, hourly=EVENTS_PER_HOUR, most=EVENTS_AT_ONCE)
            raise _later(source, limit, retry_after=wait)
        try:
            with in_hand.hold(source.pk):
                taken = _take(request, token, source)
                event_rates.add(source.pk, taken.stored)
        except SenderBusy as error:
            raise _later(source, reasons.of("source_busy", source=name), retry_after=RETRY_AFTER) from error
        rejected = [
            {"path": one.path, "code": one.reason.code, "reason": localization.say(one.reason)}
            for one in taken.rejected
        ]
        answer = {"accepted": taken.accepted, "duplicates": taken.duplicates, "rejected": rejected}
        return Response(answer, status=HTTPStatus.ACCEPTED)


def _take(request: Request, token: ApiToken, source: Source) -> services.IntakeResult:
    _check_owner(token, source)
    refuse_encoded(request)
    return services.receive(
        source,
        request.data,
        content_type=(request.content_type or "").partition(";")[0].strip().lower(),
        headers={key.lower(): value for key, value in request.headers.items()},
        now=timezone.now(),
    )


def _later(source: Source, because: reasons.Reason, *, retry_after: float) -> http_errors.RetryAfter:
    """Asks to send the request again. Alertmanager drops a notification after 429 and repeats it after 5xx."""
    is_dropped = source.kind == Source.Kind.ALERTMANAGER
    status = HTTPStatus.SERVICE_UNAVAILABLE if is_dropped else HTTPStatus.TOO_MANY_REQUESTS
    return http_errors.RetryAfter(because, status=status, retry_after=retry_after)


def _check_owner(token: ApiToken, source: Source) -> None:
    """Raises Forbidden once the token's owner could not create it any more; the page of the source says so."""
    try:
        check_owner(token)
    except OwnerWithoutRole as refusal:
        services.note_error(source, refusal.reason, now=timezone.now())
        raise http_errors.Forbidden(refusal.reason) from refusal


def _own(request: Request, name: str) -> tuple[ApiToken, Source]:
    """Returns the token and its own source. Raises Forbidden, also if the source does not exist any more."""
    token = request.auth
    if not isinstance(token, ApiToken) or token.source != name:
        raise http_errors.Forbidden(reasons.of("source_token_other", source=getattr(token, "source", "")))
    row = queries.named(name)
    if row is None or token.cluster_id not in (None, row.cluster_id):
        raise http_errors.Forbidden(reasons.of("unknown_source", source=name))
    return token, row
