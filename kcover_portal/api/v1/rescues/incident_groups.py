"""Incidents as groups, so that one cause is one row."""

from typing import Any, Final

import django_filters as filters
from django.db.models import QuerySet
from django.utils.translation import gettext_lazy as _
from drf_spectacular.utils import extend_schema, extend_schema_serializer
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from kcover_portal.api import query_params
from kcover_portal.api.v1 import base
from kcover_portal.incidents.models import Incident
from kcover_portal.shared_reads import incident_groups
from kcover_portal.shared_reads.filtersets import IncidentFilter

MAX_GROUPS: Final = 500
USUAL: Final = "fault"


class IncidentGroupFilter(IncidentFilter):
    """The filters of incidents, and how those that pass are grouped."""

    by = filters.ChoiceFilter(
        choices=[(name, name) for name in incident_groups.GROUPINGS], method="kept", label=_("Group by")
    )

    def kept(self, rows: QuerySet[Incident], name: str, value: str) -> QuerySet[Incident]:
        """All rows: the view groups them."""
        return rows


class IncidentGroupSerializer(serializers.Serializer[Any]):
    """A group. What does not name it is null. ``open``: without faults of programs."""

    kind = serializers.CharField(default=None, allow_null=True)
    code = serializers.CharField(default=None, allow_null=True)
    cluster = serializers.CharField(source="cluster__name", default=None, allow_null=True)
    node = serializers.CharField(source="node__name", default=None, allow_null=True)
    gpu_uuid = serializers.CharField(default=None, allow_null=True)
    job = serializers.CharField(source="node__jobs_seen__job", default=None, allow_null=True)
    incidents = serializers.IntegerField()
    open = serializers.IntegerField(source="opened")
    occurrences = serializers.IntegerField(source="lines")
    nodes = serializers.IntegerField(source="on", help_text="on how many nodes they are")
    first_at = serializers.DateTimeField(source="first")
    last_at = serializers.DateTimeField(source="last")


@extend_schema_serializer(many=False)
class IncidentGroupsSerializer(serializers.Serializer[Any]):
    """The groups, those with open incidents first, then the latest."""

    by = serializers.ChoiceField(list(incident_groups.GROUPINGS))
    results = IncidentGroupSerializer(many=True)
    more = serializers.IntegerField(help_text="how many groups are left out")


class IncidentGroups(base.ListViewSet[Incident]):
    """Incidents as groups."""

    queryset = Incident.objects.all()
    serializer_class = IncidentGroupsSerializer
    filterset_class = IncidentGroupFilter
    pagination_class = None  # type: ignore[assignment]  # at most MAX_GROUPS

    @extend_schema(operation_id="incidents_groups", responses={200: IncidentGroupsSerializer})
    def list(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """Groups the incidents that the filters select, by fault unless ``by`` says otherwise. Storms are left out."""
        query_params.refuse_unknown(request, IncidentGroupFilter.base_filters)
        rows = self.filter_queryset(self.get_queryset())
        by = request.query_params.get("by") or USUAL
        found = incident_groups.groups(rows, by)
        page = list(found[: MAX_GROUPS + 1])
        more = found.count() - MAX_GROUPS if len(page) > MAX_GROUPS else 0
        return Response(IncidentGroupsSerializer({"by": by, "results": page[:MAX_GROUPS], "more": more}).data)
