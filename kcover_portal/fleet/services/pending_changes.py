"""Changes that loosen a limit: where the cluster asks for a second admin, they wait until another one confirms them.

A change that only tightens is effective at once. So is every change by the shell.
"""

from collections.abc import Callable, Collection, Mapping
from datetime import datetime, timedelta
from typing import Any

from django.db import transaction
from django.utils.crypto import salted_hmac

from kcover import audit, reasons
from kcover.decisions import guards
from kcover.policy import modes
from kcover.values import masked_addresses
from kcover_portal import encryption
from kcover_portal.fleet import queries, services
from kcover_portal.fleet.models import Cluster, PendingChange
from kcover_portal.fleet.services import cluster_settings, pools
from kcover_portal.ledger import services as ledger
from kcover_portal.lib import doorbell
from kcover_portal.lib.errors import Refused
from kcover_portal.runtime import queries as runtime
from kcover_portal.runtime.models import Installation, Mode

VALID_FOR = timedelta(days=1)
HAND_APPROVALS = (Cluster.HandApproval.NEVER, Cluster.HandApproval.MODE, Cluster.HandApproval.ALWAYS)  # strictest last
SECOND_FACTORS = (Cluster.SecondFactor.OFF, Cluster.SecondFactor.APPROVERS, Cluster.SecondFactor.ALL)  # strictest last
DECIDERS = {"policies": {"policies"}, "external": {"external"}, "both": {"policies", "external"}}
JOB_RECOVERIES = ("off", "shadow", "approve", "enforce")  # strictest first
CHANGED = audit.SECRET_CHANGED.after  # in place of a secret
GUARDS, SETTINGS, RESUME = "guards", "settings", "resume"  # kinds of changes


class ChangeRefused(Refused):
    """The change cannot be confirmed or rejected; the reason says why."""


def loosens_mode(row: Cluster | Installation, mode: str | None) -> bool:
    """Returns whether the mode is less strict than the present one; than the one before, during a pause."""
    present = row.resumes_as or Mode.ENFORCE if row.mode == Mode.PAUSED else row.mode
    return mode is not None and modes.MODES.index(mode) > modes.MODES.index(present)


def loosens_settings(cluster: Cluster, changes: Mapping[str, Any]) -> bool:
    """Returns whether the settings let the portal, or one person, do more than before.

    Other labels of the topology count, because budgets, floors and storms are counted by them. So does another
    decision system, or another secret of it: it may decide otherwise, or not answer. Raises FieldError for an invalid
    topology.
    """
    rank = HAND_APPROVALS.index
    return (
        loosens_mode(cluster, changes.get("mode"))
        or rank(changes.get("hand_approval", cluster.hand_approval)) < rank(cluster.hand_approval)
        or _asks_fewer(cluster, changes.get("second_factor", cluster.second_factor))
        or (not cluster.isolate_before_approval and changes.get("isolate_before_approval", False))
        or (cluster.second_admin and not changes.get("second_admin", True))
        or _recovers_more(cluster, changes.get("job_recovery", cluster.job_recovery))
        or (bool(cluster.acted_on_by) and not changes.get("acted_on_by", cluster.acted_on_by))
        or (cluster.action_lease and not changes.get("action_lease", True))
        or (cluster.drills == Cluster.Drills.RECORD and changes.get("drills") == Cluster.Drills.ACT)
        or not DECIDERS[changes.get("decision_mode", cluster.decision_mode)] <= DECIDERS[cluster.decision_mode]
        or _falls_back(cluster, changes.get("decision_fallback", cluster.decision_fallback))
        or changes.get("decision_url", cluster.decision_url) != cluster.decision_url
        or _signs_otherwise(cluster, changes)
        or _waits_less(cluster, changes)
        or ("topology" in changes and pools.checked(changes["topology"]) != cluster.topology)
    )


def _asks_fewer(cluster: Cluster, second_factor: str) -> bool:
    return SECOND_FACTORS.index(second_factor) < SECOND_FACTORS.index(cluster.second_factor)


def _recovers_more(cluster: Cluster, job_recovery: str) -> bool:
    return JOB_RECOVERIES.index(job_recovery) > JOB_RECOVERIES.index(cluster.job_recovery)


