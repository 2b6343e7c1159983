"""``PreflightReport`` objects, which kcover's agents make from chart 0.11 on.

Whoever may create them in a namespace could forge one. They therefore count only in the namespaces that the cluster's
setting ``preflight_namespaces`` names, and like reports of agents: only for nodes on which the cluster shows a pod of
the workload, in the object's own namespace.
"""

import json
import logging
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from kcover import reasons
from kcover.values import shares
from kcover.values.quote import short_text
from kcover_portal.fleet import queries as fleet
from kcover_portal.fleet.models import ALL_NAMESPACES, Cluster
from kcover_portal.fleet.services import node_selection, unread_objects
from kcover_portal.kube import bounds, port
from kcover_portal.lib.errors import FieldError
from kcover_portal.preflight.models import ReadReportObject
from kcover_portal.preflight.services import node_reports

log = logging.getLogger(__name__)

# Reports read per cluster and round, as many of each namespace; each asks for a node's pods.
MAX_REPORTS_PER_ROUND = 200
MAX_REPORT_CHARS = 256 * 1024
MAX_NAMED = 5  # namespaces in a sentence
UNREAD = "reports"  # among the cluster's unread objects
CLOCK_ERROR = timedelta(seconds=5)  # by which the API server's clock may be ahead of the portal's
FIELDS = {"workloadName": 253, "nodeName": 253, "workloadUID": 64}


def read_report_objects(cluster: Cluster, *, now: datetime) -> int:
    """Takes the reports of objects that were not read before; returns how many. A cluster without the CRD has none.

    Objects that are older than the cluster's time to collect reports are left alone: their run would have expired.
    Raises port.KubeError.
    """
    objects, is_whole = _trusted(cluster)
    found = {one.uid: one for one in objects}
    known = ReadReportObject.objects.filter(cluster=cluster)
    if is_whole:
        known.exclude(uid__in=found).delete()
    new = found.keys() - set(known.values_list("uid", flat=True))
    earliest = now - timedelta(seconds=cluster.preflight_within)
    fresh = [found[uid] for uid in new if (found[uid].created_at or now) >= earliest]
    fresh.sort(key=lambda one: (one.created_at or now, one.uid))
    done = new - {one.uid for one in fresh}
    for one in shares.in_turns(fresh, lambda one: one.namespace)[:MAX_REPORTS_PER_ROUND]:
        try:
            _take(cluster, one, now=now)
        except node_selection.Unanswered as silent:
            log.warning("%s %s/%s waits: %s", one.kind.kind, one.namespace, one.name, silent)
            break
        except FieldError as error:
            log.warning("%s %s/%s: %s: %s", one.kind.kind, one.namespace, one.name, error.field, error)
        done.add(one.uid)
    rows = [ReadReportObject(cluster=cluster, uid=uid) for uid in sorted(done)]
    ReadReportObject.objects.bulk_create(rows, ignore_conflicts=True)
    return len(done)


def _trusted(cluster: Cluster) -> tuple[list[port.CustomObject], bool]:
    """The objects that count, and whether these are all. Others are not read: users may create many.

    A namespace with too many objects stops no other one.
    """
    names = cluster.preflight_namespace_list
    if not names:
        unread_objects.note(cluster, UNREAD, None)
        return [], True
    client, found, too_large = fleet.connect(cluster), list[port.CustomObject](), list[str]()
    for name in [""] if names == [ALL_NAMESPACES] else names:
        try:
            found += client.custom_objects(port.PREFLIGHT_REPORT, namespace=name)
        except bounds.TooLarge as error:
            too_large.append(name or ALL_NAMESPACES)
            log.warning("cluster %s: PreflightReports in %r are not read: %s", cluster.name, name, error)
    unread_objects.note(cluster, UNREAD, _left_out(cluster, too_large))
    return found, not too_large


def _left_out(cluster: Cluster, namespaces: Sequence[str]) -> reasons.Reason | None:
    if not namespaces:
        return None
    size = bounds.MAX_BYTES_BY_USERS // 1024 // 1024
    named = reasons.named(namespaces, most=MAX_NAMED)
    return reasons.of("report_objects_unread", cluster=cluster.name, namespaces=named, size=size)


def _take(cluster: Cluster, one: port.CustomObject, *, now: datetime) -> None:
    """Raises FieldError, node_selection.Unanswered."""
    spec = one.spec
    texts = {name: _text(spec, name, most=most) for name, most in FIELDS.items()}
    report = _report(spec)
    node = report.setdefault("node_name", texts["nodeName"])
    if node != texts["nodeName"]:
        reason = reasons.of("preflight_object_node", node=short_text(texts["nodeName"]), other=short_text(str(node)))
        raise FieldError("spec/report/node_name", reason)
    sent = node_reports.SentReport(
        namespace=one.namespace,
        report={**report, "workload": texts["workloadName"]},
        uid=texts["workloadUID"],
        at=one.created_at - CLOCK_ERROR if one.created_at is not None else None,
    )
    node_reports.receive_from_node(cluster, texts["nodeName"], sent, now=now)


def _text(spec: Mapping[str, Any], name: str, *, most: int) -> str:
    value = spec.get(name)
    if not isinstance(value, str) or not value or len(value) > most or "\0" in value:
        raise FieldError(f"spec/{name}", reasons.of("preflight_object_invalid", field=name))
    return value


def _report(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the report, which the object holds as JSON text."""
    text = spec.get("report")
    try:
        content = json.loads(text) if isinstance(text, str) and len(text) <= MAX_REPORT_CHARS else None
    except (ValueError, RecursionError) as error:
        raise FieldError("spec/report", reasons.of("preflight_not_json", error=str(error)[:200])) from error
    if not isinstance(content, dict):
        raise FieldError("spec/report", reasons.of("preflight_not_object"))
    return content
