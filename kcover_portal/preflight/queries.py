"""Reads preflight runs."""

from datetime import datetime

from django.db.models import Q

from kcover import preflight
from kcover_portal.fleet.models import Cluster
from kcover_portal.preflight.models import PairPlan, PairTest, PreflightReport, PreflightRun


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


def plans_at_work(*, now: datetime) -> list[int]:
    """Returns the ids of plans of pair tests that are due: they run, or their Jobs are not all deleted."""
    due = Q(again_at=None) | Q(again_at__lte=now)
    return list(PairPlan.objects.filter(due, cleaned=False).order_by("pk").values_list("pk", flat=True))


def nodes_in_plans(cluster: Cluster) -> set[str]:
    """Returns the names of the nodes that running plans of the cluster test."""
    tests = PairTest.objects.filter(plan__cluster=cluster, plan__state=PairPlan.State.RUNNING)
    return {name for pair in tests.values_list("first__name", "second__name") for name in pair}