def _falls_back(cluster: Cluster, fallback: str) -> bool:
    return cluster.decision_fallback == Cluster.Fallback.HOLD and fallback == Cluster.Fallback.POLICIES


def _signs_otherwise(cluster: Cluster, changes: Mapping[str, Any]) -> bool:
    """Returns whether somebody else could sign callbacks, or policies decide because requests are not signed any more.

    The secret of a system whose silence holds the node can be cleared at once: it may have been stolen.
    """
    present, wanted = encryption.peek(cluster, "decision_secret"), changes.get("decision_secret")
    if wanted is None or wanted == present:
        return False
    return bool(wanted) or _policies_follow(cluster, changes)


def _waits_less(cluster: Cluster, changes: Mapping[str, Any]) -> bool:
    shorter: bool = changes.get("decision_timeout", cluster.decision_timeout) < cluster.decision_timeout
    return shorter and _policies_follow(cluster, changes)


def _policies_follow(cluster: Cluster, changes: Mapping[str, Any]) -> bool:
    """Returns whether policies decide where the decision system does not answer."""
    return bool(changes.get("decision_fallback", cluster.decision_fallback) != Cluster.Fallback.HOLD)


def loosens_guards(cluster: Cluster, patch: object) -> bool:
    """Returns whether the patch loosens a guard. Raises guards.SettingError."""
    before = queries.guards_of(cluster)
    return bool(guards.loosened(before, guards.merge(before, patch)))


def needs_second(cluster: Cluster | None) -> bool:
    """Returns whether a change that loosens waits: the cluster asks for it, or for all clusters, one of them."""
    return cluster.second_admin if cluster is not None else Cluster.objects.filter(second_admin=True).exists()


def request(
    cluster: Cluster | None,
    kind: str,
    changes: Mapping[str, Any],
    *,
    actor: str,
    requesters: Collection[str],
    reason: str,
    now: datetime,
) -> PendingChange:
    """Stores a change that waits for another admin. ``requesters``: the people who count as the requester.

    Raises FieldError for an address that was masked, and for a secret of the wrong length.
    """
    cluster_settings.check_decision_system(changes)
    with transaction.atomic():
        PendingChange.objects.filter(expires_at__lte=now).exclude(secret="").update(secret="")
        row = PendingChange.objects.create(
            cluster=cluster,
            kind=kind,
            changes={name: CHANGED if name in cluster_settings.SECRET else value for name, value in changes.items()},
            secret=changes.get("decision_secret", ""),
            before=_before(cluster, kind, changes),
            requested_by=actor,
            requesters=list(requesters),
            reason=reason,
            requested_at=now,
            expires_at=now + VALID_FOR,
        )
        _note(row, audit.ChangeRequested, actor=actor, reason=reason, now=now, requesters=tuple(requesters))
    return row


def confirm(
    change: PendingChange, *, actor: str, names: Collection[str], requester_is_gone: bool, now: datetime
) -> PendingChange:
    """Carries out the change in the name of the confirming admin. ``names``: who could use that admin's account.

    ``requester_is_gone``: who requested the change may not do so any more. Raises ChangeRefused then, if the admin
    counts as the requester, and if the change is closed, expired or outdated.
    """
    with transaction.atomic(), ledger.last():
        row = _open(change, now=now)
        if {actor, *names} & {row.requested_by, *row.requesters}:
            raise ChangeRefused(reasons.of("change_own", change=str(row.pk)))
        if requester_is_gone:
            raise ChangeRefused(reasons.of("vote_of_gone", by=row.requested_by))
        if _before(row.cluster, row.kind, row.changes) != row.before:
            raise ChangeRefused(reasons.of("change_outdated", change=str(row.pk)))
        changes = _requested(row)
        _close(row, PendingChange.State.CONFIRMED, actor=actor, now=now)
        _note(row, audit.ChangeConfirmed, actor=actor, reason=row.reason, now=now)
        _APPLY[row.kind](row, changes, actor, now)
    return row


