"""Collects preflight reports into runs.

A run's row is locked while a report changes it. The verdict is therefore computed once, from all reports, whatever
their order and repetitions.
"""

import json
import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db import IntegrityError, transaction
from django.db.models import F

from kcover import audit, preflight, reasons
from kcover.values.quote import short_text
from kcover_portal.fleet.models import Cluster, Node
from kcover_portal.fleet.queries.boots import boots_of
from kcover_portal.fleet.services import node_events
from kcover_portal.fleet.services.node_events import NodeEvent
from kcover_portal.ledger import services as ledger
from kcover_portal.lib import doorbell
from kcover_portal.preflight import queries
from kcover_portal.preflight.models import PreflightRefusal, PreflightReport, PreflightRun
from kcover_portal.preflight.services import verdict_faults
from kcover_portal.runtime.services import retention

log = logging.getLogger(__name__)

FIELDS = (
    *("workload_size", "rank", "node_name", "node_ip", "gpu_check", "storage_check", "node_check_busbw_threshold_gbps"),
)
BATCH_FIELDS = (
    *("batch_idx", "pair", "self_ip", "status", "allreduce_ms", "world_size", "allreduce_shape", "dtype_bytes"),
)
MAX_FIELD_CHARS = 200  # meaningful values are shorter
NUL = "\\u0000"  # PostgreSQL cannot store it
MAX_REFUSALS = 100  # stored per workload
MAX_OPEN_RUNS = 16  # that one node has reports in
EXPIRED_EVENT = "PreflightExpired"  # the reason of a Kubernetes Event about the node that reported first
AGREED = 2  # nodes that report one size; another node that reports another size does not end their run

Waiting, Complete, Expired = PreflightRun.State.WAITING, PreflightRun.State.COMPLETE, PreflightRun.State.EXPIRED
Verdict = PreflightReport.Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """The workload of a run. ``uid`` is that of its owner object; it distinguishes reruns."""

    cluster: Cluster
    namespace: str
    name: str
    uid: str = ""

    @property
    def key(self) -> dict[str, Any]:
        """The columns that identify the workload."""
        return {"cluster": self.cluster, "namespace": self.namespace, "workload": self.name, "uid": self.uid}


@dataclass(frozen=True, slots=True, kw_only=True)
class AddedReport:
    """The run that a report was added to, and what the report changed (``kcover.preflight.CHANGES``)."""

    run: PreflightRun
    change: str
    because: reasons.Reason | None


def receive(
    workload: Workload,
    body: Mapping[str, Any],
    *,
    now: datetime,
    within: timedelta | None = None,
    at: datetime | None = None,
) -> AddedReport:
    """Stores one node's report, and the verdict if it was the last report of the run.

    ``within``: the time to collect the reports of a run that this report begins; None: the cluster's. ``at``: when the
    report was made at the earliest, by the node's clock; None: now. Raises preflight.ReportInvalid for a rejected
    report, after storing the reason.
    """
    try:
        if NUL in json.dumps(body):
            raise preflight.ReportInvalid("", "preflight_nul")
        report = preflight.read(body)
        node = Node.objects.filter(cluster=workload.cluster, name=report.node, in_cluster=True).first()
        if node is None:
            unknown = {"cluster": workload.cluster.name, "node": short_text(report.node)}
            raise preflight.ReportInvalid("node_name", "preflight_node_unknown", **unknown)
    except preflight.ReportInvalid as refusal:
        _refuse(workload, body, refusal, now=now)
        raise
    while True:
        try:
            with transaction.atomic():
                return _take(workload, node, report, body, within=within, at=at, now=now)
        except IntegrityError:  # two concurrent first reports: the other one created the run
            log.info(
                "preflight of %s/%s: concurrent first reports; retrying",
                workload.namespace,
                workload.name,
            )


