"""What bounds automation in a cluster: its guards, who decides, and windows in which people work. All on record."""

import uuid
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from django.core.exceptions import ValidationError
from django.db import transaction

from kcover import audit
from kcover.decisions import guards
from kcover_portal import doorbell
from kcover_portal.errors import FieldError
from kcover_portal.fleet import queries
from kcover_portal.fleet.models import Cluster, Maintenance
from kcover_portal.ledger import services as ledger
from kcover_portal.runtime.models import Installation, Mode

LONGEST_WINDOW_DAYS = 90
# What may be set of a registered cluster, beside its guards; how to reach it is changed by registering it anew.
SETTINGS = (
    *("mode", "decision_mode", "drills", "reboot", "job_image", "job_namespace", "event_namespace", "ready_within"),
    *("decision_url", "decision_secret", "decision_timeout", "decision_fallback"),
    *("autopilot_labels", "preflight_within", "storage_class"),
)
SECRET = ("decision_secret",)
DECIDES = frozenset(("mode", "decision_mode", "decision_url", "drills"))  # by which faults are judged, and by whom


def set_guards(cluster: Cluster, patch: object, *, actor: str, reason: str, now: datetime) -> guards.Settings:
    """Changes the named guards of a cluster, effective before the next call; returns them all.

    Raises guards.SettingError for what is no setting.
    """
    with transaction.atomic():
        row = Cluster.objects.select_for_update(no_key=True).get(pk=cluster.pk)
        before = queries.guards_of(row)
        after = guards.merge(before, patch)
        if after != before:
            written = guards.to_json(after)
            row.hold_down = written.pop("hold_down")
            row.guards = written
            row.save(update_fields=["guards", "hold_down"])
            changed = _changed(guards.to_json(before), guards.to_json(after))
            act = audit.ClusterGuardsChanged(cluster=row.name, changed=changed, reason=reason)
            _note(row, act, actor=actor, now=now)
    cluster.refresh_from_db()
    return after


def set_cluster(cluster: Cluster, changes: Mapping[str, Any], *, actor: str, reason: str, now: datetime) -> Cluster:
    """Changes settings of a cluster, all or none, effective before the next call; a secret's value is not on record.

    Raises FieldError for a value that is none of a setting's.
    """
    with transaction.atomic():
        row = Cluster.objects.select_for_update(no_key=True).get(pk=cluster.pk)
        before = {name: getattr(row, name) for name in changes}
        for name, value in changes.items():
            if name not in SETTINGS:
                raise FieldError(name, f"unknown setting {name}; use one of {', '.join(SETTINGS)}")
            setattr(row, name, value)
        try:
            row.clean_fields(exclude=[one.name for one in row._meta.get_fields() if one.name not in changes])
        except ValidationError as error:
            field, messages = next(iter(error.message_dict.items()))
            raise FieldError(field, " ".join(messages)) from error
        changed = {name: (before[name], value) for name, value in changes.items() if before[name] != value}
        if changed:
            if row.mode == Mode.PAUSED and "mode" in changed:
                row.resumes_as, row.pause_reason = before["mode"], reason
            row.save(update_fields=[*changed, "resumes_as", "pause_reason"])
            if DECIDES & changed.keys():
                note_change(row)
            shown = {
                name: audit.SECRET_CHANGED if name in SECRET else audit.Change(before=old, after=new)
                for name, (old, new) in changed.items()
            }
            act = audit.ClusterChanged(cluster=row.name, changed=shown, reason=reason)
            _note(row, act, actor=actor, now=now)
    cluster.refresh_from_db()
    return cluster


def note_change(cluster: Cluster | None) -> None:
    """Records a change that affects decisions in the cluster (None: in all of them); part of the caller's transaction.

    Each change gets an id of its own. A change that is reverted at once counts too, because faults that arrived in
    between were judged under it.
    """
    change = uuid.uuid4().hex
    if cluster is None:
        Installation.objects.update_or_create(pk=1, defaults={"decision_change": change})
    else:
        Cluster.objects.filter(pk=cluster.pk).update(decision_change=change)


def open_maintenance(
    cluster: Cluster | None,
    *,
    starts_at: datetime,
    ends_at: datetime,
    reason: str,
    actor: str,
    now: datetime,
    pool: str = "",
    node: str = "",
) -> Maintenance:
    """Announces a window in which nothing is taken out and nothing rebooted. Raises FieldError."""
    if ends_at <= starts_at:
        raise FieldError("ends_at", "must be after the start")
    if ends_at <= now:
        raise FieldError("ends_at", "must be in the future")
    if (ends_at - starts_at).days > LONGEST_WINDOW_DAYS:
        raise FieldError("ends_at", f"a window lasts at most {LONGEST_WINDOW_DAYS} days; pause the cluster instead")
    if cluster is None and (pool or node):
        raise FieldError("cluster", "required for a pool or node")
    if pool and node:
        raise FieldError("node", "set a pool or a node, not both")
    with transaction.atomic():
        window = Maintenance.objects.create(
            cluster=cluster,
            pool=pool,
            node=node,
            starts_at=starts_at,
            ends_at=ends_at,
            reason=reason,
            created_by=actor,
        )
        act = audit.MaintenanceOpened(
            maintenance=window.pk, pool=pool, node=node, starts_at=starts_at, ends_at=ends_at, reason=reason
        )
        _note(cluster, act, actor=actor, now=now)
    return window


def end_maintenance(window: Maintenance, *, actor: str, reason: str, now: datetime) -> None:
    """Ends a window now; one that has not begun is as if it had never been announced."""
    with transaction.atomic():
        act = audit.MaintenanceEnded(maintenance=window.pk, node=window.node, reason=reason)
        if window.starts_at >= now:
            window.delete()
        else:
            Maintenance.objects.filter(pk=window.pk, ends_at__gt=now).update(ends_at=now)
        _note(window.cluster, act, actor=actor, now=now)


def _changed(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, audit.Change]:
    return {
        name: audit.Change(before=before[name], after=value) for name, value in after.items() if before[name] != value
    }


def _note(cluster: Cluster | None, act: audit.Act, *, actor: str, now: datetime) -> None:
    name = cluster.name if cluster is not None else ""
    ledger.record(name, act, actor=actor, now=now)
    doorbell.tell("cluster", cluster.pk if cluster is not None else 0, cluster=name)
