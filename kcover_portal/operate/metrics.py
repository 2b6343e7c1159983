"""Prometheus metrics, read from the database at each scrape, so that all processes return the same values."""

from collections import Counter
from collections.abc import Iterable
from datetime import datetime, timedelta

from django.conf import settings
from django.db.models import Count, DurationField, ExpressionWrapper, F, Sum, Value
from django.utils import timezone
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric, SummaryMetricFamily
from prometheus_client.registry import Collector

from kcover import reasons
from kcover.decisions import guards
from kcover_portal import needs_person
from kcover_portal.anchors import queries as anchors
from kcover_portal.audit_stream import queries as audit_stream
from kcover_portal.checks.models import CheckRun
from kcover_portal.fleet import queries as fleet
from kcover_portal.fleet.models import Node
from kcover_portal.incidents.models import Incident
from kcover_portal.ledger import queries as ledger
from kcover_portal.notify import queries as notify
from kcover_portal.operate import autopilot, health
from kcover_portal.preflight.models import PreflightRun
from kcover_portal.rescue.models import Decision, Rescue, Step
from kcover_portal.runtime import queries as runtime
from kcover_portal.sources import queries as sources

DAY = timedelta(days=1)
MAX_DECISIONS = 5_000


class Rows(Collector):
    """The portal's state as gauges."""

    def collect(self) -> Iterable[Metric]:
        """Yields the families; each is one aggregate query."""
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
            Node.objects.filter(in_cluster=True).values_list("cluster__name").annotate(n=Count("pk")),
        )
        now = timezone.now()
        yield _durations()
        yield _refusals(now=now)
        yield from _ingest()
        yield _counted(
            "kcover_check_runs",
            "Runs of checks on many nodes, by cluster and state",
            ("cluster", "state"),
            CheckRun.objects.values_list("cluster__name", "state").annotate(n=Count("pk")),
        )
        yield _counted(
            "kcover_preflight_runs",
            "Preflight runs by cluster and state",
            ("cluster", "state"),
            PreflightRun.objects.values_list("cluster__name", "state").annotate(n=Count("pk")),
        )
        people = GaugeMetricFamily("kcover_needs_person", "Items that need attention", labels=("cluster", "kind"))
        for labels, count in needs_person.counts(fleet.clusters(), now=now).items():
            people.add_metric(labels, count)
        yield people
        text = f"Agents that have not reported for {fleet.AGENT_SILENT_AFTER.total_seconds():.0f} s"
        silent = GaugeMetricFamily("kcover_agents_silent", text, labels=("cluster",))
        counts = dict(fleet.silent_agents(now=now).values_list("node__cluster__name").annotate(n=Count("pk")))
        for cluster in fleet.clusters():  # including zeros, so that alerts can distinguish 0 from no data
            silent.add_metric((cluster.name,), counts.get(cluster.name, 0))
        yield silent
        yield _counted(
            "kcover_notify_deliveries",
            "Stored messages by channel and state",
            ("channel", "state"),
            notify.counts(),
        )
        waiting = GaugeMetricFamily("kcover_notify_waiting_seconds", "Age of the oldest message that is being retried")
        oldest = notify.oldest_waiting()
        waiting.add_metric((), (now - oldest).total_seconds() if oldest else 0.0)
        yield waiting
        yield from _heads(now=now)
        yield from _sinks(now=now)
        yield from _sources(now=now)
        swept_at = runtime.heartbeat("sweep")
        age = GaugeMetricFamily("kcover_sweep_age_seconds", "Seconds since the last sweep")
        if swept_at is not None:
            age.add_metric((), (now - swept_at).total_seconds())
        yield age
        well = GaugeMetricFamily("kcover_well", "1 if the portal's own check passes", labels=("check",))
        for finding in health.findings(now=now):
            well.add_metric((finding.name,), float(finding.well))
        yield well


def _durations() -> Metric:
    family = SummaryMetricFamily(
        "kcover_rescue_phase_seconds",
        "Duration of finished steps, and of rescues as a whole",
        labels=("cluster", "phase"),
    )
    steps = Step.objects.filter(started_at__isnull=False, finished_at__isnull=False)
    whole = Rescue.objects.filter(closed_at__isnull=False)
    for rows, cluster, phase, took in (
        (steps, "rescue__cluster__name", F("name"), F("finished_at") - F("started_at")),
        (whole, "cluster__name", Value("rescue"), F("closed_at") - F("opened_at")),
    ):
        lengths = Sum(ExpressionWrapper(took, output_field=DurationField()))
        sums = rows.order_by().annotate(phase=phase).values_list(cluster, "phase").annotate(n=Count("pk"), sum=lengths)
        for name, of, count, total in sums:
            family.add_metric((name, of), count_value=count, sum_value=total.total_seconds())
    return family


def _refusals(*, now: datetime) -> Metric:
    """Counts decisions that guards held back in the last day. Only the newest MAX_DECISIONS are read."""
    text = "Decisions of the last 24 hours that the guard held back"
    family = GaugeMetricFamily("kcover_guard_refusals", text, labels=("cluster", "guard"))
    counts: Counter[tuple[str, str]] = Counter()
    rows = Decision.objects.filter(answer=Decision.Answer.HOLD).order_by("-pk")[:MAX_DECISIONS]
    for cluster, because, count, last_at in rows.values_list("cluster__name", "because", "count", "last_at"):
        if now - last_at <= DAY:
            codes = [reasons.from_json(reason).code for reason in because]
            counts.update({(cluster, guard): count for guard in {guards.guard_of(code) for code in codes} if guard})
    for labels, count in sorted(counts.items()):
        family.add_metric(labels, count)
    return family


