"""Reads preflight runs."""

from datetime import datetime

from kcover import preflight
from kcover_portal.preflight.models import PairPlan, PreflightReport, PreflightRun


def core_run(run: PreflightRun) -> preflight.Run:
    """Returns the run with all its reports as values of the core; one query."""
    rows = run.reports.values_list("node__name", "body")
    return preflight.Run(
        size=run.size, first_at=run.first_at, reports={name: preflight.read(body) for name, body in rows}
    )


def expiring(*, now: datetime) -> list[int]:
    """Returns the ids of runs past their deadline."""
    rows = PreflightRun.objects.filter(state=PreflightRun.State.WAITING, due_at__lte=now).order_by("due_at")
    return list(rows.values_list("pk", flat=True))


def unreported_verdicts(*, limit: int) -> list[int]:
    """Returns the ids of reports whose verdict is not reported as a fault yet, oldest first."""
    flagged = (PreflightReport.Verdict.ABNORMAL, PreflightReport.Verdict.SLOW)
    rows = PreflightReport.objects.filter(verdict__in=flagged, reported_at=None).order_by("pk")
    return list(rows.values_list("pk", flat=True)[:limit])


def running_plans() -> list[int]:
    """Returns the ids of plans of pair tests that have not ended."""
    return list(PairPlan.objects.filter(state=PairPlan.State.RUNNING).order_by("pk").values_list("pk", flat=True))
