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


def alarms(seen: Scope, clusters: Collection[Cluster], *, now: datetime) -> list[Alarm]:
    """The present blocks of automation: storms, open breakers and maintenance windows.

    ``clusters``: those that are wholly in the scope. A window that names only nodes out of it is left out.
    """
    found = [
        Alarm(
            presentation.of("guard", "storm"),
            storm.cluster.name,
            _("Storm: %(symptom)s on %(n)d nodes. Their drains, resets and reboots wait until a person closes it.")
            % {"symptom": symptom(storm), "n": len(storm.scope)},
            storm.pk,
        )
        for storm in safety.storms(clusters)
    ]
    for cluster, isolated, limit in _tripped(clusters, now=now):
        text = _(
            "Breaker open: %(n)d nodes isolated within %(within)s (limit %(limit)d). No more nodes will be isolated."
        )
        within = duration(fleet.guards_of(cluster).breaker.window)
        look = presentation.of("guard", "breaker")
        found.append(Alarm(look, cluster.name, text % {"n": isolated, "within": within, "limit": limit}))
    for window in safety.windows(clusters, now=now).filter(
        starts_at__lte=now, node=""
    ):  # a node's own page shows its windows
        scope = maintenance_scopes.within(seen, window)
        if window.scope.nodes and not scope.nodes:
            continue
        text = _("Maintenance of %(where)s: no node is cordoned, drained or rebooted. %(why)s") % {
            "where": safety.where_of(scope) or (window.cluster.name if window.cluster else _("all clusters")),
            "why": window.reason,
        }
        found.append(
            Alarm(presentation.of("guard", "maintenance"), window.cluster.name if window.cluster else "", text)
        )
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
