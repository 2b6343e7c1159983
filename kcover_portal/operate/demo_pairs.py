"""The demo's pair tests: one plan on nodes without work, which the simulator's kubelets run."""

from datetime import datetime

from kcover_portal.fleet import queries as fleet
from kcover_portal.fleet.models import Cluster, Node
from kcover_portal.fleet.services import node_rows
from kcover_portal.preflight.services import pair_plans

IMAGE = "registry.example/pytorch:2"  # never pulled: no container runs in the simulator
MAX_NODES = 8
LEAST_NODES = 3  # two cannot be told apart


def begin(cluster: Cluster, *, now: datetime) -> None:
    """Requests a plan, if enough nodes have no work. Workers run it once the portal has started."""
    kube = fleet.connect(cluster)
    node_rows.sync_list(cluster, kube.list_nodes().items, now=now)
    busy = {pod.node for pod in kube.list_pods() if pod.gpus and not pod.terminal}
    rows = Node.objects.filter(cluster=cluster, in_cluster=True, gpus__gt=0, ready=True, unschedulable=False)
    free = [node for node in rows.order_by("name") if node.name not in busy][:MAX_NODES]
    if len(free) >= LEAST_NODES:
        wish = pair_plans.Wish(reason="demo")
        pair_plans.begin(cluster, free, wish, actor="demo", now=now)
