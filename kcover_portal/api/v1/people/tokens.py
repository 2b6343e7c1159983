"""Create, list and revoke tokens. Requires an admin."""

from datetime import datetime, timedelta
from typing import Any

import django_filters as filters
from django.db.models import Q, QuerySet
from django.utils import timezone
from django.utils.translation import gettext_lazy as _
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.generics import get_object_or_404
from rest_framework.request import Request
from rest_framework.response import Response

from kcover import reasons
from kcover.values.quote import short_text
from kcover_portal.accounts import queries, services
from kcover_portal.accounts.models import ApiToken, User, Verb
from kcover_portal.api import http_errors
from kcover_portal.api.authentication import principal
from kcover_portal.api.permissions import require, require_somewhere, step_up
from kcover_portal.api.v1 import base
from kcover_portal.fleet.filtersets import Flag
from kcover_portal.fleet.models import Cluster
from kcover_portal.lib.errors import FieldError
from kcover_portal.sources import queries as sources

MAX_NETWORKS = 50


class TokenSerializer(serializers.ModelSerializer[ApiToken]):
    """A token without its secret. ``prefix`` is the start of the secret."""

    cluster = serializers.SlugRelatedField[Cluster](slug_field="name", read_only=True, allow_null=True)
    owner = serializers.SlugRelatedField[User](slug_field="username", read_only=True, allow_null=True)

    class Meta:
        model = ApiToken
        fields = (
            "id",
            "kind",
            "name",
            "prefix",
            "cluster",
            "node",
            "source",
            "scopes",
            "verbs",
            "networks",
            "owner",
            "created_by",
            "created_at",
            "expires_at",
            "revoked_at",
            "last_used_at",
            "last_used_from",
            "replaced_by",
        )


class NewTokenSerializer(TokenSerializer):
    """A new token with its secret."""

    token = serializers.CharField(read_only=True, help_text="the secret; it is not stored and not shown again")

    class Meta(TokenSerializer.Meta):
        fields = (*TokenSerializer.Meta.fields, "token")  # type: ignore[assignment]


class TokenBody(base.StrictSerializer):
    """The rights of the new token."""

    kind = serializers.ChoiceField(ApiToken.Kind.choices)
    cluster = serializers.CharField(required=False, allow_null=True, default=None)
    node = serializers.CharField(required=False, allow_blank=True, max_length=253, default="")
    source = serializers.CharField(  # type: ignore[assignment]  # DRF takes declared fields off the class
        required=False, allow_blank=True, max_length=120, default="", help_text="of kind source: the source it may feed"
    )
    name = serializers.CharField(required=False, allow_blank=True, max_length=120, default="")
    expires_at = serializers.DateTimeField(
        required=False, allow_null=True, help_text="default: in 90 days; null: never, for agent tokens only"
    )
    verbs = serializers.ListField(
        child=serializers.ChoiceField(Verb.choices),
        required=False,
        default=list,
        max_length=len(Verb),
        help_text="narrows what the kind may do; default: all of it",
    )
    networks = serializers.ListField(
        child=serializers.CharField(max_length=50),
        required=False,
        default=list,
        max_length=MAX_NETWORKS,
        help_text="addresses or CIDR networks that it may be used from; default: any",
    )
    scopes = serializers.ListField(
        child=serializers.ChoiceField(services.SCOPES), required=False, default=list, max_length=len(services.SCOPES)
    )


class RotateBody(base.StrictSerializer):
    """The time that the old secret stays valid."""

    overlap = serializers.IntegerField(
        required=False,
        min_value=0,
        max_value=round(services.MAX_OVERLAP.total_seconds()),
        default=round(services.DEFAULT_OVERLAP.total_seconds()),
        help_text="seconds",
    )


class TokenFilter(filters.FilterSet):
    """Tokens by kind and place."""

    kind = filters.MultipleChoiceFilter(choices=ApiToken.Kind.choices, label=_("Kind"))
    cluster = filters.CharFilter(field_name="cluster__name", label=_("Cluster"))
    node = filters.CharFilter(field_name="node", label=_("Node"))
    revoked = Flag(field_name="revoked_at", lookup_expr="isnull", exclude=True, label=_("Revoked"))

    class Meta:
        model = ApiToken
        fields: tuple[str, ...] = ()


