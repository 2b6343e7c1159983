"""Validations: a check run with the checks of a profile, and the verdict on each of its nodes.

A validation waits as a row while the cluster has too many check runs, begins one, and is concluded when the run and its
NCCL tests have ended. Each change of its state is a conditional update, so it is made and recorded once.
"""

import contextlib
from collections.abc import Sequence
from datetime import datetime

from django.db import transaction

from kcover import actors, audit, reasons
from kcover.checks import autopilot
from kcover.validation import node_verdict, profiles
from kcover_portal.checks import queries
from kcover_portal.checks.models import CheckRun, ValidatedNode, Validation
from kcover_portal.checks.services import nccl_checks, runs, validation_profiles, validation_verdicts
from kcover_portal.fleet import queries as fleet
from kcover_portal.fleet.models import Cluster, Node
from kcover_portal.ledger import services as ledger
from kcover_portal.lib import doorbell
from kcover_portal.lib.errors import FieldError, Refused
from kcover_portal.rescue import services as rescues
from kcover_portal.rescue.models import Rescue
from kcover_portal.runtime.services import retention

MAX_OPEN = 50  # of a cluster
MAX_NODES = 256  # of one validation

State = Validation.State


class ValidationRefused(Refused):
    """The request conflicts with the present state: the validation is over, or too many are open."""


def begin(
    cluster: Cluster,
    nodes: Sequence[Node],
    *,
    profile: str,
    actor: str,
    reason: str = "",
    requester: CheckRun.Requester = CheckRun.Requester.PERSON,
    rescue: Rescue | None = None,
    key: str | None = None,
    now: datetime,
) -> Validation:
    """Requests a validation of these nodes, at least one and at most MAX_NODES.

    ``rescue``: the rescue of the only node. Its validations have a ``key`` and are not limited in number.
    Raises FieldError for an unknown profile or too many nodes, ValidationRefused if too many validations are open.
    """
    if not 0 < len(nodes) <= MAX_NODES:
        raise FieldError("nodes", reasons.of("validation_node_count", most=MAX_NODES))
    document = validation_profiles.named(profile).to_json()
    with transaction.atomic():
        open_ones = Validation.objects.filter(cluster=cluster, state__in=queries.OPEN_VALIDATION, rescue=None)
        if rescue is None and open_ones.count() >= MAX_OPEN:
            raise ValidationRefused(reasons.of("validations_full", count=MAX_OPEN, cluster=cluster.name))
        row = Validation.objects.create(
            cluster=cluster,
            profile=profile,
            document=document,
            reason=reason,
            requested_by=actor,
            requester_kind=requester,
            rescue=rescue,
            key=key,
            requested_at=now,
        )
        serials = fleet.machine_serials([node.pk for node in nodes])
        ValidatedNode.objects.bulk_create(
            ValidatedNode(validation=row, node=node, machine=node.uid, serial=serials.get(node.pk, ""))
            for node in nodes
        )
        act = audit.ValidationRequested(
            validation=row.pk,
            profile=profile,
            document=document,
            nodes=tuple(node.name for node in nodes[: audit.MAX_NAMED_NODES]),
            count=len(nodes),
            reason=reason,
            node=_only_node(row),
        )
        ledger.record(cluster.name, act, actor=actor, now=now)
        _tell(row)
        start(row.pk, now=now)
    row.refresh_from_db()
    return row


def start(key: int, *, now: datetime) -> None:
    """Begins the check run of a validation that waits, if the cluster has room for another one."""
    try:
        with transaction.atomic():
            if not Validation.objects.filter(pk=key, state=State.WAITING).update(state=State.RUNNING):
                return
            row = Validation.objects.select_related("cluster").get(pk=key)
            profile = validation_profiles.parsed(row.profile, row.document)
            nodes = [one.node for one in row.nodes.select_related("node")]
            if row.rescue_id is not None and is_invasive(profile):
                _check_gpus_are_free(nodes)
            run = runs.begin(
                row.cluster,
                nodes,
                checks=profile.names,
                level=profile.level,
                limits=profile.limits,
                actor=row.requested_by,
                requester=CheckRun.Requester(row.requester_kind),
                now=now,
            )
            Validation.objects.filter(pk=key).update(run=run)
            _tell(row)
    except runs.CheckRunRefused:
        return  # it still waits


def conclude(run_id: int, *, now: datetime) -> None:
    """Gives the verdict of the validation whose check run this is, once the run has ended. Safe to call at any time."""
    run = CheckRun.objects.filter(pk=run_id).exclude(state=CheckRun.State.RUNNING).first()
    rows = Validation.objects.select_related("cluster", "nccl_plan")
    row = rows.filter(run=run_id, state=State.RUNNING).first()
    if run is None or row is None or validation_verdicts.waits(row, run, now=now):
        return
    if not _conclude(row, run, now=now) or row.rescue_id is None:
        return
    for one in row.nodes.select_related("node"):
        rescues.nudge(one.node, now=now)  # after the verdict is stored, because it locks the rescue


