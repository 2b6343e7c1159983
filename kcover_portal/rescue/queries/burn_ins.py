"""Nodes before their first work: which of them need a burn-in, and what is in the way of one."""

from typing import Final

from django.db.models import Exists, OuterRef, Q, QuerySet

from kcover import reasons
from kcover.plans import lifecycle
from kcover_portal.fleet.models import Cluster, Node
from kcover_portal.rescue.models import Rescue, Step
from kcover_portal.rescue.queries import capacity

MAX_DUE: Final = 20  # of one cluster in one round


def of_nodes() -> QuerySet[Rescue]:
    """Rescues that are burn-ins."""
    return Rescue.objects.filter(Exists(Step.objects.filter(rescue=OuterRef("pk"), args__burn_in=True)))


def due(cluster: Cluster) -> QuerySet[Node]:
    """Nodes of the cluster for which a burn-in may begin, as its setting says and the watch shows."""
    if cluster.burn_in == Cluster.BurnIn.OFF:
        return Node.objects.none()
    rescues = Rescue.objects.filter(node=OuterRef("pk"))
    busy = rescues.filter(Q(state__in=lifecycle.OPEN_RESCUE) | ~Q(marks={}))
    nodes = Node.objects.filter(_wanted(cluster), cluster=cluster, in_cluster=True, ready=True, gpus__gt=0, marks={})
    return capacity.not_excluded(nodes).exclude(Exists(busy)).order_by("pk")


def _wanted(cluster: Cluster) -> Q:
    """Nodes with the readiness taint, and new machines if the setting says so. Each is burnt in once.

    A node whose burn-in has ended gets another one if it was tainted again or had another rescue since.
    """
    burnt_in = of_nodes().filter(node=OuterRef("pk"))
    later = Rescue.objects.filter(node=OuterRef("node"), pk__gt=OuterRef("pk"))
    mine = burnt_in.filter(node_uid=OuterRef("uid"))
    over = mine.filter(closed_at__gte=OuterRef("not_ready_since")).exclude(Exists(later))
    wanted = Q(~Exists(over), not_ready_since__isnull=False)
    if cluster.burn_in == Cluster.BurnIn.NEW and cluster.burn_in_new_since is not None:
        known = burnt_in.filter(opened_at__gte=OuterRef("machine_since"))
        wanted |= Q(~Exists(known), not_ready_since=None, machine_since__gt=cluster.burn_in_new_since)
    return wanted


def gpu_nodes_of_pool(node: Node) -> QuerySet[Node]:
    """The GPU nodes that the cluster has in the node's pool."""
    return Node.objects.filter(cluster=node.cluster_id, pool=node.pool, in_cluster=True, gpus__gt=0)


def in_burn_in(node: Node) -> int:
    """The number of GPU nodes of the node's pool that are before their first work, or about to be."""
    begun = of_nodes().filter(node=OuterRef("pk"), state__in=lifecycle.OPEN_RESCUE)
    return gpu_nodes_of_pool(node).filter(Exists(begun) | Q(not_ready_since__isnull=False)).count()


def waits_because(node: Node) -> reasons.Reason | None:
    """Why the node with the readiness taint is in no burn-in; None if it is in one, or has no taint."""
    if node.not_ready_since is None or not node.in_cluster:
        return None
    rescues = Rescue.objects.filter(node=node)
    under_way = rescues.filter(state__in=lifecycle.OPEN_RESCUE)
    if of_nodes().filter(pk__in=under_way).exists():
        return None
    conditions = (
        (node.cluster.burn_in == Cluster.BurnIn.OFF, reasons.of("burn_in_off", cluster=node.cluster.name)),
        (under_way.exists(), reasons.of("burn_in_rescue_open")),
        (rescues.exclude(marks={}).exists(), reasons.of("burn_in_marked")),
        (node.gpus < 1, reasons.of("burn_in_no_gpus")),
        (not node.ready, reasons.of("burn_in_not_ready")),
        (not due(node.cluster).filter(pk=node.pk).exists(), reasons.of("burn_in_over")),
    )
    return next((reason for applies, reason in conditions if applies), reasons.of("burn_in_due"))
