"""Reads preflight runs."""

from collections.abc import Collection
from datetime import datetime

from django.db.models import Exists, OuterRef, Q, QuerySet

from kcover import preflight
from kcover.preflight import gate
from kcover_portal.fleet.models import Cluster, Node
from kcover_portal.incidents.models import Incident
from kcover_portal.preflight.models import PairPlan, PairTest, PreflightGate, PreflightReport, PreflightRun


def core_run(run: PreflightRun) -> preflight.Run:
    """Returns the run with all its reports as values of the core; one query."""
    rows = run.reports.values_list("node__name", "body")
    return preflight.Run(
        size=run.size, first_at=run.first_at, reports={name: preflight.read(body) for name, body in rows}
    )


def expiring(*, now: datetime) -> QuerySet[PreflightRun, int]:
    """Returns the ids of runs past their deadline."""
    rows = PreflightRun.objects.filter(state=PreflightRun.State.WAITING, due_at__lte=now).order_by("due_at")
    return rows.values_list("pk", flat=True)


def by_cluster(runs: Collection[int]) -> dict[int, list[int]]:
    """The ids of these runs by the id of their cluster."""
    found: dict[int, list[int]] = {}
    rows = PreflightRun.objects.filter(pk__in=runs).order_by("pk").values_list("cluster_id", "pk")
    for cluster, run in rows if runs else ():
        found.setdefault(cluster, []).append(run)
    return found


def unreported_verdicts() -> QuerySet[PreflightReport, int]:
    """Returns the ids of reports whose verdict is not reported as a fault yet, oldest first."""
    flagged = (PreflightReport.Verdict.ABNORMAL, PreflightReport.Verdict.SLOW)
    rows = PreflightReport.objects.filter(verdict__in=flagged, reported_at=None).order_by("pk")
    return rows.values_list("pk", flat=True)


def plans_at_work(*, now: datetime) -> QuerySet[PairPlan, int]:
    """Returns the ids of plans of pair tests that are due: they run, or their Jobs are not all deleted."""
    due = Q(again_at=None) | Q(again_at__lte=now)
    return PairPlan.objects.filter(due, cleaned=False).order_by("pk").values_list("pk", flat=True)


def nodes_in_plans(cluster: Cluster) -> set[str]:
    """Returns the names of the nodes that running plans of the cluster test."""
    tests = PairTest.objects.filter(plan__cluster=cluster, plan__state=PairPlan.State.RUNNING)
    tested = {name for pair in tests.values_list("first__name", "second__name") for name in pair}
    plans = PairPlan.objects.filter(cluster=cluster, state=PairPlan.State.RUNNING).exclude(subjects=[])
    return tested.union(*plans.values_list("subjects", flat=True))


def gates(nodes: QuerySet[Node]) -> QuerySet[Node]:
    """Returns the nodes with what ``gate_of`` needs, in one statement."""
    sick = Incident.objects.filter(node=OuterRef("pk"), kind="preflight", state=Incident.State.OPEN)
    return nodes.annotate(preflight_failed=Exists(sick)).select_related("preflight_gate")


def gate_row(node: Node) -> PreflightGate | None:
    """Returns the stored result of a node of ``gates``."""
    return getattr(node, "preflight_gate", None)


def gate_of(node: Node, *, now: datetime) -> gate.Gate:
    """Returns the gate of a node of ``gates``."""
    row = gate_row(node)
    return gate.state(
        failed=node.preflight_failed,  # type: ignore[attr-defined]
        passed_at=row.passed_at if row else None,
        same_machine=row is not None and row.node_uid == node.uid,
        now=now,
    )


def gate_passed(nodes: Collection[int], *, now: datetime) -> set[int]:
    """Returns the keys of the nodes whose gate is passed."""
    rows = gates(Node.objects.filter(pk__in=nodes))
    return {node.pk for node in rows if gate_of(node, now=now) is gate.Gate.PASSED}


def clusters_with_scheduled_tests() -> list[int]:
    """Returns the ids of the clusters whose idle nodes are tested in pairs on a schedule."""
    rows = Cluster.objects.filter(nccl_every__gt=0).exclude(nccl_image="")
    return list(rows.order_by("pk").values_list("pk", flat=True))


def clusters_with_gate_labels() -> list[int]:
    """Returns the ids of the clusters in which the gate's label is written, or is still to be removed."""
    labelled = PreflightGate.objects.exclude(label="").values("node__cluster")
    rows = Cluster.objects.filter(Q(preflight_labels=True) | Q(pk__in=labelled))
    return list(rows.order_by("pk").values_list("pk", flat=True))
