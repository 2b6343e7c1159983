"""Routes of namespaces to channels for the owners of jobs. They require an admin of all clusters."""

from django.db.models import QuerySet
from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from kcover import reasons
from kcover_portal.accounts import queries as accounts
from kcover_portal.accounts.models import Verb
from kcover_portal.api import idempotency
from kcover_portal.api.authentication import principal
from kcover_portal.api.permissions import require, step_up
from kcover_portal.api.v1 import base
from kcover_portal.lib.errors import FieldError
from kcover_portal.notify import queries, services
from kcover_portal.notify.models import Channel, NamespaceRoute
from kcover_portal.settings_rows import MAX_NAME


class NamespaceRouteSerializer(serializers.ModelSerializer[NamespaceRoute]):
    """The channel that hears of the jobs in some namespaces of a cluster; ``namespace``: a name, or a pattern."""

    channel = serializers.SlugRelatedField[Channel](slug_field="name", read_only=True)
    cluster = serializers.CharField(source="cluster.name", read_only=True)

    class Meta:
        model = NamespaceRoute
        fields = ("id", "channel", "cluster", "namespace", "created_by", "created_at")


class NamespaceRouteBody(base.StrictSerializer):
    """A new route of a namespace. The channel must be released for the owners of jobs."""

    channel = serializers.CharField(max_length=MAX_NAME)
    cluster = serializers.CharField(max_length=100)
    namespace = serializers.CharField(max_length=63)


class NamespaceRoutes(base.ReadViewSet[NamespaceRoute]):
    """Routes of namespaces, newest first."""

    queryset = NamespaceRoute.objects.all()
    serializer_class = NamespaceRouteSerializer

    def get_queryset(self) -> QuerySet[NamespaceRoute]:
        if getattr(self, "swagger_fake_view", False):
            return NamespaceRoute.objects.none()
        require(self.request, Verb.WRITE_CHANNELS, None)
        return queries.namespace_routes()

    @extend_schema(request=NamespaceRouteBody, responses={201: NamespaceRouteSerializer})
    @idempotency.once
    def create(self, request: Request) -> Response:
        """Binds a namespace to a channel."""
        base.known_only(request)
        require(request, Verb.WRITE_CHANNELS, None)
        body = base.body_of(request, NamespaceRouteBody)
        step_up(request)
        channel = Channel.objects.filter(name=body["channel"]).first()
        if channel is None:
            raise FieldError("channel", reasons.of("unknown_channel", channel=body["channel"]))
        row = services.make_namespace_route(
            channel,
            cluster=base.cluster_named(request, body["cluster"]),
            namespace=body["namespace"],
            actor=accounts.actor(principal(request)),
            now=timezone.now(),
        )
        return Response(NamespaceRouteSerializer(row).data, status=201)

    @extend_schema(responses={204: None})
    def destroy(self, request: Request, pk: int) -> Response:
        """Deletes the route of a namespace."""
        base.known_only(request)
        row, actor = self.get_object(), accounts.actor(principal(request))
        step_up(request)
        services.delete_namespace_route(row, actor=actor, reason="", now=timezone.now())
        return Response(status=204)