class Tokens(base.ReadViewSet[ApiToken]):
    """Tokens, newest first."""

    queryset = ApiToken.objects.select_related("cluster", "owner")
    serializer_class = TokenSerializer
    filterset_class = TokenFilter

    def get_queryset(self) -> QuerySet[ApiToken]:
        """Returns the tokens of clusters in which the caller is an admin."""
        rows = ApiToken.objects.select_related("cluster", "owner")
        if getattr(self, "swagger_fake_view", False):
            return rows.none()
        require_somewhere(self.request, Verb.ADMINISTER)
        who = principal(self.request)
        return queries.visible(who, rows, node=None, needed=Verb.ADMINISTER)

    @extend_schema(request=TokenBody, responses={201: NewTokenSerializer})
    def create(self, request: Request) -> Response:
        """Creates a token. There is no idempotency key, because the secret must not be stored."""
        base.known_only(request)
        require_somewhere(request, Verb.ADMINISTER)
        body: dict[str, Any] = base.body_of(request, TokenBody)
        cluster = base.cluster_named(request, body["cluster"]) if body["cluster"] else None
        if body["source"]:
            cluster = _cluster_of_source(request, body)
        for verb in queries.verbs_to_issue(body["kind"]):
            require(request, verb, cluster)
        now = timezone.now()
        step_up(request)
        token, secret = services.make_token(
            body["kind"],
            cluster=cluster,
            node=body["node"],
            source=body["source"],
            name=body["name"],
            expires_at=_expiry(body, now=now),
            scopes=body["scopes"],
            verbs=body["verbs"],
            networks=body["networks"],
            owner=queries.owner_of(principal(request)),
            created_by=queries.actor(principal(request)),
            now=now,
        )
        return _made(token, secret)

    @extend_schema(request=RotateBody, responses={201: NewTokenSerializer})
    def rotate(self, request: Request, pk: int) -> Response:
        """Replaces a token by one with the same rights and a new secret; the old secret stays valid for the overlap.

        Requires its owner, signed in: a stolen token must not outlive its expiry.
        """
        base.known_only(request)
        who = principal(request)
        if not isinstance(who, User):
            raise http_errors.Forbidden(reasons.of("token_rotated_by_owner"))
        seen = queries.scope(who, Verb.ADMINISTER).where(node=None)
        rows = ApiToken.objects.filter(Q(owner=who) | Q(pk__in=ApiToken.objects.filter(seen).values("pk")))
        token = get_object_or_404(rows.select_related("cluster", "owner"), pk=pk)
        overlap = timedelta(seconds=base.body_of(request, RotateBody)["overlap"])
        step_up(request)
        made, secret = services.rotate(token, overlap=overlap, owner=who, actor=queries.actor(who), now=timezone.now())
        return _made(made, secret)

    @extend_schema(responses={204: None})
    def destroy(self, request: Request, pk: int) -> Response:
        """Revokes a token. Without those of agents and sources, faults of nodes are not seen."""
        base.known_only(request)
        token = self.get_object()
        require(request, Verb.ADMINISTER, token.cluster)
        if token.kind in ApiToken.SEEING:
            step_up(request)
        services.revoke_token(token, actor=queries.actor(principal(request)), now=timezone.now())
        return Response(status=204)


def _expiry(body: dict[str, Any], *, now: datetime) -> datetime | None:
    """Returns when the new token expires. Raises FieldError for one that should not and is not for agents."""
    if "expires_at" not in body:
        return services.default_expiry(body["kind"], now=now)
    if body["expires_at"] is None and body["kind"] != ApiToken.Kind.AGENT:
        raise FieldError("expires_at", reasons.of("token_needs_expiry"))
    expires_at: datetime | None = body["expires_at"]
    return expires_at


def _cluster_of_source(request: Request, body: dict[str, Any]) -> Cluster:
    """Returns the cluster of the source that the token may feed. Raises FieldError."""
    clusters = queries.clusters_of(principal(request))
    source = sources.named(body["source"])
    if source is None or not clusters.filter(pk=source.cluster_id).exists():
        raise FieldError("source", reasons.of("unknown_source", source=short_text(body["source"])))
    if body["cluster"] not in (None, source.cluster.name):
        raise FieldError("cluster", reasons.of("source_of_other_cluster", cluster=source.cluster.name))
    return source.cluster


def _made(token: ApiToken, secret: str) -> Response:
    token.token = secret  # type: ignore[attr-defined]  # shown once, not stored
    return Response(NewTokenSerializer(token).data, status=201)
