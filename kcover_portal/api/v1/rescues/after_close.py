"""What closing a storm would do."""

from typing import Any

from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.generics import get_object_or_404
from rest_framework.request import Request
from rest_framework.response import Response

from kcover_portal.accounts import queries as accounts
from kcover_portal.api.authentication import principal
from kcover_portal.api.v1 import base
from kcover_portal.api.v1.reason_fields import ReasonSerializer
from kcover_portal.api.v1.rescues.node_actions import PlannedStepSerializer
from kcover_portal.fleet.models import Node
from kcover_portal.incidents.models import STORM, Incident
from kcover_portal.rescue import services as rescue
from kcover_portal.runtime.services import concurrency_limits


class ContinuedRescueSerializer(serializers.Serializer[rescue.HeldByStorm]):
    """A rescue that goes on with these steps. ``held_back_reasons``: what holds back the first of them all the same."""

    node = serializers.CharField(source="node.name")
    rescue = serializers.IntegerField(source="rescue.pk")
    steps = PlannedStepSerializer(many=True)
    held_back_reasons = ReasonSerializer(source="held_back", many=True)
    needs_approval = serializers.BooleanField(source="asks")


class FollowingDecisionSerializer(serializers.Serializer[rescue.AfterStorm]):
    """A decision about a fault that the storm holds back."""

    node = serializers.CharField(source="node.name")
    incident = serializers.IntegerField(source="incident.pk")
    answer = serializers.CharField(source="decision.answer")
    steps = PlannedStepSerializer(source="decision.steps", many=True)
    because_reasons = ReasonSerializer(source="decision.because", many=True)


class AfterCloseSerializer(serializers.Serializer[Any]):
    """The rescues that go on, and the decisions that are made. At most 100 of each, the oldest first."""

    continued = ContinuedRescueSerializer(many=True)
    decided = FollowingDecisionSerializer(many=True)


class AfterClose(base.ActionView):
    """What closing a storm would do."""

    @extend_schema(operation_id="incidents_after_close", responses={200: AfterCloseSerializer})
    def get(self, request: Request, pk: int) -> Response:
        """Returns what would follow on the nodes that the caller sees. Both lists are empty without an open storm."""
        base.known_only(request)
        who = principal(request)
        row = get_object_or_404(accounts.visible(who, Incident.objects.select_related("cluster")), pk=pk)
        if row.kind != STORM or row.node_id is not None or row.state != Incident.State.OPEN:
            return Response(AfterCloseSerializer({"continued": [], "decided": []}).data)
        nodes = Node.objects.filter(cluster=row.cluster, name__in=row.scope)
        seen = set(accounts.visible(who, nodes, node="").values_list("pk", flat=True))
        with base.place(request, concurrency_limits.CLUSTER_READS):
            now = timezone.now()
            continued = [one for one in rescue.held_by_storm(row, now=now) if one.node.pk in seen]
            decided = [one for one in rescue.after_storm(row, now=now) if one.node.pk in seen]
        return Response(AfterCloseSerializer({"continued": continued, "decided": decided}).data)
