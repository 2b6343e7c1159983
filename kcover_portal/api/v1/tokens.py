"""Create, list and revoke tokens. Requires an admin."""

from typing import Any

import django_filters as filters
from django.db.models import QuerySet
from django.utils import timezone
from django.utils.translation import gettext_lazy as _
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from kcover_portal.accounts import queries, services
from kcover_portal.accounts.models import ApiToken, User
from kcover_portal.api.authentication import principal
from kcover_portal.api.permissions import require, require_somewhere
from kcover_portal.api.v1 import base
from kcover_portal.fleet.filtersets import Flag
from kcover_portal.fleet.models import Cluster


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
            "scopes",
            "owner",
            "created_by",
            "created_at",
            "expires_at",
            "revoked_at",
            "last_used_at",
        )


class NewTokenSerializer(TokenSerializer):
    """A new token with its secret."""

    token = serializers.CharField(read_only=True, help_text="the secret; it is not stored and not shown again")

    class Meta(TokenSerializer.Meta):
        fields = (*TokenSerializer.Meta.fields, "token")  # type: ignore[assignment]


class TokenBody(base.Strict):
    """The rights of the new token."""

    kind = serializers.ChoiceField(ApiToken.Kind.choices)
    cluster = serializers.CharField(required=False, allow_null=True, default=None)
    node = serializers.CharField(required=False, allow_blank=True, max_length=253, default="")
    name = serializers.CharField(required=False, allow_blank=True, max_length=120, default="")
    expires_at = serializers.DateTimeField(required=False, allow_null=True, default=None)
    scopes = serializers.ListField(
        child=serializers.ChoiceField(services.SCOPES), required=False, default=list, max_length=len(services.SCOPES)
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


class Tokens(base.Reads[ApiToken]):
    """Tokens, newest first."""

    queryset = ApiToken.objects.select_related("cluster", "owner")
    serializer_class = TokenSerializer
    filterset_class = TokenFilter

    def get_queryset(self) -> QuerySet[ApiToken]:
        """Returns the tokens of clusters in which the caller is an admin."""
        rows = ApiToken.objects.select_related("cluster", "owner")
        if getattr(self, "swagger_fake_view", False):
            return rows.none()
        require_somewhere(self.request, base.ADMIN)
        who = principal(self.request)
        return (
            rows if queries.sees_all(who, base.ADMIN) else rows.filter(cluster__in=queries.clusters_of(who, base.ADMIN))
        )

    @extend_schema(request=TokenBody, responses={201: NewTokenSerializer})
    def create(self, request: Request) -> Response:
        """Creates a token. There is no idempotency key, because the secret must not be stored."""
        base.known_only(request)
        require_somewhere(request, base.ADMIN)
        body: dict[str, Any] = base.body_of(request, TokenBody)
        cluster = base.cluster_named(request, body["cluster"]) if body["cluster"] else None
        require(request, base.ADMIN, cluster)
        token, secret = services.make_token(
            body["kind"],
            cluster=cluster,
            node=body["node"],
            name=body["name"],
            expires_at=body["expires_at"],
            scopes=body["scopes"],
            owner=queries.owner_of(principal(request)),
            created_by=queries.actor(principal(request)),
            now=timezone.now(),
        )
        token.token = secret  # type: ignore[attr-defined]  # shown once, not stored
        return Response(NewTokenSerializer(token).data, status=201)

    @extend_schema(responses={204: None})
    def destroy(self, request: Request, pk: int) -> Response:
        """Revoke a token."""
        base.known_only(request)
        token = self.get_object()
        require(request, base.ADMIN, token.cluster)
        services.revoke_token(token, actor=queries.actor(principal(request)), now=timezone.now())
        return Response(status=204)
