"""Answers of people to requests for approval."""

from rest_framework import serializers

from kcover_portal.api.v1 import base
from kcover_portal.rescue.filtersets import ApprovalFilter
from kcover_portal.rescue.models import Approval


class ApprovalSerializer(serializers.ModelSerializer[Approval]):
    """A person's approval or rejection, bound to a plan."""

    cluster = serializers.CharField(source="rescue.cluster.name", read_only=True)
    node = serializers.CharField(source="rescue.node.name", read_only=True)

    class Meta:
        model = Approval
        fields = (
            "id",
            "rescue",
            "cluster",
            "node",
            "plan_hash",
            "approved",
            "by",
            "controllers",
            "via",
            "reason",
            "at",
        )


class Approvals(base.ListViewSet[Approval]):
    """Approvals and rejections by people, newest first."""

    queryset = Approval.objects.select_related("rescue__cluster", "rescue__node")
    serializer_class = ApprovalSerializer
    filterset_class = ApprovalFilter
    cluster_field = "rescue__cluster"
    node_field = "rescue__node"
