"""Changes that loosen a limit: where the cluster asks for a second admin, they wait until another one confirms them.

A change that only tightens is effective at once. So is every change by the shell.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
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
from kcover_portal.fleet.services import cluster_settings, pauses, pools
from kcover_portal.ledger import services as ledger
from kcover_portal.lib import doorbell
from kcover_portal.lib.errors import FieldError, Refused
from kcover_portal.runtime import queries as runtime
from kcover_portal.runtime.models import Installation, Mode

VALID_FOR = timedelta(days=1)
HAND_APPROVALS = (Cluster.HandApproval.NEVER, Cluster.HandApproval.MODE, Cluster.HandApproval.ALWAYS)  # strictest last
SECOND_FACTORS = (Cluster.SecondFactor.OFF, Cluster.SecondFactor.APPROVERS, Cluster.SecondFactor.ALL)  # strictest last
# What a change of one of these does depends on the others, so the second admin sees and confirms all of them.
DECISION_SYSTEM = ("decision_mode", "decision_url", "decision_secret", "decision_timeout", "decision_fallback")
# The settings that ``loosens_settings`` judges. A change of these can wait for another admin.
JUDGED = (
    *("mode", "hand_approval", "isolate_before_approval", "on_drain_timeout", "second_admin", "second_factor"),
    *("acted_on_by", "action_lease", "job_recovery", "drills", *DECISION_SYSTEM, "topology"),
)
DECIDERS = {"policies": {"policies"}, "external": {"external"}, "both": {"policies", "external"}}
JOB_RECOVERIES = ("off", "shadow", "approve", "enforce")  # strictest first
SET, REPLACED, CLEARED = "set", "replaced", "cleared"  # in place of a secret
GUARDS, SETTINGS, RESUME = "guards", "settings", "resume"  # kinds of changes


class ChangeRefused(Refused):
    """The change cannot be confirmed or rejected; the reason says why."""


def loosens_mode(row: Cluster | Installation, mode: str | None) -> bool:
    """Returns whether the mode is less strict than the present one; than the one before, during a pause."""
    return mode is not None and modes.MODES.index(mode) > modes.MODES.index(cluster_settings.lasting_mode(row))


def loosens_settings(cluster: Cluster, changes: Mapping[str, Any]) -> bool:
    """Returns whether the settings let the portal, or one person, do more than before.

    Other labels of the topology count, because budgets, floors and storms are counted by them. So does another
    decision system, or another secret of it: it may decide otherwise, or not answer. Raises FieldError for an invalid
    topology.
    """
    rank, drained = HAND_APPROVALS.index, Cluster.OnDrainTimeout.values.index
    return (
        loosens_mode(cluster, changes.get("mode"))
        or rank(changes.get("hand_approval", cluster.hand_approval)) < rank(cluster.hand_approval)
        or _asks_fewer(cluster, changes.get("second_factor", cluster.second_factor))
        or drained(changes.get("on_drain_timeout", cluster.on_drain_timeout)) > drained(cluster.on_drain_timeout)
        or (not cluster.isolate_before_approval and changes.get("isolate_before_approval", False))
        or (cluster.second_admin and not changes.get("second_admin", True))
        or _recovers_more(cluster, changes.get("job_recovery", cluster.job_recovery))
        or (bool(cluster.acted_on_by) and not changes.get("acted_on_by", cluster.acted_on_by))
        or (cluster.action_lease and not changes.get("action_lease", True))
        or (cluster.drills == Cluster.Drills.RECORD and changes.get("drills") == Cluster.Drills.ACT)
        or _asks_no_more(cluster, changes)
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


def _asks_no_more(cluster: Cluster, changes: Mapping[str, Any]) -> bool:
    """Returns whether a decision system, which can hold a node back, is not asked any more."""
    wanted = changes.get("decision_mode", cluster.decision_mode)
    asked = cluster.decision_mode != Cluster.DecisionMode.POLICIES and bool(cluster.decision_url)
    return asked and wanted == Cluster.DecisionMode.POLICIES


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


def judged_again(
    kind: str, changes: Mapping[str, Any], *, may_loosen: bool, may_resume: bool = False, seen: str = ""
) -> Callable[[Cluster], None]:
    """A check for ``cluster_settings``, under the lock of the cluster's row: two changes at once could loosen together.

    ``may_loosen``: the person may make a change that loosens, where no second admin is asked for. ``may_resume``: the
    person may end a pause, and was asked for what that needs. ``seen``: see ``pauses``. Raises ChangeRefused and
    PauseChanged.
    """

    def check(row: Cluster) -> None:
        pauses.check(row, seen)
        loosens = loosens_guards(row, changes) if kind == GUARDS else loosens_settings(row, changes)
        resumes = row.mode == Mode.PAUSED and changes.get("mode", Mode.PAUSED) != Mode.PAUSED
        if (loosens and (row.second_admin or not may_loosen)) or (resumes and not may_resume):
            raise ChangeRefused(reasons.of("settings_changed_meanwhile"))

    return check


def change(
    cluster: Cluster,
    kind: str,
    changes: Mapping[str, Any],
    *,
    may_loosen: bool,
    may_resume: bool = False,
    seen: str = "",
    actor: str,
    reason: str,
    now: datetime,
) -> None:
    """Changes settings or guards at once, after a last look whether that is still allowed; see ``judged_again``.

    Raises what ``cluster_settings.set_cluster`` and ``set_guards`` raise.
    """
    make = cluster_settings.set_guards if kind == GUARDS else cluster_settings.set_cluster
    check = judged_again(kind, changes, may_loosen=may_loosen, may_resume=may_resume, seen=seen)
    make(cluster, changes, actor=actor, reason=reason, now=now, check=check)


def resume(
    cluster: Cluster | None,
    mode: str | None,
    *,
    may_loosen: bool,
    seen: str = "",
    actor: str,
    reason: str,
    now: datetime,
) -> None:
    """Resumes automation at once, after a last look under the row's lock whether that is still allowed.

    ``mode``: None for the one before the pause. ``may_loosen``, ``seen``: see ``judged_again``. Raises the same.
    """

    def check(row: Cluster | Installation) -> None:
        pauses.check(row, seen)
        if loosens_mode(row, mode) and (needs_second(row if isinstance(row, Cluster) else None) or not may_loosen):
            raise ChangeRefused(reasons.of("settings_changed_meanwhile"))

    services.resume(cluster=cluster, reason=reason, actor=actor, now=now, mode=mode, check=check)


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

    Raises FieldError for an address that was masked, and for a secret of the wrong length or that cannot be encrypted.
    """
    cluster_settings.check_decision_system(changes)
    row = PendingChange(
        cluster=cluster,
        kind=kind,
        changes={name: _sealed(name, value) for name, value in changes.items()},
        secret=changes.get("decision_secret", ""),
        before=_present_values(cluster or runtime.installation(), kind, _concerned(kind, changes)),
        requested_by=actor,
        requesters=list(requesters),
        reason=reason,
        requested_at=now,
        expires_at=now + VALID_FOR,
    )
    with transaction.atomic():
        try:
            row.save()
        except encryption.KeysUnusable as error:
            raise FieldError("", error.reason, conflict=True) from error
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


