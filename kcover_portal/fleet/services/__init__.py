"""Changes to the fleet: contact with clusters, commands to agents, modes. The watch's nodes are in ``node_rows``."""

import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db import transaction

from kcover import audit, reasons
from kcover.faults import fault
from kcover.reasons import Reason
from kcover_portal.fleet import queries
from kcover_portal.fleet.models import Cluster, Command, Node
from kcover_portal.fleet.services import cluster_settings, late_results, pauses, storable_values
from kcover_portal.ledger import services as ledger
from kcover_portal.lib import doorbell
from kcover_portal.runtime.models import Installation, Mode

ModeCheck = Callable[[Cluster | Installation], None]


@dataclass(frozen=True, slots=True)
class Requester:
    """The requester of a command: a row of another app by kind and id, and for a rescue the index of the step."""

    kind: Command.Requester
    id: int
    step: int | None = None


def note_watch(cluster: Cluster, *, now: datetime, error: Reason | None = None, version: str = "") -> None:
    """Records that the cluster answered the watch, or the error."""
    fields: dict[str, Any] = {"watch_error": storable_values.json_value(error.to_json()) if error else {}}
    if error is None:
        fields["watched_at"] = now
        if not Cluster.objects.filter(pk=cluster.pk, watched_at__gte=now - queries.WATCH_GAP).exists():
            fields["reachable_since"] = now
    if version:
        fields["version"] = version
    Cluster.objects.filter(pk=cluster.pk).update(**fields)


def record_api_gap(cluster: int, *, now: datetime) -> None:
    """Records that the cluster (by id) did not answer until now, so that silent agents before now prove nothing."""
    Cluster.objects.filter(pk=cluster).update(reachable_since=now)


def ask_agent(
    node: Node,
    kind: str,
    *,
    key: str,
    args: Mapping[str, Any],
    expires_at: datetime,
    now: datetime,
    requester: Requester | None = None,
) -> Command:
    """Offers a command to the node's agent. A repeated key returns the existing command."""
    command, created = Command.objects.get_or_create(
        key=key,
        defaults={
            "id": uuid.uuid4(),
            "node": node,
            "kind": kind,
            "args": dict(args),
            "requester_kind": requester.kind if requester else "",
            "requester_id": requester.id if requester else None,
            "requester_step": requester.step if requester else None,
            "created_at": now,
            "expires_at": expires_at,
        },
    )
    if created:
        doorbell.publish("command", node.pk, cluster=node.cluster.name)
    return command


def withdraw_commands(requester: Requester, *, because: Reason, now: datetime) -> list[tuple[uuid.UUID, str]]:
    """Withdraws the requester's unanswered commands; without a step, those of all its steps.

    Returns the ids and kinds of the withdrawn commands.
    """
    rows = Command.objects.filter(requester_kind=requester.kind, requester_id=requester.id)
    if requester.step is not None:
        rows = rows.filter(requester_step=requester.step)
    found = list(rows.filter(state=Command.State.OFFERED).order_by("created_at").values_list("pk", "kind"))
    if found:
        withdrawn = reasons.of("command_withdrawn", why=because).to_json()
        Command.objects.filter(pk__in=[pk for pk, _ in found], state=Command.State.OFFERED).update(
            state=Command.State.EXPIRED, because=withdrawn, finished_at=now
        )
    return found


def withdraw_command(key: str, *, because: Reason, now: datetime) -> bool:
    """Withdraws one unanswered command by its key; returns whether there was one."""
    withdrawn = reasons.of("command_withdrawn", why=because).to_json()
    offered = Command.objects.filter(key=key, state=Command.State.OFFERED)
    return bool(offered.update(state=Command.State.EXPIRED, because=withdrawn, finished_at=now))


def settle_command(node: Node, result: fault.CommandResult, *, now: datetime) -> bool:
    """Stores the result of a command of this node; returns whether it was stored.

    A second result, or one for another node's command, changes nothing. A result after the command expired or was
    withdrawn does not settle it, but is stored with it.
    """
    try:
        command_id = uuid.UUID(result.id)
    except ValueError:
        return False
    changed = Command.objects.filter(pk=command_id, node=node, state=Command.State.OFFERED).update(
        state=result.status,
        message=result.message[:1000],
        output=dict(result.output),
        finished_at=now,
    )
    if changed:
        run_command = Command.objects.filter(pk=command_id, requester_kind=Command.Requester.CHECK_RUN).first()
        if run_command is not None and run_command.requester_id is not None:
            doorbell.ring("checks.advance_run", run_command.requester_id)
    return bool(changed) or late_results.note(node, command_id, result, now=now)


def expire_commands(*, now: datetime) -> int:
    """Expires commands that were not answered in time; returns their number."""
    return queries.commands_overdue(now=now).update(state=Command.State.EXPIRED, finished_at=now)


def pause(*, cluster: Cluster | None, reason: str, actor: str, now: datetime) -> None:
    """Pauses automation in one cluster, or in all, before the next cluster call; remembers the previous mode.

    The reason may follow with a second call. A second call without a reason keeps the one that is known.
    """
    _set_mode(Mode.PAUSED, cluster=cluster, reason=reason, actor=actor, now=now, act=audit.AutomationPaused)


def resume(
    *,
    cluster: Cluster | None,
    reason: str,
    actor: str,
    now: datetime,
    mode: str | None = None,
    check: ModeCheck = cluster_settings.anything,
) -> None:
    """Resumes automation in the mode from before the pause, unless another is given.

    ``check`` sees the locked row first, and may raise.
    """
    _set_mode(mode, cluster=cluster, reason=reason, actor=actor, now=now, act=audit.AutomationResumed, check=check)


@transaction.atomic
def _set_mode(
    mode: str | None,
    *,
    cluster: Cluster | None,
    reason: str,
    actor: str,
    now: datetime,
    act: type[audit.ModeAct],
    check: ModeCheck = cluster_settings.anything,
) -> None:
    if cluster is None:
        row: Installation | Cluster = Installation.objects.select_for_update().get_or_create(pk=1)[0]
    else:
        row = Cluster.objects.select_for_update(no_key=True).get(pk=cluster.pk)
    check(row)
    before = row.mode
    row.mode = mode or (cluster_settings.mode_to_resume(row) if before == Mode.PAUSED else before)
    if row.mode == Mode.PAUSED and before != Mode.PAUSED:
        row.resumes_as = before
    if before == row.mode == Mode.PAUSED:
        reason = reason or pauses.reason_of(row)
    if isinstance(row, Installation):
        row.reason, row.changed_by, row.changed_at = reason, actor, now
        row.save(update_fields=["mode", "resumes_as", "reason", "changed_by", "changed_at"])
    else:
        row.pause_reason = reason if row.mode == Mode.PAUSED else ""
        row.save(update_fields=["mode", "resumes_as", "pause_reason"])
    if row.mode != before:
        cluster_settings.note_change(cluster)
    name = cluster.name if cluster else ""
    ledger.record(name, act(cluster=name, before=before, mode=row.mode, reason=reason), actor=actor, now=now)
    doorbell.publish("cluster", cluster.pk if cluster else 0, cluster=name)
