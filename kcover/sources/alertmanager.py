"""Alertmanager's webhook, version 4: one observation for each alert that names a node."""

import re
from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Final

from kcover import reasons
from kcover.faults.weight import Weight, is_of_monitor, of_xids, only, severity_of
from kcover.notify.alertmanager import ALERT_LABEL, PORTAL_LABEL
from kcover.sources import labels as series_labels, observation
from kcover.sources.observation import Json, Observation, ObservationBatch, Rejected, Unreadable
from kcover.values.quote import short_repr

VERSION = "4"
GRAFANA_VERSION: Final = "1"  # of the same form with an orgId, which its contact points of the kind webhook send
NODE_LABELS: Final = (*series_labels.NODE_LABELS, "hostname")  # the last one is of AMD's exporter
MAX_ALERTS = observation.MAX_ITEMS
REPLICA_LABELS: Final = ("replica", "prometheus_replica", "__replica__")  # which of several equal Prometheus sent it
# Grafana calls its rule's own alert firing while the query fails or gives nothing, where the rule is set so.
_UNKNOWN_BY_GRAFANA: Final = ("NoData", "Error")
# Alerts of well-known rules about workloads; and about exporters, by the labels that name them.
_OF_WORKLOAD: Final = re.compile(
    r"Kube(?:rnetes)?(?:Pod|Job|Container|Deployment|Stateful[Ss]et|Daemon[Ss]et|Replica[Ss]et|Hpa)"
    r"(?!Runtime)"
)
_OF_POD: Final = re.compile(r"(?:Pod|Container(?!d|Runtime))[A-Z]")  # only beside a label that names the pod
_WORKLOADS: Final = ("job", "pod", "container", "service", "deployment", "daemonset", "statefulset")
_EXPORTER: Final = re.compile(r"exporter|dcgm|prometheus|problem-detector", re.IGNORECASE)
# What stores and sends the figures, at the beginning of its own alerts' names and in the labels of its workload.
_STORES: Final = ("prometheus", "alertmanager", "thanos", "loki", "mimir", "grafana", "victoriametrics")
_BROKEN: Final = re.compile(
    r"(?:Instance|Target|Exporter|Scrape).*(?:Down|Missing|Fail)|Kube(?:Pod|Daemon|Container)|^up$"
    r"|^(?:G[Pp][Uu])?(?:Node|Host|Server)(?:Is)?(?:Down|Offline|Unreachable)$"  # up == 0 of its exporter
)


def read(body: object, *, node_labels: Sequence[str] = NODE_LABELS, now: datetime) -> ObservationBatch:
    """The alerts of a notification. Raises Unreadable if it is not one of version 4.

    A firing alert is a fault of kind ``alert``; a resolved one ends it. The first of ``node_labels`` that an alert has
    names its node; a port (``gpu-1:9400``) is left out. Alerts that a portal sent are ignored.
    """
    if not isinstance(body, dict):
        raise Unreadable("", reasons.of("source_not_object", value=short_repr(body)))
    if body.get("version") != (GRAFANA_VERSION if "orgId" in body else VERSION):
        raise Unreadable("version", reasons.of("alertmanager_version", value=short_repr(body.get("version"))))
    found: list[Observation] = []
    rejected: list[Rejected] = []
    own: list[str] = []
    for index, alert in enumerate(observation.listed(body, "alerts", most=MAX_ALERTS)):
        path = f"alerts/{index}"
        try:
            observation.check_encodable(alert)
            if sent := _sent_by_portal(alert) or _unknown_by_grafana(alert):
                own.append(sent)
            else:
                found.append(_alert(alert, path, node_labels, now=now))
        except Unreadable as error:
            rejected.append(Rejected(f"{path}/{error.path}".rstrip("/"), error.reason))
    firing = {one.series for one in found if not one.healthy}
    # One of several Prometheus told the end, and another one still fires: it has not ended.
    early = [one.key for one in found if one.healthy and one.series in firing]
    seen = tuple(one for one in found if not (one.healthy and one.series in firing))
    return ObservationBatch(observations=seen, rejected=tuple(rejected), ignored=(*own, *early))


def _sent_by_portal(alert: object) -> str:
    """The identity of an alert that a portal has sent, this one or another; "" of all others.

    Taken as a fault, it would open an incident, which is an alert again.
    """
    labels = alert.get("labels") if isinstance(alert, dict) else None
    if not isinstance(alert, dict) or not isinstance(labels, dict) or PORTAL_LABEL not in labels:
        return ""
    return "\n".join(str(one)[:200] for one in (labels[PORTAL_LABEL], labels.get(ALERT_LABEL), alert.get("status")))


