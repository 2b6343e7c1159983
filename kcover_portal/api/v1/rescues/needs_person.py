"""What needs attention, as on the first page."""

from typing import Any

from django.utils import timezone
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.generics import get_object_or_404
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from kcover.needs import KINDS
from kcover_portal.accounts import queries as accounts
from kcover_portal.api.authentication import principal
from kcover_portal.api.v1 import base
from kcover_portal.api.v1.reason_fields import ReasonSerializer
from kcover_portal.api.v1.schema import Schema
from kcover_portal.needs import queries as needs

MAX_LISTED = needs.MAX_LISTED  # items of one kind; ``counts`` has the number of all
TYPES = ("incident", "rescue", "job_order", "repair", "part", "cluster", "source")


class AboutSerializer(serializers.Serializer[Any]):
    """The row that an item is about; ``name`` is for people."""

    type = serializers.ChoiceField(TYPES)
    id = serializers.CharField(help_text="a number; of a cluster or source its name")
    name = serializers.CharField()


class ItemSerializer(serializers.Serializer[needs.Item]):
    """One item that needs attention."""

    kind = serializers.ChoiceField(KINDS)
    cluster = serializers.CharField(source="cluster.name")
    node = serializers.CharField(help_text='"" if it is not about one node')
    about = serializers.SerializerMethodField()
    since = serializers.DateTimeField(allow_null=True)
    until = serializers.DateTimeField(allow_null=True, help_text="when a request for approval expires")
    reason = serializers.CharField()
    reasons = ReasonSerializer(source="why", many=True)

    @extend_schema(responses=AboutSerializer)
    def get_about(self, item: needs.Item) -> dict[str, str]:
        """Returns the row that the item is about."""
        kind, key = item.about
        return {"type": kind, "id": key, "name": item.name}


class NeedsPersonSerializer(serializers.Serializer[Any]):
    """The response: at most 100 items of each kind, the oldest first, and the number of all by kind."""

    count = serializers.IntegerField()
    counts = serializers.DictField(child=serializers.IntegerField())
    results = ItemSerializer(many=True)


class NeedsPersonList(APIView):
    """What needs attention, in the part of the fleet that the caller may see."""

    schema = Schema()

    @extend_schema(
        operation_id="needs_person_list",
        parameters=[OpenApiParameter("cluster", str, OpenApiParameter.QUERY)],
        responses={200: NeedsPersonSerializer},
    )
    def get(self, request: Request) -> Response:
        """Returns at most 100 items of each kind, the oldest first, and the number of all by kind."""
        base.known_only(request, ("cluster",))
        scope = accounts.scope(principal(request))
        clusters = scope.clusters()
        if "cluster" in request.query_params:
            name = get_object_or_404(clusters, name=request.query_params["cluster"]).name
            clusters = clusters.filter(name=name)
        found = needs.parts(scope, list(clusters), limit=MAX_LISTED, now=timezone.now())
        counts = {kind: number for kind, (number, _items) in found.items()}
        items = [item for _number, listed in found.values() for item in listed]
        return Response(NeedsPersonSerializer({"count": sum(counts.values()), "counts": counts, "results": items}).data)
