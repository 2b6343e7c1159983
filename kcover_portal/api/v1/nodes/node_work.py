"""What runs on a node now."""

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
from kcover_portal.api.v1.jobs.jobs import JobSerializer
from kcover_portal.api.v1.reason_fields import ReasonSerializer
from kcover_portal.fleet.models import Node
from kcover_portal.runtime.services import concurrency_limits
from kcover_portal.shared_reads import node_work


class NodePodSerializer(serializers.Serializer[node_work.NodePod]):
    """A pod that has not ended. ``owner``: the kind and name of its controller."""

    namespace = serializers.CharField(source="pod.namespace")
    name = serializers.CharField(source="pod.name")
    owner = serializers.SerializerMethodField()
    gpus = serializers.IntegerField(source="pod.gpus")
    phase = serializers.CharField(source="pod.phase")
    evicted = serializers.BooleanField(source="moves", help_text="on a drain")

    def get_owner(self, one: node_work.NodePod) -> str:
        return f"{one.pod.owner_kind} {one.pod.owner_name}".strip()


class NodeWorkSerializer(serializers.Serializer[node_work.NodeWork]):
    """The training jobs and pods of a node, pods with GPUs first.

    ``unavailable``: why the cluster does not answer, null if it does; the rest is then empty.
    """

    jobs = JobSerializer(many=True)
    pods = NodePodSerializer(many=True)
    more = serializers.IntegerField(help_text="how many pods are left out")
    unavailable = serializers.SerializerMethodField()
    unavailable_reason = ReasonSerializer(source="unavailable", allow_null=True)

    def get_unavailable(self, work: node_work.NodeWork) -> str | None:
        return str(work.unavailable) if work.unavailable else None


class NodeWorkView(base.ActionView):
    """The workloads of a node."""

    @extend_schema(operation_id="nodes_work", responses={200: NodeWorkSerializer})
    def get(self, request: Request, cluster: str, name: str) -> Response:
        """Returns the training jobs and pods on the node, as the cluster answers now."""
        base.known_only(request)
        scope = accounts.scope(principal(request))
        rows: Any = scope.rows(Node.objects.select_related("cluster"), node="")
        node: Node = get_object_or_404(rows, cluster__name=cluster, name=name)
        with base.place(request, concurrency_limits.CLUSTER_READS):
            found = node_work.of(node, scope, now=timezone.now())
        return Response(NodeWorkSerializer(found).data)
