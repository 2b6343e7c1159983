"""Changes to a cluster's guards, settings and maintenance windows. Every change is in the audit log."""

import re
import uuid
from collections.abc import Callable, Collection, Mapping
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

from django.core.exceptions import ValidationError
from django.db import transaction

from kcover import audit, preflight, reasons
from kcover.decisions import guards
from kcover.values import kube_names, masked_addresses
from kcover.values.quote import short_text
from kcover.values.recurrence import Recurrence
from kcover_portal import encryption
from kcover_portal.fleet import queries
from kcover_portal.fleet.models import ALL_NAMESPACES, Cluster, Maintenance
from kcover_portal.fleet.services import pools, repeated_windows, scope_checks, setting_errors
from kcover_portal.ledger import services as ledger
from kcover_portal.lib import doorbell
from kcover_portal.lib.errors import FieldError
from kcover_portal.runtime.models import Installation, Mode

Check = Callable[[Cluster], None]
MAX_WINDOW_DAYS = 90
MAX_NAMES_LOGGED = 100  # of the nodes of a window
NOTHING: Mapping[str, Any] = {}
# Settings of a registered cluster, besides its guards. Its credentials are changed by ``cluster add --replace``.
SETTINGS = (
    *("mode", "decision_mode", "drills", "reboot", "job_image", "job_namespace", "event_namespace", "ready_within"),
    *("decision_url", "decision_secret", "decision_timeout", "decision_fallback"),
    *("autopilot_labels", "preflight_within", "preflight_namespaces", "storage_class", "topology"),
    *("preflight_labels", "nccl_image", "nccl_namespace", "nccl_resources", "nccl_every", "standby_tested"),
    *("hand_approval", "second_admin", "acted_on_by", "job_recovery", "ledger_lease", "second_factor"),
    *("action_lease", "isolate_before_approval", "on_drain_timeout"),
    *("burn_in", "burn_in_profile", "gpu_hour_price", "lemon_repairs"),
)
SECRET = ("decision_secret",)
SECRET_LENGTH = (16, 200)  # characters, as for channels: a short one can be guessed from one signed delivery
NAMESPACE = r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"  # a DNS label (RFC 1123)
SECRET_OVERLAP = timedelta(days=1)  # in which callbacks may be signed with the previous secret
# Settings that affect decisions.
SETTINGS_THAT_DECIDE = frozenset(
    (
        *("mode", "acted_on_by", "action_lease", "decision_mode", "decision_url", "drills", "topology"),
        "isolate_before_approval",
        "on_drain_timeout",
    )
)


def anything(row: Cluster | Installation) -> None:
    """The check of a change that was judged, or that nobody judges."""


def mode_to_resume(row: Cluster | Installation) -> str:
    """The mode in which a paused row resumes: that from before the pause. One that was never in another: shadow."""
    return row.resumes_as or (Mode.SHADOW if isinstance(row, Cluster) else Mode.ENFORCE)


def lasting_mode(row: Cluster | Installation) -> str:
    """The mode of the row, or that in which it resumes."""
    return mode_to_resume(row) if row.mode == Mode.PAUSED else row.mode


def set_guards(
    cluster: Cluster, patch: object, *, actor: str, reason: str, now: datetime, check: Check = anything
) -> guards.Settings:
    """Changes the given guards of a cluster, effective before the next call; returns all guards.

    ``check`` sees the locked row first, and may raise. Raises guards.SettingError for an invalid setting.
    """
    with transaction.atomic():
        row = Cluster.objects.select_for_update(no_key=True).get(pk=cluster.pk)
        check(row)
        before = queries.guards_of(row)
        after = guards.merge(before, patch)
        if after != before:
            settings = guards.to_json(after)
            row.hold_down = settings.pop("hold_down")
            row.guards = settings
            row.save(update_fields=["guards", "hold_down"])
            changed = _changed(guards.to_json(before), guards.to_json(after))
            entry = audit.ClusterGuardsChanged(cluster=row.name, changed=changed, reason=reason)
            _note(row, entry, actor=actor, now=now)
    cluster.refresh_from_db()
    return after