def _take(
    workload: Workload,
    node: Node,
    report: preflight.Report,
    body: Mapping[str, Any],
    *,
    within: timedelta | None,
    at: datetime | None,
    now: datetime,
) -> AddedReport:
    runs = PreflightRun.objects.select_for_update(no_key=True).filter(**workload.key).order_by("-pk")
    run = runs.filter(state=Waiting, size=report.size).first() or runs.first()
    if run is None or not run.reports.filter(node=node).exists():
        _bound_open_runs(node)
    head = earlier = row = None
    if run is not None and run.state != Expired:
        head = preflight.RunSummary(size=run.size, first_at=run.first_at, received=run.received)
        row = run.reports.filter(node=node).first()
        earlier = preflight.read(row.body) if row is not None else None
    collect = run.due_at - run.first_at if run is not None else preflight.COLLECT_TIMEOUT
    change = preflight.classify(head, earlier, report, now=now, within=collect)
    if change.name == "same" and run is not None:
        return AddedReport(run=run, change="same", because=None)
    beside = run is not None and not change.over and _agreed_on_another_size(run, node, report)
    if beside and run is not None:
        others = {"size": report.size, "before": run.size, "received": run.received}
        change = preflight.ReportChange(
            name="counted", because=reasons.of("preflight_size_beside", node=node.name, **others)
        )
    if change.name == "restarted" and run is not None and run.state == Waiting:
        _end(run, now=now, dropped=change.because)
    if run is None or head is None or beside or change.name == "restarted":
        within = within or timedelta(seconds=workload.cluster.preflight_within)
        run, row = _begin(workload, report, within=within, now=now), None
    verdict = Verdict.ABNORMAL if report.failed_checks else Verdict.NONE
    PreflightReport.objects.update_or_create(
        run=run,
        node=node,
        defaults={
            "body": _kept(body, report),
            "verdict": verdict,
            "at": _made_at(node, at, now=now),
            "reported_at": row.reported_at if row is not None and row.verdict == verdict else None,
        },
    )
    received = F("received") + int(change.name != "replaced")
    PreflightRun.objects.filter(pk=run.pk).update(received=received, last_at=now)
    run.refresh_from_db()
    if run.received >= run.size:
        _complete(run, now=now)
    elif report.failed_checks or change.name == "replaced":
        abnormal = run.reports.filter(verdict=Verdict.ABNORMAL).order_by("node__name")
        run.abnormal = list(abnormal.values_list("node__name", flat=True))
        run.save(update_fields=["abnormal"])
    if run.abnormal or run.slow:
        doorbell.ring("preflight.report_verdicts")
    doorbell.publish("preflight", run.pk, cluster=workload.cluster.name)
    return AddedReport(run=run, change=change.name, because=change.because)


def _made_at(node: Node, at: datetime | None, *, now: datetime) -> datetime:
    """When the report was made at the earliest, by the portal's clock: an Event may be read long after it."""
    if at is None:
        return now
    return min(at - max(boots_of(node).clock_ahead, timedelta()), now)


def _agreed_on_another_size(run: PreflightRun, node: Node, report: preflight.Report) -> bool:
    """Returns whether several other nodes collect for a size that the report contradicts."""
    return (
        run.state == Waiting and run.size != report.size and run.reports.exclude(node=node)[:AGREED].count() == AGREED
    )


def _bound_open_runs(node: Node) -> None:
    """Raises preflight.ReportInvalid if the node has reports in too many runs that wait for others."""
    if PreflightReport.objects.filter(node=node, run__state=Waiting)[:MAX_OPEN_RUNS].count() == MAX_OPEN_RUNS:
        raise preflight.ReportInvalid("", "preflight_open_runs", most=MAX_OPEN_RUNS)


def _begin(workload: Workload, report: preflight.Report, *, within: timedelta, now: datetime) -> PreflightRun:
    """Creates the run. Raises IntegrityError if another report has just created it."""
    run = PreflightRun.objects.create(**workload.key, size=report.size, first_at=now, last_at=now, due_at=now + within)
    run.rejected = PreflightRefusal.objects.filter(**workload.key, run=None).update(run=run)
    run.save(update_fields=["rejected"])
    return run


def _complete(run: PreflightRun, *, now: datetime) -> None:
    """Ends a complete run with the verdict."""
    verdict = preflight.evaluate(queries.core_run(run), now=now)
    run.state, run.ended_at = Complete, now
    run.slow, run.abnormal, run.suspects = list(verdict.slow), list(verdict.abnormal), list(verdict.suspects)
    run.because = [reason.to_json() for reason in verdict.because]
    run.save(update_fields=["state", "ended_at", "slow", "abnormal", "suspects", "because"])
    for name, nodes in ((Verdict.SLOW, verdict.slow), (Verdict.SUSPECT, verdict.suspects)):
        run.reports.filter(node__name__in=nodes).update(verdict=name)
    _note(run, audit.PreflightComplete, now=now)
    verdict_faults.close_cleared(run, verdict, now=now)


