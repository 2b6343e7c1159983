"""Reads of check runs."""

from django.db.models import Max

from kcover_portal.checks.models import CheckRun, CheckTarget


def running() -> list[int]:
    """Keys of the runs that are not over, oldest first."""
    rows = CheckRun.objects.filter(state=CheckRun.State.RUNNING).order_by("pk")
    return list(rows.values_list("pk", flat=True))


def storage_results(*, limit: int) -> list[tuple[str, str, str, str, float | None, str, str]]:
    """The result of each cluster's latest run of pvc, by node, in the shape of ``fleet.queries.latest_results``.

    The result describes the cluster, so a later run also replaces the results of nodes that only earlier runs had.
    Two queries.
    """
    passed = CheckRun.objects.filter(storage__status__in=("pass", "fail")).order_by().values("cluster")
    latest = list(passed.annotate(run=Max("pk")).values_list("run", flat=True))
    targets = CheckTarget.objects.filter(run__in=latest, node__in_cluster=True).order_by("pk")
    rows = targets.values_list("run__cluster__name", "node__name", "run__storage__status", "node__model")
    return [(cluster, node, "pvc", status, None, "", model) for cluster, node, status, model in rows[:limit]]