def _concerned(kind: str, changes: Mapping[str, Any]) -> Collection[str]:
    """The names whose values a change relies on: its own, and with one of a decision system all of that system."""
    with_it = DECISION_SYSTEM if kind == SETTINGS and not changes.keys().isdisjoint(DECISION_SYSTEM) else ()
    return {**changes, **dict.fromkeys(with_it)}


def _present_values(row: Cluster | Installation, kind: str, names: Iterable[str]) -> dict[str, Any]:
    """The present values of these settings or guards; of a pause, the mode."""
    if kind == GUARDS and isinstance(row, Cluster):
        present = guards.to_json(queries.guards_of(row))
        return {name: present[name] for name in names}
    if kind == SETTINGS and isinstance(row, Cluster):
        return {name: _present(row, name) for name in names}
    return {"mode": row.mode, "resumes_as": row.resumes_as}


def _unchanged(change: PendingChange) -> services.ModeCheck:
    """A check that raises ChangeRefused unless the locked row has the values that the second admin saw."""

    def check(row: Cluster | Installation) -> None:
        if _present_values(row, change.kind, change.before) != change.before:
            raise ChangeRefused(reasons.of("change_outdated", change=str(change.pk)))

    return check


def _present(cluster: Cluster, name: str) -> Any:
    """The present value of a setting; of a secret, a mark by which another one is noticed, "" if it is not set."""
    if name not in cluster_settings.SECRET:
        return getattr(cluster, name)
    if not encryption.is_set(cluster, name):
        return ""
    return _mark(name, encryption.peek(cluster, name) or "")


