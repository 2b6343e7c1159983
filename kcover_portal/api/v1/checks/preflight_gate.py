"""The preflight gate of nodes, for schedulers."""

from django.db.models import QuerySet
from django.utils import timezone
from rest_framework import serializers

from kcover.preflight import gate
from kcover_portal.api import pagination
from kcover_portal.api.v1 import base
from kcover_portal.fleet.filtersets import NodeFilter
from kcover_portal.fleet.models import Cluster, Node
from kcover_portal.preflight import queries


class PreflightGateSerializer(serializers.ModelSerializer[Node]):
    """The gate of a node. ``plan``: its last plan. ``until``: when a gate that is passed becomes unknown."""

    cluster = serializers.SlugRelatedField[Cluster](slug_field="name", read_only=True)
    node = serializers.CharField(source="name")
    gate = serializers.SerializerMethodField()
    plan = serializers.SerializerMethodField()
    passed_at = serializers.SerializerMethodField()
    until = serializers.SerializerMethodField()

    class Meta:
        model = Node
        fields = ("cluster", "node", "gate", "plan", "passed_at", "until")

    def get_gate(self, row: Node) -> str:
        """One of passed, failed and unknown."""
        return queries.gate_of(row, now=timezone.now()).value

    def get_plan(self, row: Node) -> int | None:
        """The id of the plan."""
        found = queries.gate_row(row)
        return found.plan_id if found else None

    def get_passed_at(self, row: Node) -> str | None:
        """When it passed."""
        found = queries.gate_row(row)
        return found.passed_at.isoformat() if found and found.passed_at else None

    def get_until(self, row: Node) -> str | None:
        """The end of a gate that is passed."""
        found = queries.gate_row(row)
        if found is None or found.passed_at is None or self.get_gate(row) != gate.Gate.PASSED:
            return None
        return (found.passed_at + gate.GATE_AGE).isoformat()


class Gates(base.ListViewSet[Node]):
    """The preflight gate of each node with GPUs."""

    queryset = Node.objects.filter(in_cluster=True, gpus__gt=0)
    node_field = ""
    serializer_class = PreflightGateSerializer
    filterset_class = NodeFilter
    pagination_class = pagination.OldestFirst

    def get_queryset(self) -> QuerySet[Node]:
        """Returns the nodes with what the gate depends on."""
        return queries.gates(super().get_queryset().select_related("cluster"))
