"""Nodes and GPUs, with their health."""

from collections.abc import Callable
from typing import Any, Literal, cast

from django.db.models import QuerySet
from django.utils import timezone
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers
from rest_framework.generics import get_object_or_404

from kcover.nodes import health, node_stage
from kcover_portal.api import pagination
from kcover_portal.api.v1 import base
from kcover_portal.fleet import queries as fleet
from kcover_portal.fleet.filtersets import GpuFilter
from kcover_portal.fleet.models import Agent, Cluster, Gpu, Node
from kcover_portal.incidents import queries as incidents
from kcover_portal.incidents.queries import NodeHealth
from kcover_portal.shared_reads import nodes
from kcover_portal.shared_reads.filtersets import NodeFilter

NodeState = Literal["gone", "rescue", "faulty", "unknown", "not-ready", "cordoned", "healthy"]


class AgentSerializer(serializers.ModelSerializer[Agent]):
    """The last report of a node's agent. ``skew`` is the seconds that its clock is ahead."""

    class Meta:
        model = Agent
        fields = ("seen_at", "version", "boot_id", "boot_seen_at", "skew")


class CauseSerializer(serializers.Serializer[Any]):
    """A cause of bad health; ``about`` names the object.

    Kinds: an open ``fault``, a failing ``check``, one of them ``flapping``, the agent's ``silence``, the cluster's
    ``ready`` condition.
    """

    kind = serializers.ChoiceField(health.CAUSES)
    about = serializers.CharField()
    state = serializers.ChoiceField(health.STATES)


class HealthSerializer(serializers.Serializer[Any]):
    """Health from open faults, checks and the agent's silence; the worst cause first."""

    state = serializers.ChoiceField(health.STATES)
    causes = CauseSerializer(many=True)


class TopologySerializer(serializers.Serializer[Any]):
    """Where a node is; "" where no label says it. The cluster's ``topology`` names the labels."""

    rack = serializers.CharField()
    leaf = serializers.CharField(help_text="leaf switch")
    nvlink = serializers.CharField(help_text="NVLink domain")
    pool = serializers.CharField()


def _health_of(serializer: serializers.BaseSerializer[Any], node: Node, node_of: Callable[[Any], Node]) -> NodeHealth:
    """Returns the node's health, computed once for all rows of the page; ``node_of`` maps a row to its node."""
    context = cast("dict[str, Any]", serializer.context)  # the root's context, shared by all fields
    cache: dict[int, NodeHealth] = context.setdefault("health_of", {})
    if node.pk not in cache:
        parent = serializer.parent
        rows = parent.instance if isinstance(parent, serializers.ListSerializer) else None
        nodes = {row_node.pk: row_node for row_node in (map(node_of, rows) if rows is not None else (node,))}
        cache.update(incidents.health_of(list(nodes.values()), now=timezone.now()))
    return cache[node.pk]


class NodeSerializer(serializers.ModelSerializer[Node]):
    """A node with its state, its open faults and its open rescue."""

    cluster = serializers.SlugRelatedField[Cluster](slug_field="name", read_only=True)
    state = serializers.SerializerMethodField()
    stage = serializers.SerializerMethodField()
    cordoned = serializers.BooleanField(source="unschedulable", read_only=True)
    known = serializers.BooleanField(source="in_cluster", read_only=True, help_text="the same as in_cluster")
    agent = AgentSerializer(read_only=True, allow_null=True)
    faults = serializers.IntegerField(read_only=True, help_text="open incidents that are faults of the node")
    rescue = serializers.IntegerField(read_only=True, allow_null=True, help_text="the open rescue's id")
    health = serializers.SerializerMethodField()
    topology = serializers.SerializerMethodField()

    class Meta:
        model = Node
        fields = (
            "id",
            "cluster",
            "name",
            "state",
            "stage",
            "health",
            "known",
            "in_cluster",
            "ready",
            "ready_since",
            "unready_since",
            "cordoned",
            "pool",
            "topology",
            "model",
            "gpus",
            "unallocatable",
            "faults",
            "rescue",
            "labels",
            "taints",
            "conditions",
            "marks",
            "probation_until",
            "not_ready_since",
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
        """Returns the first state that applies. The filter ``state`` matches every state that applies."""
        holds: dict[NodeState, bool] = {
            "gone": node.gone_at is not None,
            "rescue": node.rescue is not None,
            "faulty": node.faults > 0,
            "unknown": not node.in_cluster,
            "not-ready": not node.ready,
            "cordoned": node.unschedulable,
        }
        return next((state for state, held in holds.items() if held), "healthy")

    def get_stage(self, node: Any) -> node_stage.Stage:
        """Returns the stage on its way out of service and back, by the label ``kcover.io/state``."""
        return node_stage.of(node.labels)

    @extend_schema_field(HealthSerializer)
    def get_health(self, node: Any) -> Any:
        """Returns the node's health, which is independent of ``state``."""
        return HealthSerializer(_health_of(self, node, lambda row: row).node).data

    @extend_schema_field(TopologySerializer)
    def get_topology(self, node: Any) -> Any:
        """Returns where the node is, by domain."""
        return fleet.topology_of(node)


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
        """Returns the GPU's health; unknown if the node's agent is silent."""
        return HealthSerializer(_health_of(self, gpu.node, lambda row: row.node).gpus[gpu.pk]).data


class Nodes(base.ReadViewSet[Node]):
    """Nodes, oldest first."""

    queryset = Node.objects.all()
    node_field = ""
    serializer_class = NodeSerializer
    filterset_class = NodeFilter
    pagination_class = pagination.OldestFirst

    def get_queryset(self) -> QuerySet[Node]:
        """Returns the nodes with the counts that their state depends on."""
        return nodes.with_condition(super().get_queryset().select_related("cluster", "agent"))

    def get_object(self) -> Node:
        """Returns the node by cluster and name."""
        return get_object_or_404(self.get_queryset(), cluster__name=self.kwargs["cluster"], name=self.kwargs["name"])


class Gpus(base.ListViewSet[Gpu]):
    """GPUs of the agents' last inventories."""

    queryset = Gpu.objects.select_related("node__cluster", "node__agent")
    serializer_class = GpuSerializer
    filterset_class = GpuFilter
    pagination_class = pagination.OldestFirst
    cluster_field = "node__cluster"
