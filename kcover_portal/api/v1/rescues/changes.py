"""Changes that loosen a limit and wait for another admin."""

from typing import Any

from django.db.models import Q, QuerySet
from django.utils import timezone
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.generics import get_object_or_404
from rest_framework.request import Request
from rest_framework.response import Response

from kcover import reasons
from kcover.values.quote import short_text
from kcover_portal.accounts import queries as accounts
from kcover_portal.accounts.models import Verb
from kcover_portal.accounts.services import second_admins
from kcover_portal.api import http_errors
from kcover_portal.api.authentication import principal
from kcover_portal.api.permissions import require, step_up
from kcover_portal.api.v1 import base
from kcover_portal.fleet.models import Cluster, PendingChange
from kcover_portal.fleet.services import pending_changes

VERBS = ("confirm", "reject")


class PendingChangeSerializer(serializers.ModelSerializer[PendingChange]):
    """A change that waits for another admin. ``before``: the values at the request."""

    cluster = serializers.SlugRelatedField[Cluster](slug_field="name", read_only=True, allow_null=True)

    class Meta:
        model = PendingChange
        fields = (
            *("id", "cluster", "kind", "changes", "before", "reason", "requested_by", "requested_at", "expires_at"),
            *("state", "answered_by", "answered_at"),
        )

    def to_representation(self, instance: PendingChange) -> dict[str, Any]:
        """Masks what may be a key in ``decision_url``."""
        shown = super().to_representation(instance)
        return {**shown, **{name: pending_changes.shown(shown[name]) for name in ("changes", "before")}}


class Changes(base.ReadViewSet[PendingChange]):
    """Changes that wait, or waited, for another admin; newest first."""

    queryset = PendingChange.objects.select_related("cluster")
    serializer_class = PendingChangeSerializer

    def get_queryset(self) -> QuerySet[PendingChange]:
        """Returns the changes of visible clusters and of all clusters."""
        seen = Q(cluster=None) | Q(cluster__in=accounts.clusters_of(principal(self.request)))
        return PendingChange.objects.select_related("cluster").filter(seen).order_by("-pk")


class ChangeAct(base.ActionView):
    """Confirms or rejects a change that waits for another admin."""

    @extend_schema(
        operation_id="changes_act",
        parameters=[OpenApiParameter("verb", str, OpenApiParameter.PATH, enum=VERBS)],
        request=base.ActSerializer,
        responses={200: PendingChangeSerializer},
    )
    def post(self, request: Request, pk: int, verb: str) -> Response:
        """Executes the action. 409 if the change is closed or outdated, or the caller counts as its requester."""
        base.known_only(request)
        if verb not in VERBS:
            raise http_errors.NotFound(reasons.of("unknown_action", action=short_text(verb), known=", ".join(VERBS)))
        who = principal(request)
        seen = Q(cluster=None) | Q(cluster__in=accounts.clusters_of(who))
        row = get_object_or_404(PendingChange.objects.select_related("cluster").filter(seen), pk=pk)
        require(request, Verb.CONFIGURE, row.cluster)
        if verb == "confirm":
            step_up(request)
        reason, now = base.body_of(request, base.ActSerializer)["reason"], timezone.now()
        if verb == "confirm":
            row = second_admins.confirm(row, who=who, now=now)
        else:
            row = pending_changes.reject(row, actor=accounts.actor(who), reason=reason, now=now)
        return Response(PendingChangeSerializer(row).data)


def ask(request: Request, cluster: Cluster | None, kind: str, changes: dict[str, Any], *, reason: str) -> Response:
    """Stores the change for another admin and returns it (202)."""
    row = second_admins.request(cluster, kind, changes, who=principal(request), reason=reason, now=timezone.now())
    return Response(PendingChangeSerializer(row).data, status=202)
