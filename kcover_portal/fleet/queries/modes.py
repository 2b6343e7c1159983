"""The mode of automation in a cluster: the strictest of environment, installation and cluster."""

from collections.abc import Iterator
from datetime import datetime
from typing import Any

from django.conf import settings
from django.db.models import QuerySet, Subquery
from django.utils import timezone

from kcover.policy import modes
from kcover_portal.fleet.models import Cluster, Node
from kcover_portal.lib.prepared import Prepared
from kcover_portal.runtime import queries as runtime
from kcover_portal.runtime.models import Installation, Mode

MODES_WITHOUT_WRITES = ("paused", "shadow")  # modes in which nothing is written to a cluster
_WHOLE_MODE = Subquery(Installation.objects.filter(pk=1).values("mode"))
_WHOLE_REASON = Subquery(Installation.objects.filter(pk=1).values("reason"))


def mode_of(cluster: Cluster) -> tuple[str, str]:
    """Returns the strictest mode of environment, installation and cluster, and the reason if it is a pause."""
    whole = runtime.installation()
    return _strictest((whole.mode, whole.reason), (own_mode(cluster), cluster.pause_reason))


def own_mode(cluster: Cluster, *, mode: str = "") -> str:
    """Returns the cluster's mode; at most shadow while another system acts on its nodes, or may act.

    ``mode``: another one in place of the cluster's, such as that in which it resumes.
    """
    return _own_mode(mode or cluster.mode, cluster.acted_on_by, cluster.action_lease, cluster.acts_until)


def _own_mode(mode: str, acted_on_by: str, action_lease: bool, acts_until: datetime | None) -> str:
    elsewhere = acted_on_by or (action_lease and not holds_lease(acts_until))
    return modes.strictest(mode, Mode.SHADOW) if elsewhere else mode


def holds_lease(acts_until: datetime | None) -> bool:
    """Returns whether no other portal acts at this moment, by the clock of this machine: a call may follow at once."""
    return acts_until is not None and timezone.now() < acts_until


def may_lead(cluster: Cluster) -> bool:
    """Returns whether the modes let the portal act in the cluster once it holds the Lease of ``action_lease``."""
    whole = runtime.installation().mode
    own = _own_mode(cluster.mode, cluster.acted_on_by, action_lease=False, acts_until=None)
    return modes.strictest(settings.KCOVER_MODE, whole, own) not in MODES_WITHOUT_WRITES


def with_mode(nodes: QuerySet[Node]) -> QuerySet[Node]:
    """The nodes with the installation's mode beside their cluster's, for ``mode_beside``."""
    return nodes.select_related("cluster").annotate(installation_mode=_WHOLE_MODE, installation_reason=_WHOLE_REASON)


def mode_beside(node: Node) -> tuple[str, str]:
    """``mode_of`` the cluster of a node that ``with_mode`` has read, without another query."""
    whole: tuple[str | None, str | None] = vars(node)["installation_mode"], vars(node)["installation_reason"]
    return _strictest((whole[0] or Mode.ENFORCE, whole[1] or ""), (own_mode(node.cluster), node.cluster.pause_reason))


def mode_now(cluster: Cluster) -> tuple[str, str]:
    """``mode_of`` by what the rows say at this moment, in one query. Raises Cluster.DoesNotExist."""
    row = _MODE.first(cluster=cluster.pk)
    if row is None:
        raise Cluster.DoesNotExist
    return _mode_of_row(*row)


_MODE: Prepared[tuple[Any, ...]] = Prepared(
    lambda cluster: Cluster.objects.order_by().filter(pk=cluster).values_list(*_mode_columns("")), cluster=int
)


def modes_in(rows: QuerySet[Any], cluster: str, *columns: str) -> Iterator[tuple[tuple[Any, ...], tuple[str, str]]]:
    """The columns of each row, and ``mode_now`` for the row's cluster, in one query.

    ``cluster``: the row's relation to its cluster.
    """
    for row in rows.values_list(*columns, *_mode_columns(f"{cluster}__")):
        yield row[: len(columns)], _mode_of_row(*row[len(columns) :])


def _mode_columns(prefix: str) -> tuple[str | Subquery, ...]:
    """What ``_mode_of_row`` needs of a row whose cluster's columns have the prefix."""
    own = ("mode", "acted_on_by", "action_lease", "acts_until", "pause_reason")
    return (*(f"{prefix}{name}" for name in own), _WHOLE_MODE, _WHOLE_REASON)


def _mode_of_row(
    mode: str,
    acted_on_by: str,
    action_lease: bool,
    acts_until: datetime | None,
    reason: str,
    whole_mode: str | None,
    whole_reason: str | None,
) -> tuple[str, str]:
    own = _own_mode(mode, acted_on_by, action_lease, acts_until)
    return _strictest((whole_mode or Mode.ENFORCE, whole_reason or ""), (own, reason))


def _strictest(whole: tuple[str, str], cluster: tuple[str, str]) -> tuple[str, str]:
    mode = modes.strictest(settings.KCOVER_MODE, whole[0], cluster[0])
    return mode, whole[1] if whole[0] == Mode.PAUSED else cluster[1]