def _unknown_by_grafana(alert: object) -> str:
    """The identity of an alert that fires because Grafana does not know the value; "" of all others.

    A fault that it told before still stands, and one that it tells later is another one.
    """
    notes = alert.get("annotations") if isinstance(alert, dict) else None
    reason = notes.get("grafana_state_reason") if isinstance(notes, dict) else None
    if not isinstance(alert, dict) or alert.get("status") != "firing" or reason not in _UNKNOWN_BY_GRAFANA:
        return ""
    return "\n".join(str(alert.get(name))[:500] for name in ("fingerprint", "labels", "startsAt"))


def _alert(alert: object, path: str, node_labels: Sequence[str], *, now: datetime) -> Observation:
    if not isinstance(alert, dict):
        raise Unreadable("", reasons.of("source_not_object", value=short_repr(alert)))
    status = alert.get("status")
    if status not in ("firing", "resolved"):
        raise Unreadable("status", reasons.of("alert_status", value=short_repr(status)))
    labels = _texts(alert, "labels")
    notes = _texts(alert, "annotations")
    if not labels.get("alertname"):
        raise Unreadable("labels/alertname", reasons.of("source_code_missing"))
    name = observation.code(labels["alertname"], "labels/alertname")
    starts_at = observation.moment(alert, "startsAt", now=now)
    # An alert that fires has no end yet; Alertmanager writes the year 1.
    ends_at = observation.moment(alert, "endsAt", now=now) if status == "resolved" else None
    texts = [notes[key] for key in ("summary", "description", "message") if notes.get(key)]
    xids = series_labels.xids(labels, *texts)
    severity, weight = weighed(labels, xids, texts)
    return Observation(
        path=path,
        key=" ".join((_identity(alert, labels), status, str(starts_at), str(ends_at), *_named(xids, status))),
        node=series_labels.node(labels, node_labels),
        kind="alert",
        code=name,
        check=name,
        series=_identity(alert, labels),
        device=series_labels.device(labels),
        message=texts[0] if texts else name,
        severity=severity,
        weight=weight,
        healthy=status == "resolved",
        alias=only(xids) if weight is not Weight.MONITOR else None,  # it does not say that there was one
        advice=notes.get("runbook_url", ""),
        seen_at=ends_at or starts_at,
    )


def _named(xids: Collection[int], status: str) -> Sequence[str]:
    """The one Xid of an alert that fires as a part of its identity: its text may name another one later."""
    xid = only(xids)
    return () if xid is None or status == "resolved" else (f"xid {xid}",)


def weighed(labels: Json, xids: Collection[int], texts: Sequence[str] = ()) -> tuple[str, Weight]:
    """The severity and the weight of an alert: the catalog decides about Xids, else the sender's own word."""
    severity = severity_of(labels.get("severity", ""))
    weight = of_xids(xids, texts[0] if texts else "") if xids else Weight.NODE
    if weight is Weight.NODE and _is_of_monitoring(labels):
        weight = Weight.MONITOR
    elif weight is Weight.NODE and _is_of_workload(labels):
        weight = Weight.PROGRAM
    elif weight is Weight.NODE and severity == "info":
        weight = Weight.INFO
    return ("info" if weight in (Weight.INFO, Weight.MONITOR) else severity), weight


def _is_of_monitoring(labels: Json) -> bool:
    """Returns whether an alert is about a monitor, or about what stores and sends its figures."""
    name, whose = labels["alertname"].lower(), _workload(labels).lower()
    is_of_store = any(name.startswith(one) and one in whose for one in _STORES)
    return is_of_store or is_of_monitor(labels["alertname"]) or _is_about_exporter(labels)


def _is_of_workload(labels: Json) -> bool:
    name = labels["alertname"]
    has_pod = bool(labels.get("pod") or labels.get("container"))
    return _OF_WORKLOAD.match(name) is not None or (has_pod and _OF_POD.match(name) is not None)


def _workload(labels: Json) -> str:
    """What the labels name of a workload."""
    return " ".join(labels.get(name, "") for name in _WORKLOADS)


def _is_about_exporter(labels: Json) -> bool:
    """Returns whether an exporter is down, crashes or does not roll out: of its node it says nothing."""
    return _EXPORTER.search(_workload(labels)) is not None and _BROKEN.search(labels["alertname"]) is not None


def _texts(alert: Json, key: str) -> dict[str, str]:
    """The labels or annotations. Raises Unreadable."""
    texts = observation.mapping(alert, key)
    try:
        return {name: observation.text(texts, name) for name in texts}
    except Unreadable as error:
        raise Unreadable(f"{key}/{error.path}", error.reason) from error


def _identity(alert: Json, labels: Json) -> str:
    """The identity of the series, which is the same of all Prometheus that watch the same.

    Alertmanager's fingerprint is of all labels.
    """
    own = {name: value for name, value in labels.items() if name not in REPLICA_LABELS}
    fingerprint = alert.get("fingerprint")
    if len(own) == len(labels) and isinstance(fingerprint, str) and fingerprint:
        return fingerprint[:100]
    return "\n".join(f"{name}={own[name]}" for name in sorted(own))
