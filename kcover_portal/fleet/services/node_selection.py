"""Which nodes are meant: by name, by what runs on them, by label; together the union, nothing means all GPU nodes."""

from collections.abc import Sequence

from django.db.models import QuerySet

from kcover_portal.errors import FieldError
from kcover_portal.fleet import queries
from kcover_portal.fleet.filtersets import NodeFilter
from kcover_portal.fleet.models import Cluster, Node
from kcover_portal.kube import port

MAX_NAMED = 5  # nodes in an error message


class Unanswered(Exception):
    """The cluster was asked, and does not say; ``retry_after`` seconds, if it said so much."""

    def __init__(self, message: str, *, retry_after: float | None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


def nodes(cluster: Cluster, *, hosts: Sequence[str] = (), job: str = "", nodelabel: str = "") -> list[Node]:
    """The nodes, by name. ``job`` is ``namespace:key=value``, ``nodelabel`` is ``key=value``.

    Raises FieldError for what is none or finds none, Unanswered where the cluster would have to say and does not.
    """
    here = Node.objects.filter(cluster=cluster, in_cluster=True).order_by("name")
    if not (hosts or job or nodelabel):
        return list(here.filter(gpus__gt=0))
    names = {*hosts, *(_of_job(cluster, job) if job else ())}
    found = {node.name: node for node in here.filter(name__in=names)}
    if missing := [name for name in hosts if name not in found]:
        listed = ", ".join(missing[:MAX_NAMED]) + (
            f" and {len(missing) - MAX_NAMED} more" if len(missing) > MAX_NAMED else ""
        )
        raise FieldError("host", f"cluster {cluster.name} has no node {listed}")
    if nodelabel:
        found |= {node.name: node for node in _labelled(here, nodelabel)}
    return [found[name] for name in sorted(found)]


def _of_job(cluster: Cluster, job: str) -> set[str]:
    namespace, _, label = job.partition(":")
    key, equals, value = label.partition("=")
    if not namespace or not key or not equals:
        raise FieldError("job", f"must be namespace:key=value, not {job}")
    try:
        pods = queries.connect(cluster).list_pods(namespace=namespace, labels={key: value})
    except port.Unavailable as error:
        raise Unanswered(
            f"the cluster {cluster.name} does not answer: {error}", retry_after=error.retry_after
        ) from None
    except port.KubeError as error:
        raise FieldError("job", f"cluster {cluster.name} rejected the query: {error}") from error
    names = {pod.node for pod in pods if pod.node and not pod.terminal}
    if not names:
        raise FieldError("job", f"no scheduled pod in {namespace} has the label {label}")
    return names


def _labelled(rows: QuerySet[Node], nodelabel: str) -> list[Node]:
    key, equals, _ = nodelabel.partition("=")
    if not key or not equals:
        raise FieldError("nodelabel", f"must be key=value, not {nodelabel}")
    found = list(NodeFilter({"label": nodelabel}, queryset=rows).qs)
    if not found:
        raise FieldError("nodelabel", f"no node has the label {nodelabel}")
    return found