def set_cluster(
    cluster: Cluster,
    changes: Mapping[str, Any],
    *,
    actor: str,
    reason: str,
    now: datetime,
    check: Check = anything,
) -> Cluster:
    """Changes settings of a cluster, all or none, effective before the next call.

    ``check`` sees the locked row first, and may raise. Values of secrets are not in the audit log. Raises FieldError
    for an invalid value.
    """
    with transaction.atomic():
        row = Cluster.objects.select_for_update(no_key=True).get(pk=cluster.pk)
        check(row)
        before = {name: encryption.peek(row, name) for name in changes}
        for name, value in changes.items():
            if name not in SETTINGS:
                raise FieldError(name, reasons.of("setting_unknown", name=name, known=", ".join(SETTINGS)))
            setattr(row, name, _checked(name, value))
        check_decision_system(changes)
        try:
            row.clean_fields(exclude=[column.name for column in row._meta.get_fields() if column.name not in changes])
        except ValidationError as error:
            field, problems = next(iter(error.error_dict.items()))
            raise FieldError(field, setting_errors.reason_of(problems[0], field)) from error
        changed = {name: (before[name], getattr(row, name)) for name in changes if before[name] != getattr(row, name)}
        if changed:
            _save(row, {*changed, *_set_derived(row, changed, reason=reason, now=now)})
            if "topology" in changed:
                pools.derive(row)
            if SETTINGS_THAT_DECIDE & changed.keys():
                note_change(row)
            shown = {
                name: audit.SECRET_CHANGED
                if name in SECRET
                else audit.Change(before=masked_addresses.mask(_plain(old)), after=masked_addresses.mask(_plain(new)))
                for name, (old, new) in changed.items()
            }
            entry = audit.ClusterChanged(cluster=row.name, changed=shown, reason=reason)
            _note(row, entry, actor=actor, now=now)
    cluster.refresh_from_db()
    return cluster


def _set_derived(row: Cluster, changed: Mapping[str, tuple[Any, Any]], *, reason: str, now: datetime) -> set[str]:
    """Sets the columns that follow from changed settings (before and after); returns their names."""
    written: set[str] = set()
    if row.mode == Mode.PAUSED and "mode" in changed:
        row.resumes_as, row.pause_reason = changed["mode"][0], reason
        written |= {"resumes_as", "pause_reason"}
    if "burn_in" in changed:
        row.burn_in_new_since = now if row.burn_in == Cluster.BurnIn.NEW else None
        written.add("burn_in_new_since")
    if "decision_secret" in changed:
        # An empty secret ends the previous one, too: so a stolen secret is replaced without an overlap.
        previous = (changed["decision_secret"][0] or "") if row.decision_secret else ""
        row.decision_secret_before = previous
        row.decision_secret_before_until = now + SECRET_OVERLAP if previous else None
        written |= {"decision_secret_before", "decision_secret_before_until"}
    return written


def _checked(name: str, value: Any) -> Any:
    """Raises FieldError."""
    if name == "topology":
        return pools.checked(value)
    if name == "preflight_within":
        try:
            return int(preflight.parse_deadline(value).total_seconds())
        except preflight.DeadlineInvalid as error:
            raise FieldError(name, error.reason) from error
    if name == "nccl_resources":
        return _resources(value)
    if name == "gpu_hour_price":
        return None if value == "" else value
    if name == "preflight_namespaces":
        return _namespaces(value)
    return value


def _plain(value: Any) -> Any:
    """A value as JSON."""
    return str(value) if isinstance(value, Decimal) else value


def _namespaces(value: object) -> str:
    """Returns the names in their canonical form. Raises FieldError."""
    names = sorted({name for name in re.split(r"[\s,]+", value) if name}) if isinstance(value, str) else [repr(value)]
    for name in names:
        if names != [ALL_NAMESPACES] and not re.fullmatch(NAMESPACE, name):
            raise FieldError("preflight_namespaces", reasons.of("namespaces_invalid", value=short_text(name)))
    return ",".join(names)


def _resources(value: object) -> str:
    """Returns the resources in their canonical form, such as "rdma/hca=1". Raises FieldError."""
    given = [one for one in re.split(r"[\s,]+", value) if one] if isinstance(value, str) else [repr(value)]
    for one in given:
        name, _, count = one.partition("=")
        if not kube_names.LABEL_KEY.fullmatch(name) or not re.fullmatch(r"[1-9][0-9]{0,3}", count):
            raise FieldError("nccl_resources", reasons.of("pair_resources", value=short_text(one)))
    return ",".join(sorted(set(given)))


def check_decision_system(changes: Mapping[str, Any]) -> None:
    """Raises FieldError for a secret of the wrong length, and for an address that was masked before it was shown."""
    _check_secret(str(changes.get("decision_secret", "")))
    if masked_addresses.MASK in str(changes.get("decision_url", "")):
        raise FieldError("decision_url", reasons.of("address_masked"))


