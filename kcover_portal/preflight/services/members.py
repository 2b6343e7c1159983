"""Checks with the cluster that a node takes part in a workload."""

from kcover import reasons
from kcover_portal.fleet import queries as fleet
from kcover_portal.fleet.models import Cluster
from kcover_portal.fleet.services import node_selection
from kcover_portal.kube import port, values

GROUP_LABEL = "leaderworkerset.sigs.k8s.io/group-index"  # newer kcover appends it to the workload's name


def has_pod(cluster: Cluster, node: str, *, namespace: str, workload: str) -> bool:
    """Returns whether the cluster shows a pod of the workload on the node. Raises node_selection.Unanswered."""
    try:
        pods = fleet.connect(cluster).list_pods(node=node)
    except port.KubeError as error:
        silent = reasons.of("cluster_not_answering", cluster=cluster.name, error=str(error))
        raise node_selection.Unanswered(silent, retry_after=getattr(error, "retry_after", None)) from error
    # A kubelet may create mirror pods with the labels of any job.
    taking_part = (pod for pod in pods if not pod.mirror and pod.namespace == namespace)
    return any(workload in _workloads(pod) for pod in taking_part)


def _workloads(pod: port.Pod) -> set[str]:
    """The names by which a preflight report may call the pod's workload."""
    names = {pod.labels[label] for label in values.JOB_LABELS if label in pod.labels} | {pod.owner_name}
    if group := pod.labels.get(GROUP_LABEL):
        names |= {f"{name}-{group}" for name in names}
    return names - {""}