def _end(run: PreflightRun, *, now: datetime, dropped: reasons.Reason | None = None) -> None:
    """Ends a run without a verdict on slowness: at its deadline, or for the reason ``dropped``."""
    if dropped is None:
        within = run.due_at - run.first_at
        because: Collection[reasons.Reason] = preflight.evaluate(
            queries.core_run(run), now=run.due_at, within=within
        ).because
    else:
        because = (dropped,)
    run.state, run.ended_at, run.because = Expired, now, [reason.to_json() for reason in because]
    run.save(update_fields=["state", "ended_at", "because"])
    _note(run, audit.PreflightExpired, now=now)
    log.warning("%s: %s", run, "; ".join(map(str, because)))


def expire(run_id: int, *, now: datetime) -> bool:
    """Ends a run past its deadline; returns False if it has ended by now."""
    with transaction.atomic():
        due = PreflightRun.objects.select_for_update(no_key=True).filter(pk=run_id, state=Waiting, due_at__lte=now)
        run = due.first()
        if run is not None:
            _end(run, now=now)
            doorbell.publish("preflight", run.pk, cluster=run.cluster.name)
    return run is not None


def announce(cluster: Cluster, expired: Collection[int], *, now: datetime) -> None:
    """Writes a Kubernetes Event about each of these runs, as kcover does, until one cannot be written."""
    for run in PreflightRun.objects.filter(cluster=cluster, pk__in=expired, state=Expired).order_by("pk"):
        first = run.reports.select_related("node").order_by("at", "pk").first()
        if first is None:
            continue
        why = "; ".join(str(reasons.from_json(each)) for each in run.because)
        message, name = f"{run.namespace}/{run.workload}: {why}", f"preflight-{run.pk}"
        event = NodeEvent.about(cluster, first.node, name, EXPIRED_EVENT, message, warning=True, now=now)
        if not all(node_events.write(cluster, [event])):
            return


def _kept(body: Mapping[str, Any], report: preflight.Report) -> dict[str, Any]:
    """Returns the known fields of a report."""
    kept = _short(body, FIELDS)
    if report.batches:
        slots = {batch.slot for batch in report.batches}
        kept["batches"] = [_short(row, BATCH_FIELDS) for row in body["batches"] if row["batch_idx"] in slots]
    return kept


def _short(values: Mapping[str, Any], names: Collection[str]) -> dict[str, Any]:
    """The short values that PostgreSQL stores in JSON: without NaN, infinities and lone surrogates."""
    return {name: values[name] for name in names if name in values and _is_kept(values[name])}


def _is_kept(value: object) -> bool:
    if len(str(value)) > MAX_FIELD_CHARS:
        return False
    try:
        return bool(json.dumps(value, allow_nan=False, ensure_ascii=False).encode())
    except ValueError:  # UnicodeEncodeError is one
        return False


@transaction.atomic
def _refuse(workload: Workload, body: Mapping[str, Any], refusal: preflight.ReportInvalid, *, now: datetime) -> None:
    run = PreflightRun.objects.filter(**workload.key).order_by("-pk").first()
    node = body.get("node_name")
    PreflightRefusal.objects.create(
        **workload.key,
        run=run,
        node=node[:253].replace("\0", "") if isinstance(node, str) else "",
        path=refusal.path[:200],
        because=refusal.reason.to_json(),
        at=now,
    )
    if run is not None:
        PreflightRun.objects.filter(pk=run.pk).update(rejected=F("rejected") + 1)
        doorbell.publish("preflight", run.pk, cluster=workload.cluster.name)
    refusals = PreflightRefusal.objects.filter(**workload.key).order_by("-pk")
    oldest = refusals.values_list("pk", flat=True)[MAX_REFUSALS:]
    PreflightRefusal.objects.filter(pk__in=list(oldest)).delete()


def _note(run: PreflightRun, kind: type[audit.PreflightAct], *, now: datetime) -> None:
    entry = kind(
        run=run.pk,
        namespace=run.namespace,
        workload=run.workload,
        received=run.received,
        expected=run.size,
        slow=tuple(run.slow[: audit.MAX_NAMED_NODES]),
        abnormal=tuple(run.abnormal[: audit.MAX_NAMED_NODES]),
        suspects=tuple(run.suspects),
    )
    ledger.record(run.cluster.name, entry, actor="system", now=now)


def prune(*, now: datetime) -> int:
    """Deletes old runs and refusals; returns the number of runs."""
    PreflightRefusal.objects.filter(at__lt=retention.before(PreflightRefusal, now=now), run=None).delete()
    ended = PreflightRun.objects.exclude(state=Waiting)
    return retention.delete(ended.filter(ended_at__lt=retention.before(PreflightRun, now=now)), batch=500)
