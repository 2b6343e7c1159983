"""Reports that a node, or an object on the cluster, makes: they count only where the workload has a pod."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from kcover import preflight, reasons
from kcover.values.quote import short_text
from kcover_portal.fleet.models import Cluster
from kcover_portal.lib.errors import FieldError
from kcover_portal.preflight.services import members
from kcover_portal.preflight.services.collection import AddedReport, Workload, receive


@dataclass(frozen=True, slots=True, kw_only=True)
class SentReport:
    """A node's report with its workload. ``workload`` is used where the report names none.

    ``within``: the time to collect the run's reports, None for the cluster's. ``at``: when it was made, None: now.
    """

    namespace: str
    report: Mapping[str, Any]
    workload: str = ""
    uid: str = ""
    within: timedelta | None = None
    at: datetime | None = None

    def of(self, cluster: Cluster) -> Workload:
        """The workload. Raises FieldError if its name is missing, invalid or contradictory."""
        named = self.report.get("workload")
        if named is not None and (not isinstance(named, str) or len(named) > 253 or "\0" in named):
            raise FieldError("report/workload", reasons.of("workload_name_invalid", most=253))
        name = str(named or self.workload)
        if not name:
            raise FieldError("report/workload", reasons.of("workload_missing"))
        if named and self.workload and named != self.workload:
            raise FieldError("workload", reasons.of("other_workload", workload=named[:100]))
        return Workload(cluster=cluster, namespace=self.namespace, name=name, uid=self.uid)


def receive_from_node(cluster: Cluster, node: str, sent: SentReport, *, now: datetime) -> AddedReport:
    """Stores a report about ``node`` if the cluster shows a pod of its workload there.

    The caller has checked that the report is about that node. Raises FieldError, and node_selection.Unanswered if the
    cluster does not answer.
    """
    workload = sent.of(cluster)
    if not members.has_pod(cluster, node, namespace=workload.namespace, workload=workload.name):
        name = short_text(f"{workload.namespace}/{workload.name}")
        raise FieldError("workload", reasons.of("preflight_no_pod", cluster=cluster.name, workload=name, node=node))
    return store(workload, sent, now=now)


def store(workload: Workload, sent: SentReport, *, now: datetime) -> AddedReport:
    """Stores a report whose origin is trusted. Raises FieldError."""
    try:
        return receive(workload, sent.report, within=sent.within, at=sent.at, now=now)
    except preflight.ReportInvalid as refusal:
        field = f"report/{refusal.path}" if refusal.path else "report"
        raise FieldError(field, refusal.reason) from refusal
