"""Nodes and GPUs, with their health."""

from collections.abc import Callable
from typing import Any, Literal, cast

from django.db.models import QuerySet
from django.utils import timezone
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers
from rest_framework.generics import get_object_or_404

from kcover.decisions import health
from kcover_portal.api import pagination
from kcover_portal.api.v1 import base
from kcover_portal.fleet.filtersets import GpuFilter
from kcover_portal.fleet.models import Agent, Cluster, Gpu, Node
from kcover_portal.incidents import queries as incidents
from kcover_portal.incidents.queries import NodeHealth
from kcover_portal.views import nodes
from kcover_portal.views.filtersets import NodeFilter

NodeState = Literal["gone", "rescue", "faulty", "unknown", "not-ready", "cordoned", "healthy"]


class AgentSerializer(serializers.ModelSerializer[Agent]):
    """The last word of a node's agent; ``skew`` is seconds its clock is ahead."""

    class Meta:
        model = Agent
        fields = ("seen_at", "version", "boot_id", "boot_seen_at", "skew")


class CauseSerializer(serializers.Serializer[Any]):
    """What speaks against health: an open ``fault``, a ``check`` that fails, either of them ``flapping``, the agent's
    ``silence``, the cluster's word (``ready``); ``about`` names which."""

    kind = serializers.ChoiceField(health.CAUSES)
    about = serializers.CharField()
    state = serializers.ChoiceField(health.STATES)


class HealthSerializer(serializers.Serializer[Any]):
    """How well something is, from open faults, checks and the agent's silence; the worst cause first."""

    state = serializers.ChoiceField(health.STATES)
    causes = CauseSerializer(many=True)


def _health_of(serializer: serializers.BaseSerializer[Any], node: Node, page: Callable[[Any], Node]) -> NodeHealth:
    """The node's health, asked for once for all rows of the page that the serializer is at; ``page``: a row's node."""
    context = cast("dict[str, Any]", serializer.context)  # the root's, which all of its fields share
    held: dict[int, NodeHealth] = context.setdefault("health_of", {})
    if node.pk not in held:
        many = serializer.parent
        rows = many.instance if isinstance(many, serializers.ListSerializer) else None
        nodes = {one.pk: one for one in (map(page, rows) if rows is not None else (node,))}
        held.update(incidents.health_of(list(nodes.values()), now=timezone.now()))
    return held[node.pk]


class NodeSerializer(serializers.ModelSerializer[Node]):
    """A node, with the one word for its state, its open faults and its open rescue."""

    cluster = serializers.SlugRelatedField[Cluster](slug_field="name", read_only=True)
    state = serializers.SerializerMethodField()
    cordoned = serializers.BooleanField(source="unschedulable", read_only=True)
    known = serializers.BooleanField(source="in_cluster", read_only=True, help_text="the same as in_cluster")
    agent = AgentSerializer(read_only=True, allow_null=True)
    faults = serializers.IntegerField(read_only=True, help_text="open incidents that are faults of the node")
    rescue = serializers.IntegerField(read_only=True, allow_null=True, help_text="the open rescue's id")
    health = serializers.SerializerMethodField()

    class Meta:
        model = Node
        fields = (
            "id",
            "cluster",
            "name",
            "state",
            "health",
            "known",
            "in_cluster",
            "ready",
            "ready_since",
            "cordoned",
            "pool",
            "model",
            "gpus",
            "faults",
            "rescue",
            "labels",
            "taints",
            "conditions",
            "marks",
            "driver",
            "kernel",
            "kubelet",
            "address",
            "boot_id",
            "agent",
            "created_at",
            "synced_at",
            "gone_at",
        )

    def get_state(self, node: Any) -> NodeState:
        """The first that holds; the filter ``state`` finds nodes for which it holds at all."""
        holds: dict[NodeState, bool] = {
            "gone": node.gone_at is not None,
            "rescue": node.rescue is not None,
            "faulty": node.faults > 0,
            "unknown": not node.in_cluster,
            "not-ready": not node.ready,
            "cordoned": node.unschedulable,
        }
        return next((state for state, held in holds.items() if held), "healthy")

    @extend_schema_field(HealthSerializer)
    def get_health(self, node: Any) -> Any:
        """Beside ``state``, which is one word for all that is going on."""
        return HealthSerializer(_health_of(self, node, lambda row: row).node).data


class GpuSerializer(serializers.ModelSerializer[Gpu]):
    """A GPU of a node's last inventory."""

    cluster = serializers.CharField(source="node.cluster.name", read_only=True)
    node = serializers.CharField(source="node.name", read_only=True)
    health = serializers.SerializerMethodField()

    class Meta:
        model = Gpu
        fields = ("id", "uuid", "cluster", "node", "index", "pci", "model", "serial", "health", "seen_at")

    @extend_schema_field(HealthSerializer)
    def get_health(self, gpu: Any) -> Any:
        """What names this GPU; of a node that is not heard of nothing is known."""
        return HealthSerializer(_health_of(self, gpu.node, lambda row: row.node).gpus[gpu.pk]).data


class Nodes(base.Reads[Node]):
    """Nodes, in the order in which they became known."""

    queryset = Node.objects.all()
    serializer_class = NodeSerializer
    filterset_class = NodeFilter
    pagination_class = pagination.Oldest

    def get_queryset(self) -> QuerySet[Node]:
        """With the counts that a node's state depends on, in the same query."""
        return nodes.with_condition(super().get_queryset().select_related("cluster", "agent"))

    def get_object(self) -> Node:
        """The node by cluster and name."""
        return get_object_or_404(self.get_queryset(), cluster__name=self.kwargs["cluster"], name=self.kwargs["name"])


class Gpus(base.Lists[Gpu]):
    """GPUs as the agents last listed them."""

    queryset = Gpu.objects.select_related("node__cluster", "node__agent")
    serializer_class = GpuSerializer
    filterset_class = GpuFilter
    pagination_class = pagination.Oldest
    cluster_field = "node__cluster"
