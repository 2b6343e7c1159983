"""The alarms at the top of each page: what blocks automation now."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import datetime

from django.utils.translation import gettext as _

from kcover_portal.accounts.queries import Scope
from kcover_portal.console import presentation
from kcover_portal.console.badge import Badge
from kcover_portal.console.fault_names import symptom
from kcover_portal.console.reads import safety
from kcover_portal.console.reads.step_facts import duration
from kcover_portal.fleet import queries as fleet
from kcover_portal.fleet.models import Cluster
from kcover_portal.rescue.models import Rescue
from kcover_portal.rescue.queries import capacity
from kcover_portal.shared_reads import maintenance_scopes


@dataclass(frozen=True, slots=True)
class Alarm:
    """Something that blocks automation now, for the banner of every page."""

    look: Badge
    cluster: str
    text: str
    storm: int | None = None
    part: str = ""  # of the cluster, where it holds in a part only


def alarms(seen: Scope, clusters: Collection[Cluster], *, now: datetime) -> list[Alarm]:
    """The present blocks of automation: storms, open breakers and maintenance windows.

    For a cluster that is only partly in the scope, an alarm says that it exists, and no more. A window that names only
    nodes outside of the scope is left out.
    """
    found = [
        Alarm(
            presentation.of("guard", "storm"),
            storm.cluster.name,
            _("Storm: %(symptom)s on %(n)d nodes. Their drains, resets and reboots wait until a person closes it.")
            % {"symptom": symptom(storm), "n": len(storm.scope)}
            if storm.cluster in seen
            else _("A storm is open. Drains, resets and reboots of its nodes wait until a person closes it."),
            storm.pk if storm.cluster in seen else None,
        )
        for storm in safety.storms(clusters)
    ]
    for cluster, isolated, limit in _tripped(clusters, now=now):
        text = _(
            "Breaker open: %(n)d nodes isolated within %(within)s (limit %(limit)d). No more nodes will be isolated."
        )
        within = duration(fleet.guards_of(cluster).breaker.window)
        look = presentation.of("guard", "breaker")
        told = text % {"n": isolated, "within": within, "limit": limit}
        found.append(
            Alarm(look, cluster.name, told if cluster in seen else _("Breaker open: no more nodes will be isolated."))
        )
    for window in safety.windows(clusters, now=now).filter(
        starts_at__lte=now, node=""
    ):  # a node's own page shows its windows
        scope = maintenance_scopes.within(seen, window)
        part = safety.where_of(scope)
        if (window.scope.nodes and not scope.nodes) or (part and window.cluster and window.cluster not in seen):
            continue
        told = (
            _("Maintenance of %(where)s only: these nodes are not cordoned, drained or rebooted. %(why)s")
            if part
            else _("Maintenance of %(where)s: no node is cordoned, drained or rebooted. %(why)s")
        )
        text = told % {
            "where": part or (_("the whole cluster") if window.cluster else _("all clusters")),
            "why": window.reason if window.cluster is None or window.cluster in seen else "",
        }
        look = presentation.of("guard", "maintenance")
        found.append(Alarm(look, window.cluster.name if window.cluster else "", text.rstrip(), part=part))
    return found


def _tripped(clusters: Collection[Cluster], *, now: datetime) -> Iterable[tuple[Cluster, int, int]]:
    """Clusters with their breaker open. Clusters in which nothing was isolated lately cost one query together."""
    settings = {cluster.pk: fleet.guards_of(cluster).breaker for cluster in clusters}
    longest = max((breaker.window for breaker in settings.values() if breaker.enabled), default=None)
    if longest is None:
        return
    busy = Rescue.objects.filter(cluster__in=clusters, opened_at__gte=now - longest).order_by()
    for cluster in Cluster.objects.filter(pk__in=busy.values("cluster").distinct()).order_by("name"):
        breaker = settings[cluster.pk]
        if not breaker.enabled:
            continue
        isolated = capacity.isolated(cluster, since=now - breaker.window)
        limit = breaker.limit.of(capacity.eligible(cluster).count()) if isolated else 1
        if isolated >= limit:
            yield cluster, isolated, limit
