"""What bounds automation in a cluster: its guards, who decides, and windows in which people work. All on record."""

import uuid
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from django.core.exceptions import ValidationError
from django.db import transaction

from kcover import guards
from kcover_portal import doorbell
from kcover_portal.fleet import queries
from kcover_portal.fleet.models import Cluster, Maintenance, Mode, Pulse
from kcover_portal.ledger import services as ledger

LONGEST_WINDOW_DAYS = 90
# What may be set of a registered cluster, beside its guards; how to reach it is changed by registering it anew.
SETTINGS = (
    *("mode", "decision_mode", "drills", "reboot", "job_image", "job_namespace", "event_namespace", "ready_within"),
    *("decision_url", "decision_secret", "decision_timeout", "decision_fallback"),
    *("autopilot_labels", "preflight_within", "storage_class"),
)
SECRET = ("decision_secret",)
DECIDES = frozenset(("mode", "decision_mode", "decision_url", "drills"))  # by which faults are judged, and by whom


class Refused(Exception):
    """The setting is not accepted; ``field`` names it, the message says what to write instead."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(message)
        self.field = field


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
            _note(row, "cluster.guards", actor=actor, now=now, data={"changed": changed, "reason": reason})
    cluster.refresh_from_db()
    return after


def set_cluster(cluster: Cluster, changes: Mapping[str, Any], *, actor: str, reason: str, now: datetime) -> Cluster:
    """Changes settings of a cluster, all or none, effective before the next call; a secret's value is not on record.

    Raises Refused for a value that is none of a setting's.
    """
    with transaction.atomic():
        row = Cluster.objects.select_for_update(no_key=True).get(pk=cluster.pk)
        before = {name: getattr(row, name) for name in changes}
        for name, value in changes.items():
            if name not in SETTINGS:
                raise Refused(name, f"there is no setting {name}: there are {', '.join(SETTINGS)}")
            setattr(row, name, value)
        try:
            row.clean_fields(exclude=[one.name for one in row._meta.get_fields() if one.name not in changes])
        except ValidationError as error:
            field, messages = next(iter(error.message_dict.items()))
            raise Refused(field, " ".join(messages)) from error
        changed = {name: (before[name], value) for name, value in changes.items() if before[name] != value}
        if changed:
            if row.mode == Mode.PAUSED and "mode" in changed:
                row.resumes_as, row.pause_reason = before["mode"], reason
            row.save(update_fields=[*changed, "resumes_as", "pause_reason"])
            if DECIDES & changed.keys():
                note_change(row, now=now)
            shown = {
                name: {"from": "", "to": "changed"} if name in SECRET else {"from": old, "to": new}
                for name, (old, new) in changed.items()
            }
            _note(row, "cluster.changed", actor=actor, now=now, data={"changed": shown, "reason": reason})
    cluster.refresh_from_db()
    return cluster


def note_change(cluster: Cluster | None, *, now: datetime) -> None:
    """Notes that the cluster's faults (None: everybody's) are judged otherwise from now on; part of that transaction.

    A change that is taken back at once is one, too, since what came in between was judged under it: each has a mark of
    its own, which nothing that is set later makes undone.
    """
    name = f"{queries.DECIDES}{cluster.pk if cluster else ''}"
    Pulse.objects.update_or_create(name=name, defaults={"at": now, "holder": uuid.uuid4().hex})


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
    """Announces a window in which nothing is taken out and nothing rebooted. Raises Refused."""
    if ends_at <= starts_at:
        raise Refused("ends_at", "a window ends after it starts")
    if ends_at <= now:
        raise Refused("ends_at", "the window is over already")
    if (ends_at - starts_at).days > LONGEST_WINDOW_DAYS:
        raise Refused("ends_at", f"a window lasts at most {LONGEST_WINDOW_DAYS} days: pause the cluster instead")
    if cluster is None and (pool or node):
        raise Refused("cluster", "name the cluster of the pool or node")
    if pool and node:
        raise Refused("node", "a pool or a node, not both")
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
        data = {
            "pool": pool,
            "node": node,
            "starts_at": starts_at.isoformat(),
            "ends_at": ends_at.isoformat(),
            "reason": reason,
        }
        _note(cluster, "maintenance.opened", subject=f"maintenance {window.pk}", actor=actor, now=now, data=data)
    return window


def end_maintenance(window: Maintenance, *, actor: str, reason: str, now: datetime) -> None:
    """Ends a window now; one that has not begun is as if it had never been announced."""
    with transaction.atomic():
        subject = f"maintenance {window.pk}"
        if window.starts_at >= now:
            window.delete()
        else:
            Maintenance.objects.filter(pk=window.pk, ends_at__gt=now).update(ends_at=now)
        _note(window.cluster, "maintenance.ended", subject=subject, actor=actor, now=now, data={"reason": reason})


def _changed(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    return {name: {"from": before[name], "to": value} for name, value in after.items() if before[name] != value}


def _note(
    cluster: Cluster | None, verb: str, *, actor: str, now: datetime, data: dict[str, Any], subject: str = ""
) -> None:
    name = cluster.name if cluster is not None else ""
    ledger.write(name, actor=actor, verb=verb, subject=subject or f"cluster {name}", now=now, data=data)
    doorbell.tell("cluster", cluster.pk if cluster is not None else 0, cluster=name)
