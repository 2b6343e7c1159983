"""Guards of a cluster, and maintenance windows."""

from collections.abc import Mapping
from typing import Any

from django.db.models import Q, QuerySet
from django.utils import timezone
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.generics import get_object_or_404
from rest_framework.request import Request
from rest_framework.response import Response

from kcover import reasons
from kcover.decisions import guards
from kcover.nodes.scopes import Scope
from kcover.values.recurrence import PERIODS, Recurrence, RecurrenceError
from kcover_portal.accounts import queries as accounts
from kcover_portal.accounts.models import Verb
from kcover_portal.api import idempotency
from kcover_portal.api.authentication import principal
from kcover_portal.api.permissions import require, step_up
from kcover_portal.api.v1 import base, scopes
from kcover_portal.api.v1.rescues import changes
from kcover_portal.fleet import queries
from kcover_portal.fleet.filtersets import MaintenanceFilter
from kcover_portal.fleet.models import Cluster, Maintenance
from kcover_portal.fleet.services import cluster_settings, pending_changes
from kcover_portal.lib.errors import FieldError
from kcover_portal.shared_reads import maintenance_scopes

SERIES = OpenApiParameter("series", bool, description="also the windows that repeat it")


class Guards(base.ActionView):
    """A cluster's guards: limits as counts or percentages, times in seconds."""

    @extend_schema(operation_id="clusters_guards", responses={200: OpenApiTypes.OBJECT})
    def get(self, request: Request, name: str) -> Response:
        """Returns all guards, including defaults."""
        base.known_only(request)
        return Response(guards.to_json(queries.guards_of(_cluster(request, name))))

    @extend_schema(
        operation_id="clusters_guards_change",
        request=OpenApiTypes.OBJECT,
        responses={200: OpenApiTypes.OBJECT, 202: changes.PendingChangeSerializer},
    )
    def patch(self, request: Request, name: str) -> Response:
        """Changes the given guards, all or none; returns all guards. ``reason`` goes to the audit log.

        Requires an admin. Where the cluster asks for a second admin, a change that loosens a guard waits (202).
        """
        base.known_only(request)
        cluster = _cluster(request, name)
        require(request, Verb.CONFIGURE, cluster)
        if not isinstance(request.data, dict):
            raise FieldError("", reasons.of("not_an_object"))
        patch = {key: value for key, value in request.data.items() if key != "reason"}
        reason = base.body_of_data({"reason": request.data.get("reason", "")}, base.ActSerializer)["reason"]
        step_up(request)
        try:
            if pending_changes.loosens_guards(cluster, patch) and pending_changes.needs_second(cluster):
                return changes.ask(request, cluster, "guards", patch, reason=reason)
            actor, now = accounts.actor(principal(request)), timezone.now()
            kind = pending_changes.GUARDS
            pending_changes.change(cluster, kind, patch, may_loosen=True, actor=actor, reason=reason, now=now)
        except guards.SettingError as error:
            raise FieldError(error.path or "guards", error.reason) from error
        return Response(guards.to_json(queries.guards_of(cluster)))


class MaintenanceSerializer(serializers.ModelSerializer[Maintenance]):
    """A maintenance window; null ``cluster`` means all clusters.

    ``scope``: the ``nodes``, ``labels``, ``pools`` or ``domains`` that it covers; {} for the whole cluster. A single
    pool or node is in ``pool`` or ``node``, too. Nodes that you may not see are left out.
    ``series`` is the same for a window and its repetitions, each of which is a window of its own.
    """

    cluster = serializers.SlugRelatedField[Cluster](slug_field="name", read_only=True)
    node = serializers.SerializerMethodField()
    scope = serializers.SerializerMethodField()

    class Meta:
        model = Maintenance
        fields = (
            "id",
            "cluster",
            "pool",
            "node",
            "scope",
            "starts_at",
            "ends_at",
            "reason",
            "created_by",
            "series",
            "repeats",
        )

    def get_node(self, window: Maintenance) -> str:
        return window.node if window.node in self._scope(window).nodes else ""

    def get_scope(self, window: Maintenance) -> dict[str, Any]:
        return self._scope(window).to_json()

    def _scope(self, window: Maintenance) -> Scope:
        return maintenance_scopes.seen_by(principal(self.context["request"]), window)