def _ingest() -> Iterable[Metric]:
    counts = runtime.counts("ingest")
    reports = CounterMetricFamily("kcover_ingest_reports", "Reports of agents by outcome", labels=("end",))
    for end, name in (("kept", "reports"), ("failed", "failed"), ("busy", "busy"), ("limited", "limited")):
        reports.add_metric((end,), counts.get(name, 0))
    yield reports
    items = CounterMetricFamily("kcover_ingest_items", "Faults and results in stored reports", labels=("end",))
    for end in ("accepted", "duplicates", "rejected"):
        items.add_metric((end,), counts.get(end, 0))
    yield items


def _heads(*, now: datetime) -> Iterable[Metric]:
    """The heads of the audit log's chains. Prometheus keeps them outside of the database, so they are an anchor too."""
    text = "Newest entry of the audit log by chain; cluster empty: the installation"
    newest = GaugeMetricFamily("kcover_ledger_sequence", text, labels=("cluster",))
    text = "First 48 bits of that entry's digest, as a number"
    digest = GaugeMetricFamily("kcover_ledger_digest", text, labels=("cluster",))
    for cluster, sequence, hexadecimal in ledger.heads():
        newest.add_metric((cluster,), sequence)
        digest.add_metric((cluster,), int(hexadecimal[:12] or "0", 16))
    yield from (newest, digest)
    age = GaugeMetricFamily("kcover_ledger_heads_age_seconds", "Age of the last signed heads", labels=("place",))
    failing = GaugeMetricFamily("kcover_ledger_heads_failing", "1 if the last attempt failed", labels=("place",))
    for row in anchors.publications():
        failing.add_metric((row.place,), float(bool(row.problem)))
        if row.published_at is not None:
            age.add_metric((row.place,), (now - row.published_at).total_seconds())
    yield from (age, failing)
    unanswered = anchors.unanswered_divergence()
    diverged = GaugeMetricFamily("kcover_ledger_diverged", "1 if the database lacks what an anchor says")
    diverged.add_metric((), float(unanswered is not None))
    yield diverged


def _sources(*, now: datetime) -> Iterable[Metric]:
    """What sources report, and whether they work."""
    labels = ("source", "kind", "cluster")
    well = GaugeMetricFamily("kcover_source_well", "1 if the source works; only those switched on", labels=labels)
    lag = GaugeMetricFamily("kcover_source_lag_seconds", "From the newest event to its arrival", labels=labels)
    events = CounterMetricFamily("kcover_source_events", "Events by outcome", labels=(*labels, "end"))
    rows = list(sources.all_sources())
    troubles = sources.troubles(rows, now=now)
    for row in rows:
        named = (row.name, row.kind, row.cluster.name)
        if row.enabled:
            well.add_metric(named, float(row.pk not in troubles))
        if row.lag is not None:
            lag.add_metric(named, row.lag)
        for end, count in (("accepted", row.accepted), ("duplicates", row.duplicates), ("rejected", row.rejected)):
            events.add_metric((*named, end), count)
    yield from (well, lag, events)


def _sinks(*, now: datetime) -> Iterable[Metric]:
    """The lag of the sinks of the audit stream."""
    behind = GaugeMetricFamily("kcover_audit_stream_behind", "Records that a sink has not received", labels=("sink",))
    text = "Age of the oldest record that a sink has not received"
    lag_seconds = GaugeMetricFamily("kcover_audit_stream_lag_seconds", text, labels=("sink",))
    failing = GaugeMetricFamily("kcover_audit_stream_failing", "1 if the last attempt failed", labels=("sink",))
    failures = CounterMetricFamily("kcover_audit_stream_failures", "Failed attempts", labels=("sink",))
    sent = CounterMetricFamily("kcover_audit_stream_records", "Records that a sink has received", labels=("sink",))
    text = "Records that the receiver refused for good, and that wait for a person"
    aside = GaugeMetricFamily("kcover_audit_stream_set_aside", text, labels=("sink",))
    heads = audit_stream.Heads()
    for sink in audit_stream.sinks():
        if sink.kind == "mail":
            aside.add_metric((sink.name,), audit_stream.count_set_aside(sink))
        if sink.enabled:
            lag = audit_stream.lag(sink, now=now, heads=heads)
            behind.add_metric((sink.name,), lag.records)
            lag_seconds.add_metric((sink.name,), lag.age.total_seconds())
            failing.add_metric((sink.name,), float(bool(sink.problem) or audit_stream.open_issue(sink) is not None))
        failures.add_metric((sink.name,), sink.failures)
        sent.add_metric((sink.name,), sink.sent)
    yield from (behind, lag_seconds, failing, failures, sent, aside)


def _counted(name: str, text: str, labels: tuple[str, ...], rows: Iterable[tuple[object, ...]]) -> Metric:
    family = GaugeMetricFamily(name, text, labels=labels)
    for *values, count in rows:
        family.add_metric([str(value) for value in values], float(str(count)))
    return family


def render() -> bytes:
    """Returns all metrics in the Prometheus text format."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(Rows())
    return generate_latest(registry) + autopilot.exposition(most=settings.KCOVER_METRICS_RESULTS).encode()
