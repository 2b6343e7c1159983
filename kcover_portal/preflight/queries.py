"""Reads of preflight runs."""

from datetime import datetime

from kcover import preflight
from kcover_portal.preflight.models import PreflightReport, PreflightRun


def kernel_run(run: PreflightRun) -> preflight.Run:
    """The run with all its reports as values for the rule; one query."""
    rows = run.reports.values_list("node__name", "body")
    return preflight.Run(
        size=run.size, first_at=run.first_at, reports={name: preflight.read(body) for name, body in rows}
    )


def expiring(*, now: datetime) -> list[int]:
    """Runs past their deadline."""
    rows = PreflightRun.objects.filter(state=PreflightRun.State.WAITING, due_at__lte=now).order_by("due_at")
    return list(rows.values_list("pk", flat=True))


def to_tell(*, limit: int) -> list[int]:
    """Reports whose verdict is not yet an incident, oldest first."""
    flagged = (PreflightReport.Verdict.ABNORMAL, PreflightReport.Verdict.SLOW)
    rows = PreflightReport.objects.filter(verdict__in=flagged, told_at=None).order_by("pk")
    return list(rows.values_list("pk", flat=True)[:limit])