class RepeatsBody(base.StrictSerializer):
    """How a window repeats: at the same local time of a zone, also when its clocks change."""

    every = serializers.ChoiceField(list(PERIODS))
    zone = serializers.CharField(max_length=100, help_text="an IANA name such as Europe/Berlin, or UTC")
    until = serializers.DateTimeField(help_text="the last time at which a repetition may start")


class MaintenanceBody(scopes.ScopeBody):
    """A new window for a scope, or by its older fields for a ``pool`` or a ``node``."""

    cluster = serializers.CharField(required=False, allow_null=True, default=None)
    pool = serializers.CharField(required=False, allow_blank=True, max_length=120, default="")
    node = serializers.CharField(required=False, allow_blank=True, max_length=253, default="")
    starts_at = serializers.DateTimeField()
    ends_at = serializers.DateTimeField()
    reason = serializers.CharField(max_length=base.MAX_REASON_CHARACTERS)
    repeats = RepeatsBody(required=False, allow_null=True, default=None)


class Windows(base.ReadViewSet[Maintenance]):
    """Maintenance windows, including past ones, newest first."""

    queryset = Maintenance.objects.select_related("cluster").order_by("-pk")
    serializer_class = MaintenanceSerializer
    filterset_class = MaintenanceFilter

    def get_queryset(self) -> QuerySet[Maintenance]:
        """Returns the windows of visible clusters and of all clusters."""
        who = principal(self.request)
        seen = Q(cluster=None) | Q(cluster__in=accounts.clusters_of(who))
        return Maintenance.objects.select_related("cluster").defer("members").filter(seen).order_by("-pk")

    @extend_schema(request=MaintenanceBody, responses={201: MaintenanceSerializer})
    @idempotency.once
    def create(self, request: Request) -> Response:
        """Creates a window and returns it. With ``repeats`` also its repetitions: at most 60 windows in all."""
        base.known_only(request)
        body: dict[str, Any] = base.body_of(request, MaintenanceBody)
        cluster = base.cluster_named(request, body["cluster"]) if body["cluster"] else None
        require(request, Verb.MAINTAIN, cluster)
        window = cluster_settings.open_maintenance(
            cluster,
            **{name: body[name] for name in ("pool", "node", "starts_at", "ends_at", "reason")},
            selection=scopes.given(body),
            repeats=_recurrence(body["repeats"]),
            actor=accounts.actor(principal(request)),
            now=timezone.now(),
        )
        return Response(MaintenanceSerializer(window, context={"request": request}).data, status=201)

    @extend_schema(parameters=[SERIES], request=None, responses={204: None})
    def destroy(self, request: Request, pk: int) -> Response:
        """Ends a window now, or deletes one that has not begun. With ``series`` also all that repeat it."""
        base.known_only(request, ("series",))
        window = get_object_or_404(self.get_queryset(), pk=pk)
        require(request, Verb.MAINTAIN, window.cluster)
        step_up(request)
        cluster_settings.end_maintenance(
            window,
            actor=accounts.actor(principal(request)),
            reason="",
            now=timezone.now(),
            whole_series=base.flag(request, "series"),
        )
        return Response(status=204)


def _recurrence(given: Mapping[str, Any] | None) -> Recurrence | None:
    """Raises FieldError for a zone that does not exist."""
    try:
        return Recurrence(**given) if given else None
    except RecurrenceError as error:
        raise FieldError(f"repeats.{error.field}", error.reason) from error


def _cluster(request: Request, name: str) -> Cluster:
    return get_object_or_404(accounts.clusters_of(principal(request)), name=name)