def _check_secret(secret: str) -> None:
    least, most = SECRET_LENGTH
    if secret and not least <= len(secret) <= most:
        raise FieldError("decision_secret", reasons.of("secret_length", least=least, most=most))


def _save(row: Cluster, changed: Collection[str]) -> None:
    """Raises FieldError if a secret cannot be encrypted."""
    try:
        row.save(update_fields=changed)
    except encryption.KeysUnusable as error:
        raise FieldError("", error.reason, conflict=True) from error


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
    doorbell.ring("rescue.sweep")


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
    selection: Mapping[str, Any] = NOTHING,
    fields: scope_checks.Fields = scope_checks.SAME,
    repeats: Recurrence | None = None,
) -> Maintenance:
    """Creates a window in which nothing is isolated or rebooted, and its repetitions. Returns the first one.

    A repetition is a row of its own, so that the guards need no calendar and depend on no task.

    ``selection``: the keys of a ``Scope``, or one of the older ``pool`` and ``node``. ``fields``: the field of an
    error, by kind of scope. Raises FieldError, also if the window covers none of the nodes that the cluster has now, or
    if one of its names is unknown.
    """
    fields = {**fields, **({"pools": "pool"} if pool else {}), **({"nodes": "node"} if node else {})}
    scope = scope_checks.read(selection, pool=pool, node=node)
    if ends_at <= starts_at:
        raise FieldError("ends_at", reasons.of("end_before_start"))
    if ends_at <= now:
        raise FieldError("ends_at", reasons.of("end_in_past"))
    if (ends_at - starts_at).days > MAX_WINDOW_DAYS:
        raise FieldError("ends_at", reasons.of("window_too_long", days=MAX_WINDOW_DAYS))
    spans = repeated_windows.spans((starts_at, ends_at), repeats)
    covered = scope_checks.select(cluster, scope, fields=fields).count()
    single = {kind: names[0] for kind, names in (("pool", scope.pools), ("node", scope.nodes)) if len(names) == 1}
    written = {} if single else scope.to_json()
    members = scope_checks.members(cluster, scope)
    repeated_windows.check_size(len(members), len(spans))
    series = uuid.uuid4() if repeats is not None else None
    common = {"series": series, "repeats": repeats.to_json() if repeats is not None else {}, **single}
    with transaction.atomic():
        window, *_later = Maintenance.objects.bulk_create(
            Maintenance(
                cluster=cluster,
                selection=written,
                members=members,
                starts_at=begins,
                ends_at=ends,
                reason=reason,
                created_by=actor,
                **common,
            )
            for begins, ends in spans
        )
        entry = audit.MaintenanceOpened(
            maintenance=window.pk,
            **single,
            scope=_shortened(written),
            nodes=covered,
            starts_at=starts_at,
            ends_at=ends_at,
            reason=reason,
            repeats=window.repeats,
            windows=len(spans),
        )
        _note(cluster, entry, actor=actor, now=now)
    return window


def _shortened(selection: Mapping[str, Any]) -> Mapping[str, Any]:
    """The scope for the audit log: of many names, the first ones."""
    names = selection.get("nodes")
    return {"nodes": names[:MAX_NAMES_LOGGED]} if names else selection


def end_maintenance(window: Maintenance, *, actor: str, reason: str, now: datetime, whole_series: bool = False) -> None:
    """Ends a window now. A window that has not begun is deleted. ``whole_series``: with all that repeat it."""
    rows = Maintenance.objects.filter(pk=window.pk)
    if whole_series and window.series is not None:
        rows = Maintenance.objects.filter(series=window.series)
    with transaction.atomic():
        rows = rows.filter(ends_at__gt=now)
        entry = audit.MaintenanceEnded(maintenance=window.pk, node=window.node, reason=reason, windows=rows.count())
        rows.filter(starts_at__gte=now).delete()
        rows.update(ends_at=now)
        _note(window.cluster, entry, actor=actor, now=now)


def _changed(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, audit.Change]:
    return {
        name: audit.Change(before=before[name], after=value) for name, value in after.items() if before[name] != value
    }


def _note(cluster: Cluster | None, act: audit.Act, *, actor: str, now: datetime) -> None:
    name = cluster.name if cluster is not None else ""
    ledger.record(name, act, actor=actor, now=now)
    doorbell.publish("cluster", cluster.pk if cluster is not None else 0, cluster=name)
