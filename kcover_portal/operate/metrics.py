"""Prometheus metrics, read from the rows at each scrape: one truth, whichever process is asked."""

from collections.abc import Iterable

from django.db.models import Count
from django.utils import timezone
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from kcover_portal.fleet import queries as fleet
from kcover_portal.fleet.models import Node
from kcover_portal.incidents.models import Incident
from kcover_portal.operate import health
from kcover_portal.rescue.models import Decision, Rescue


class Rows(Collector):
    """The portal's state as gauges."""

    def collect(self) -> Iterable[Metric]:
        """One family at a time; each is one aggregate query."""
        yield _counted(
            "kcover_incidents",
            "Incidents by cluster, kind and state",
            ("cluster", "kind", "state"),
            Incident.objects.values_list("cluster__name", "kind", "state").annotate(n=Count("pk")),
        )
        yield _counted(
            "kcover_rescues",
            "Rescues by cluster, state and outcome",
            ("cluster", "state", "outcome"),
            Rescue.objects.values_list("cluster__name", "state", "outcome").annotate(n=Count("pk")),
        )
        yield _counted(
            "kcover_decisions",
            "Decisions by cluster and answer",
            ("cluster", "answer"),
            Decision.objects.values_list("cluster__name", "answer").annotate(n=Count("pk")),
        )
        yield _counted(
            "kcover_nodes",
            "Nodes that the cluster has",
            ("cluster",),
            Node.objects.filter(known=True).values_list("cluster__name").annotate(n=Count("pk")),
        )
        now = timezone.now()
        text = f"Agents not heard of for {fleet.AGENT_SILENT_AFTER.total_seconds():.0f} s"
        silent = GaugeMetricFamily("kcover_agents_silent", text, labels=("cluster",))
        counts = dict(fleet.silent_agents(now=now).values_list("node__cluster__name").annotate(n=Count("pk")))
        for cluster in fleet.clusters():  # 0 too: an alert must tell none silent from no data
            silent.add_metric((cluster.name,), counts.get(cluster.name, 0))
        yield silent
        pulse = fleet.pulse("sweep")
        age = GaugeMetricFamily("kcover_sweep_age_seconds", "Seconds since the last sweep")
        if pulse is not None:
            age.add_metric((), (now - pulse).total_seconds())
        yield age
        well = GaugeMetricFamily("kcover_well", "1 where the portal's own check is well", labels=("check",))
        for finding in health.findings(now=now):
            well.add_metric((finding.name,), float(finding.well))
        yield well


def _counted(name: str, text: str, labels: tuple[str, ...], rows: Iterable[tuple[object, ...]]) -> Metric:
    family = GaugeMetricFamily(name, text, labels=labels)
    for *values, count in rows:
        family.add_metric([str(value) for value in values], float(str(count)))
    return family


def render() -> bytes:
    """The exposition text."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(Rows())
    return generate_latest(registry)
