"""Selects nodes by name, job and label. The result is the union; without a selection, all GPU nodes."""

from collections.abc import Sequence

from django.db.models import QuerySet

from kcover import reasons
from kcover_portal.fleet import queries
from kcover_portal.fleet.filtersets import NodeFilter
from kcover_portal.fleet.models import Cluster, Node
from kcover_portal.kube import port
from kcover_portal.lib.errors import FieldError

MAX_NAMED = 5  # nodes in an error message


class Unanswered(reasons.ExplainedError):
    """The cluster does not answer. ``retry_after`` is in seconds, None if the cluster did not send it."""

    def __init__(self, reason: reasons.Reason, *, retry_after: float | None) -> None:
        super().__init__(reason)
        self.retry_after = retry_after


def nodes(cluster: Cluster, *, hosts: Sequence[str] = (), job: str = "", nodelabel: str = "") -> list[Node]:
    """Returns the nodes, by name. ``job`` is ``namespace:key=value``, ``nodelabel`` is ``key=value``.

    Raises FieldError if a selector is malformed or finds nothing, Unanswered if the cluster does not answer.
    """
    listed_nodes = Node.objects.filter(cluster=cluster, in_cluster=True).order_by("name")
    if not (hosts or job or nodelabel):
        return list(listed_nodes.filter(gpus__gt=0))
    names = {*hosts, *(_of_job(cluster, job) if job else ())}
    found = {node.name: node for node in listed_nodes.filter(name__in=names)}
    if missing := [name for name in hosts if name not in found]:
        listed = reasons.named(missing, most=MAX_NAMED)
        raise FieldError("host", reasons.of("nodes_missing", cluster=cluster.name, nodes=listed))
    if nodelabel:
        found |= {node.name: node for node in _labelled(listed_nodes, nodelabel)}
    return [found[name] for name in sorted(found)]


def _of_job(cluster: Cluster, job: str) -> set[str]:
    namespace, _, label = job.partition(":")
    key, equals, value = label.partition("=")
    if not namespace or not key or not equals:
        raise FieldError("job", reasons.of("job_selector_invalid", selector=job))
    try:
        pods = queries.connect(cluster).list_pods(namespace=namespace, labels={key: value})
    except port.Unavailable as error:
        silent = reasons.of("cluster_not_answering", cluster=cluster.name, error=str(error))
        raise Unanswered(silent, retry_after=error.retry_after) from None
    except port.KubeError as error:
        raise FieldError("job", reasons.of("job_query_rejected", cluster=cluster.name, error=str(error))) from error
    names = {pod.node for pod in pods if pod.node and not pod.terminal}
    if not names:
        raise FieldError("job", reasons.of("job_without_pods", namespace=namespace, label=label))
    return names


def _labelled(rows: QuerySet[Node], nodelabel: str) -> list[Node]:
    key, equals, _ = nodelabel.partition("=")
    if not key or not equals:
        raise FieldError("nodelabel", reasons.of("label_selector_invalid", selector=nodelabel))
    found = list(NodeFilter({"label": nodelabel}, queryset=rows).qs)
    if not found:
        raise FieldError("nodelabel", reasons.of("label_without_nodes", label=nodelabel))
    return found