def _sealed(name: str, value: Any) -> Any:
    """A requested value as the row stores it. The secret has a column of its own."""
    if name not in cluster_settings.SECRET:
        return value
    return REPLACED if value else CLEARED


def _requested(row: PendingChange) -> dict[str, Any]:
    """The patch with the secret in it. Raises ChangeRefused if that is gone or cannot be read."""
    found = dict(row.changes)
    for name in cluster_settings.SECRET:
        if name not in found:
            continue
        try:
            secret = row.secret
        except encryption.SecretUnreadable as unreadable:
            raise ChangeRefused(unreadable.reason) from unreadable
        if bool(secret) != (found[name] == REPLACED):
            raise ChangeRefused(reasons.of("change_closed", change=str(row.pk), state=reasons.state("expired")))
        found[name] = secret
    return found


def forget_expired(*, now: datetime) -> None:
    """Deletes the secrets of changes that nobody confirmed in time."""
    PendingChange.objects.filter(expires_at__lte=now).exclude(secret="").update(secret="")


def _set_guards(row: PendingChange, changes: Mapping[str, Any], actor: str, now: datetime) -> None:
    assert row.cluster is not None
    check = _unchanged(row)
    cluster_settings.set_guards(row.cluster, changes, actor=actor, reason=row.reason, now=now, check=check)


def _set_cluster(row: PendingChange, changes: Mapping[str, Any], actor: str, now: datetime) -> None:
    assert row.cluster is not None
    check = _unchanged(row)
    cluster_settings.set_cluster(row.cluster, changes, actor=actor, reason=row.reason, now=now, check=check)


def _resume(row: PendingChange, changes: Mapping[str, Any], actor: str, now: datetime) -> None:
    mode, check = changes["mode"], _unchanged(row)
    services.resume(cluster=row.cluster, reason=row.reason, actor=actor, now=now, mode=mode, check=check)


_APPLY: Mapping[str, Callable[[PendingChange, Mapping[str, Any], str, datetime], None]] = {
    GUARDS: _set_guards,
    SETTINGS: _set_cluster,
    RESUME: _resume,
}


def shown(values: Mapping[str, Any]) -> dict[str, Any]:
    """Returns ``changes`` or ``before`` as people and the audit log see them: no secret, and no key in an address.

    A masked address ends with a mark. Two that differ only in what is masked look different by it.
    """
    return {name: _shown(name, value) for name, value in values.items()}


def _shown(name: str, value: Any) -> Any:
    if name in cluster_settings.SECRET:
        return value if value in (REPLACED, CLEARED, "") else SET
    if isinstance(value, str) and masked_addresses.has_key(value):
        return f"{masked_addresses.mask_text(value)} #{_mark(name, value)}"
    return masked_addresses.mask(value)


def _mark(name: str, value: str) -> str:
    """Six hexadecimal digits, almost always others for another value. Only with the portal's key can one be guessed."""
    return salted_hmac(f"{__name__}.{name}", value, algorithm="sha256").hexdigest()[:6]


def _note(
    row: PendingChange, act: type[audit.PendingChangeAct], *, actor: str, reason: str, now: datetime, **more: Any
) -> None:
    name = row.cluster.name if row.cluster else ""
    entry = act(cluster=name, change=row.pk, changes=shown(row.changes), reason=reason, **more)
    ledger.record(name, entry, actor=actor, now=now)
    doorbell.publish("cluster", row.cluster.pk if row.cluster else 0, cluster=name)
