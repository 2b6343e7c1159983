"""Warm standbys: free spares, assignments, and rescues that found no spare."""

from typing import Any

from django.utils import timezone
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.generics import get_object_or_404
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from kcover_portal.accounts import queries as accounts
from kcover_portal.api.authentication import principal
from kcover_portal.api.v1 import base
from kcover_portal.api.v1.reason_fields import SentenceField
from kcover_portal.api.v1.schema import Schema
from kcover_portal.fleet.models import Cluster, Node
from kcover_portal.rescue.models import Assignment, Step
from kcover_portal.rescue.queries import standbys


class SpareSerializer(serializers.Serializer[standbys.Spare]):
    """A node marked as a spare. ``because`` is why it is not free; "" if it is."""

    cluster = serializers.CharField(source="node.cluster.name")
    node = serializers.CharField(source="node.name")
    pool = serializers.CharField(source="node.pool")
    ready = serializers.BooleanField(source="fact.ready")
    healthy = serializers.BooleanField(source="fact.healthy")
    promised = serializers.BooleanField(source="fact.promised")
    state = serializers.ChoiceField(standbys.STATES)
    free = serializers.SerializerMethodField()
    because = serializers.SerializerMethodField()

    def get_free(self, spare: standbys.Spare) -> bool:
        return spare.busy is None

    def get_because(self, spare: standbys.Spare) -> str:
        return str(spare.busy) if spare.busy else ""


class AssignmentSerializer(serializers.ModelSerializer[Assignment]):
    """A standby that is reserved for a node (``reserved``) or replaces it (``active``)."""

    cluster = serializers.CharField(source="spare.cluster.name")
    spare = serializers.SlugRelatedField[Node](slug_field="name", read_only=True)
    origin = serializers.SlugRelatedField[Node](slug_field="name", read_only=True)
    because = SentenceField()

    class Meta:
        model = Assignment
        fields = ("id", "cluster", "spare", "origin", "rescue", "state", "because", "reserved_at", "activated_at")


class ShortageSerializer(serializers.ModelSerializer[Step]):
    """A rescue that continued without a standby, and the reason."""

    cluster = serializers.CharField(source="rescue.cluster.name")
    node = serializers.CharField(source="rescue.node.name")
    at = serializers.DateTimeField(source="finished_at")
    because = SentenceField()

    class Meta:
        model = Step
        fields = ("rescue", "cluster", "node", "because", "at")


class StandbysSerializer(serializers.Serializer[Any]):
    """The response. It has no pages, because an installation has few spares."""

    spares = SpareSerializer(many=True)
    assignments = AssignmentSerializer(many=True)
    shortages = ShortageSerializer(many=True)


class Standbys(APIView):
    """Spares, their assignments, and shortages."""

    schema = Schema()

    @extend_schema(
        operation_id="standbys_list",
        parameters=[
            OpenApiParameter("cluster", str, OpenApiParameter.QUERY),
            OpenApiParameter("q", str, OpenApiParameter.QUERY, description="a part of the names of spares"),
            OpenApiParameter("state", str, OpenApiParameter.QUERY, enum=standbys.STATES, description="of spares"),
        ],
        responses={200: StandbysSerializer},
    )
    def get(self, request: Request) -> Response:
        """Returns the standbys of all visible clusters, or of one. ``q`` and ``state`` leave out spares only."""
        base.known_only(request, ("cluster", "q", "state"))
        state = base.choice(request, "state", standbys.STATES)
        clusters = accounts.clusters_of(principal(request))
        if "cluster" in request.query_params:
            clusters = Cluster.objects.filter(pk=get_object_or_404(clusters, name=request.query_params["cluster"]).pk)
        nodes = Node.objects.filter(cluster__in=clusters).select_related("cluster")
        found = {
            "spares": standbys.matching(
                standbys.spares(nodes, now=timezone.now()), text=base.search_text(request), state=state
            ),
            "assignments": standbys.assignments().filter(spare__cluster__in=clusters),
            "shortages": standbys.shortages().filter(rescue__cluster__in=clusters),
        }
        return Response(StandbysSerializer(found).data)
