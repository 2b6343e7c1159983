"""Reads of check runs and of validations."""

from collections.abc import Collection
from typing import Any

from django.db.models import Count, Max, Min, Q, QuerySet

from kcover.validation import node_verdict
from kcover_portal.checks.models import CheckRun, CheckTarget, ValidatedNode, Validation
from kcover_portal.fleet.models import Node
from kcover_portal.preflight.models import PairPlan

OPEN_VALIDATION = (Validation.State.WAITING, Validation.State.RUNNING)


def running() -> QuerySet[CheckRun, int]:
    """Keys of the runs that are not over, oldest first."""
    rows = CheckRun.objects.filter(state=CheckRun.State.RUNNING).order_by("pk")
    return rows.values_list("pk", flat=True)


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


def due_validations() -> QuerySet[Validation]:
    """The validations that wait for a check run, and those whose check run and NCCL tests have ended."""
    tests = Q(nccl_plan=None) | ~Q(nccl_plan__state=PairPlan.State.RUNNING)
    ended = Q(state=Validation.State.RUNNING) & ~Q(run__state=CheckRun.State.RUNNING) & tests
    return Validation.objects.filter(Q(state=Validation.State.WAITING) | ended).order_by("pk")


def loaded(nodes: Collection[int]) -> dict[int, int]:
    """The check runs that load GPUs now, by the key of the node."""
    rows = CheckTarget.objects.filter(node__in=nodes, state=CheckTarget.State.REQUESTED, invasive=True)
    return dict(rows.values_list("node_id", "run_id"))


def with_nodes(rows: QuerySet[Validation]) -> QuerySet[Validation]:
    """The validations with ``node_count`` and the name of the ``first_node``, newest first, for lists."""
    counted = rows.annotate(node_count=Count("nodes"), first_node=Min("nodes__node__name"))
    return counted.select_related("cluster").order_by("-pk")


def last_validation(node: Node) -> ValidatedNode | None:
    """The latest validation of the node, also one that is open; None without one."""
    return ValidatedNode.objects.filter(node=node).select_related("validation").order_by("-pk").first()


def validation_results(validation: Validation) -> dict[int, list[dict[str, Any]]]:
    """The stored results by ValidatedNode: of the checks so far, NCCL tests, then probes.

    Each has its ``proof``, and who reported it (``reported_by``).
    """
    targets = CheckTarget.objects.filter(run=validation.run_id) if validation.run_id else CheckTarget.objects.none()
    answers = dict(targets.values_list("node", "results"))
    return {
        one.pk: [
            {**result, "proof": node_verdict.proof_of(result["status"]), "reported_by": reporter}
            for reporter, result in (
                *((node_verdict.AGENT, result) for result in answers.get(one.node_id, ())),
                *((node_verdict.reporter_of(result["name"]), result) for result in one.nccl),
                *((node_verdict.AGENT, result) for result in one.probes),
            )
        ]
        for one in validation.nodes.all()
    }