def _conclude(row: Validation, run: CheckRun, *, now: datetime) -> bool:
    """Stores the verdict; returns False if somebody else has ended the validation."""
    with transaction.atomic():
        mine = Validation.objects.filter(pk=row.pk, state=State.RUNNING)
        if not mine.select_for_update(no_key=True).exists():
            return False
        if run.state == CheckRun.State.STOPPED:
            _cancel(row, actor=actors.SYSTEM, because=reasons.of("validation_run_stopped", run=run.pk), now=now)
            return True
        nodes = validation_verdicts.judge(row, run)
        state = node_verdict.of_nodes(one.state for one in nodes)
        mine.update(state=state, finished_at=now)
        other = {one.node.name: str(one.state) for one in nodes if one.state != State.PASSED}
        act = audit.ValidationFinished(
            validation=row.pk,
            profile=row.profile,
            state=state,
            count=len(nodes),
            not_passed=dict(sorted(other.items())[: audit.MAX_NAMED_NODES]),
            not_passed_count=len(other),
            node=_only_node(row),
        )
        ledger.record(row.cluster.name, act, actor=actors.SYSTEM, now=now)
        _tell(row)
    return True


def cancel(row: Validation, *, actor: str, reason: str, now: datetime) -> None:
    """Cancels a validation and stops its checks. Raises ValidationRefused if it has ended."""
    with transaction.atomic():
        mine = Validation.objects.filter(pk=row.pk, state__in=queries.OPEN_VALIDATION)
        current = mine.select_for_update(of=("self",), no_key=True).select_related("cluster").first()
        if current is None:
            raise ValidationRefused(reasons.of("validation_ended", validation=row.pk))
        _cancel(current, actor=actor, reason=reason, now=now)
        if current.run is not None:
            with contextlib.suppress(runs.CheckRunRefused):  # it has ended, and its results no longer count
                runs.stop(current.run, actor=actor, reason=reason, now=now)


def withdraw(rescue: Rescue, *, because: reasons.Reason, now: datetime) -> None:
    """Cancels the open validations of a rescue and stops their checks. Part of the caller's transaction."""
    rows = Validation.objects.filter(rescue=rescue, state__in=queries.OPEN_VALIDATION)
    for row in rows.select_for_update(of=("self",), no_key=True).select_related("cluster", "run"):
        _cancel(row, actor=actors.SYSTEM, because=because, now=now)
        if row.run is not None:
            with contextlib.suppress(runs.CheckRunRefused):  # it has ended, and its results no longer count
                runs.stop(row.run, actor=actors.SYSTEM, reason="", because=because, now=now)


def is_invasive(profile: profiles.Profile) -> bool:
    """Returns whether a check of the profile needs idle GPUs."""
    agents = any(autopilot.is_invasive(name, level=profile.level) for name in profile.names)
    return agents or bool(profile.nccl_limits)


def prune(*, now: datetime) -> None:
    """Deletes old validations."""
    ended = Validation.objects.exclude(state__in=queries.OPEN_VALIDATION)
    ended.filter(finished_at__lt=retention.before(Validation, now=now)).delete()


def _cancel(
    row: Validation, *, actor: str, reason: str = "", because: reasons.Reason | None = None, now: datetime
) -> None:
    Validation.objects.filter(pk=row.pk).update(state=State.CANCELLED, finished_at=now)
    row.nodes.update(state=State.CANCELLED)
    nccl_checks.cancel(row, actor=actor, reason=reason, now=now)
    act = audit.ValidationCancelled(
        validation=row.pk, profile=row.profile, reason=reason, because=because, node=_only_node(row)
    )
    ledger.record(row.cluster.name, act, actor=actor, now=now)
    _tell(row)


def _check_gpus_are_free(nodes: Sequence[Node]) -> None:
    """Raises CheckRunRefused while another run loads GPUs of these nodes, because its checks would be skipped."""
    loaded = queries.loaded([node.pk for node in nodes])
    if loaded:
        raise runs.CheckRunRefused(reasons.of("check_run_uses_gpus", run=next(iter(loaded.values()))))


def _only_node(row: Validation) -> str:
    names = list(row.nodes.values_list("node__name", flat=True)[:2])
    return names[0] if len(names) == 1 else ""


def _tell(row: Validation) -> None:
    doorbell.publish("checks", row.pk, cluster=row.cluster.name)
    for key in row.nodes.order_by().values_list("node", flat=True):
        doorbell.publish("node", key, cluster=row.cluster.name)
