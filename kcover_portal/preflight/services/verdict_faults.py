"""Verdicts as incidents: a flagged node becomes a fault, and a later clean run of the node ends it.

Faults are reported in a task, one by one, because there may be many and the nodes' reports must not wait for them.
"""

from datetime import datetime

from django.db import transaction
from django.db.models import Min

from kcover import preflight, reasons
from kcover_portal.incidents import services as incidents
from kcover_portal.incidents.models import Incident
from kcover_portal.preflight import queries
from kcover_portal.preflight.models import PreflightReport, PreflightRun

MAX_VERDICTS = 200  # reported as faults per round

Verdict = PreflightReport.Verdict


def report_verdicts(*, now: datetime) -> int:
    """Reports a fault for each flagged node, once; returns the number of faults."""
    return sum(_report_verdict(pk, now=now) for pk in queries.unreported_verdicts()[:MAX_VERDICTS])


@transaction.atomic
def _report_verdict(report_id: int, *, now: datetime) -> bool:
    waiting = PreflightReport.objects.filter(
        pk=report_id, reported_at=None, verdict__in=(Verdict.ABNORMAL, Verdict.SLOW)
    )
    if not waiting.update(reported_at=now):
        return False
    report = PreflightReport.objects.select_related("run", "node__cluster").get(pk=report_id)
    run = report.run
    workload = f"{run.namespace}/{run.workload}"
    because = reasons.of("preflight_flagged", run=str(run.pk), workload=workload, why=_why(report))
    seen = incidents.PortalFault(
        kind="preflight", code=report.verdict, because=because, earliest=report.at, source="preflight"
    )
    incidents.keep_found(report.node, seen, now=now)
    return True


def _why(report: PreflightReport) -> reasons.Reason:
    """Returns the verdict about the report's node."""
    if report.verdict == Verdict.ABNORMAL:
        failed = preflight.read(report.body).failed_checks
        return reasons.of("preflight_abnormal", node=report.node.name, checks=", ".join(failed))
    slow = (part for stored in report.run.because for part in reasons.stored_saying(stored, "preflight_slow"))
    return next(reason for reason in slow if dict(reason.params)["node"] == report.node.name)


def close_cleared(run: PreflightRun, verdict: preflight.Verdict, *, now: datetime) -> None:
    """Closes incidents of earlier runs that this complete run disproves.

    A run is a proof only about faults from before its first report, which may have arrived late. See
    ``preflight.cleared``.
    """
    made_at = run.reports.aggregate(first=Min("at"))["first"]
    before = min(run.first_at, made_at or run.first_at)
    cleared = preflight.cleared(queries.core_run(run), verdict)
    names = {*cleared.abnormal, *cleared.slow}
    rows = Incident.objects.filter(
        node__cluster=run.cluster,
        node__name__in=names,
        kind="preflight",
        state=Incident.State.OPEN,
        last_at__lt=before,
    ).select_related("node")
    proved = {Verdict.ABNORMAL.value: cleared.abnormal, Verdict.SLOW.value: cleared.slow}
    ended = [row.pk for row in rows if row.node is not None and row.node.name in proved.get(row.code, ())]
    workload = f"{run.namespace}/{run.workload}"
    because = reasons.of("preflight_cleared", run=str(run.pk), workload=workload)
    incidents.close(ended, because=because, actor="system", before=before, now=now)