def reject(change: PendingChange, *, actor: str, reason: str, now: datetime) -> PendingChange:
    """Closes the change without carrying it out. Raises ChangeRefused if it is closed or expired."""
    with transaction.atomic():
        row = _open(change, now=now)
        _close(row, PendingChange.State.REJECTED, actor=actor, now=now)
        _note(row, audit.ChangeRejected, actor=actor, reason=reason, now=now)
    return row


def _open(change: PendingChange, *, now: datetime) -> PendingChange:
    row = PendingChange.objects.select_for_update(of=("self",)).select_related("cluster").get(pk=change.pk)
    state = "expired" if row.expires_at <= now else row.state
    if state != PendingChange.State.OPEN:
        raise ChangeRefused(reasons.of("change_closed", change=str(row.pk), state=reasons.state(state)))
    return row


def _close(row: PendingChange, state: str, *, actor: str, now: datetime) -> None:
    row.state, row.answered_by, row.answered_at, row.secret = state, actor, now, ""
    row.save(update_fields=["state", "answered_by", "answered_at", "secret"])


def _before(cluster: Cluster | None, kind: str, changes: Mapping[str, Any]) -> dict[str, Any]:
    if kind == GUARDS and cluster is not None:
        present = guards.to_json(queries.guards_of(cluster))
        return {name: present[name] for name in changes}
    if kind == SETTINGS and cluster is not None:
        return {name: _present(cluster, name) for name in changes}
    row = cluster or runtime.installation()
    return {"mode": row.mode, "resumes_as": row.resumes_as}


def _present(cluster: Cluster, name: str) -> Any:
    """The present value of a setting; of a secret, a mark by which another one is noticed."""
    if name in cluster_settings.SECRET:
        return _mark(encryption.peek(cluster, name) or "")
    return getattr(cluster, name)


def _requested(row: PendingChange) -> dict[str, Any]:
    """The patch with the secret in it. Raises SecretUnreadable."""
    secret = {name: row.secret for name in cluster_settings.SECRET if name in row.changes}
    return {**row.changes, **secret}


def _set_guards(row: PendingChange, changes: Mapping[str, Any], actor: str, now: datetime) -> None:
    assert row.cluster is not None
    cluster_settings.set_guards(row.cluster, changes, actor=actor, reason=row.reason, now=now)


def _set_cluster(row: PendingChange, changes: Mapping[str, Any], actor: str, now: datetime) -> None:
    assert row.cluster is not None
    cluster_settings.set_cluster(row.cluster, changes, actor=actor, reason=row.reason, now=now)


def _resume(row: PendingChange, changes: Mapping[str, Any], actor: str, now: datetime) -> None:
    services.resume(cluster=row.cluster, reason=row.reason, actor=actor, now=now, mode=changes["mode"])


_APPLY: Mapping[str, Callable[[PendingChange, Mapping[str, Any], str, datetime], None]] = {
    GUARDS: _set_guards,
    SETTINGS: _set_cluster,
    RESUME: _resume,
}


def shown(values: Mapping[str, Any]) -> dict[str, Any]:
    """Returns ``changes`` or ``before`` as people and the audit log see them: no secret, and no key in an address.

    A masked address ends with a mark, so that two which differ only in what is masked do not look the same.
    """
    return {name: _shown(name, value) for name, value in values.items()}


def _shown(name: str, value: Any) -> Any:
    if name in cluster_settings.SECRET:
        return CHANGED if value == CHANGED else ""
    if isinstance(value, str) and masked_addresses.has_key(value):
        return f"{masked_addresses.mask_text(value)} #{_mark(value)}"
    return masked_addresses.mask(value)


def _mark(secret: str) -> str:
    """Six digits that differ for different secrets. Only with the portal's own key can a guess be tried."""
    return salted_hmac(__name__, secret, algorithm="sha256").hexdigest()[:6]


def _note(
    row: PendingChange, act: type[audit.PendingChangeAct], *, actor: str, reason: str, now: datetime, **more: Any
) -> None:
    name = row.cluster.name if row.cluster else ""
    entry = act(cluster=name, change=row.pk, changes=shown(row.changes), reason=reason, **more)
    ledger.record(name, entry, actor=actor, now=now)
    doorbell.publish("cluster", row.cluster.pk if row.cluster else 0, cluster=name)
