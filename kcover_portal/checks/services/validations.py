"""Validations: a check run with the checks of a profile, and the verdict on each of its nodes.

A validation waits as a row while the cluster has too many check runs, begins one, and is concluded when the run has
ended. Each change of its state is a conditional update, so it is made and recorded once.
"""

import contextlib
import dataclasses
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from django.db import transaction

from kcover import actors, audit, autopilot, reasons
from kcover.decisions import health
from kcover.faults import fault
from kcover.validation import node_verdict, profiles
from kcover_portal import doorbell
from kcover_portal.checks import queries
from kcover_portal.checks.models import CheckRun, CheckTarget, ValidatedNode, Validation
from kcover_portal.checks.services import node_checks, runs, validation_profiles
from kcover_portal.errors import FieldError
from kcover_portal.fleet.models import Agent, CheckResult, Cluster, Node
from kcover_portal.ledger import services as ledger
from kcover_portal.rescue import services as rescues
from kcover_portal.rescue.models import Rescue

MAX_OPEN = 50  # of a cluster
MAX_NODES = 256  # of one validation
PROBES_WITHIN = timedelta(minutes=5)  # after a boot: longer than the longest interval of a probe
MAX_NAMED_NODES = 50  # in an entry of the audit log
RESULT_FIELDS = tuple(field.name for field in dataclasses.fields(fault.Check))

State = Validation.State


class ValidationRefused(reasons.ExplainedError):
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
        ValidatedNode.objects.bulk_create(ValidatedNode(validation=row, node=node, machine=node.uid) for node in nodes)
        act = audit.ValidationRequested(
            validation=row.pk,
            profile=profile,
            document=document,
            nodes=tuple(node.name for node in nodes[:MAX_NAMED_NODES]),
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
    row = Validation.objects.select_related("cluster").filter(run=run_id, state=State.RUNNING).first()
    if run is None or row is None or _waits_for_probes(row, run, now=now):
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
        nodes = _judge(row, run)
        state = node_verdict.of_nodes(one.state for one in nodes)
        mine.update(state=state, finished_at=now)
        other = {one.node.name: str(one.state) for one in nodes if one.state != State.PASSED}
        act = audit.ValidationFinished(
            validation=row.pk,
            profile=row.profile,
            state=state,
            count=len(nodes),
            not_passed=dict(sorted(other.items())[:MAX_NAMED_NODES]),
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
    return any(autopilot.is_invasive(name, level=profile.level) for name in profile.names)


def prune(*, before: datetime) -> None:
    """Deletes validations that ended before that time."""
    Validation.objects.exclude(state__in=queries.OPEN_VALIDATION).filter(finished_at__lt=before).delete()


def _cancel(
    row: Validation, *, actor: str, reason: str = "", because: reasons.Reason | None = None, now: datetime
) -> None:
    Validation.objects.filter(pk=row.pk).update(state=State.CANCELLED, finished_at=now)
    row.nodes.update(state=State.CANCELLED)
    act = audit.ValidationCancelled(
        validation=row.pk, profile=row.profile, reason=reason, because=because, node=_only_node(row)
    )
    ledger.record(row.cluster.name, act, actor=actor, now=now)
    _tell(row)


def _judge(row: Validation, run: CheckRun) -> list[ValidatedNode]:
    """Stores the verdict on each node and returns the nodes."""
    profile = validation_profiles.parsed(row.profile, row.document)
    nodes = list(row.nodes.select_related("node"))
    targets = {target.node_id: target for target in run.targets.all()}
    probes = _probes([one.node_id for one in nodes], profile.probes)
    for one in nodes:
        one.probes = probes.get(one.node_id, [])
        verdict = _verdict(profile, one, targets.get(one.node_id))
        one.state, one.proof = verdict.state, verdict.proof
        one.because = [reason.to_json() for reason in verdict.because]
    ValidatedNode.objects.bulk_update(nodes, ("state", "proof", "because", "probes"), batch_size=200)
    return nodes


def _verdict(profile: profiles.Profile, one: ValidatedNode, target: CheckTarget | None) -> node_verdict.Verdict:
    if one.node.uid != one.machine:
        why = reasons.of("validation_other_machine")
        return node_verdict.Verdict(node_verdict.ERROR, node_verdict.NONE, (why,))
    results = node_checks.results_of(target) if target is not None else []
    verdict = node_verdict.of_node(profile, results, node_checks.as_values(one.probes))
    note = reasons.kept(target.note) if target is not None else None
    if note is None or verdict.state == node_verdict.FAILED:
        return verdict
    return node_verdict.Verdict(node_verdict.ERROR, verdict.proof, (note,))


def _probes(nodes: Sequence[int], names: Sequence[str]) -> dict[int, list[dict[str, Any]]]:
    """The current results of these probes by node, as they are stored.

    A result of a device that is no longer reported is left out. One from before the node's last boot is an error,
    because the probe has not looked since.
    """
    agents = {agent.node_id: agent for agent in Agent.objects.filter(node__in=nodes)}
    found: dict[int, list[dict[str, Any]]] = {}
    for row in CheckResult.objects.filter(node__in=nodes, name__in=names).order_by("name", "device"):
        agent = agents.get(row.node_id)
        if agent is None or not health.counts(row.name, seen_at=row.seen_at, reported_at=agent.seen_at):
            continue
        if row.seen_at < agent.boot_seen_at:
            result = node_checks.stored(row.name, "error", reasons.of("probe_before_boot"), device=row.device)
        else:
            result = {field: getattr(row, field) for field in RESULT_FIELDS}
        found.setdefault(row.node_id, []).append(result)
    return found


def _check_gpus_are_free(nodes: Sequence[Node]) -> None:
    """Raises CheckRunRefused while another run loads GPUs of these nodes, because its checks would be skipped."""
    loaded = queries.loaded([node.pk for node in nodes])
    if loaded:
        raise runs.CheckRunRefused(reasons.of("check_run_uses_gpus", run=next(iter(loaded.values()))))


def _waits_for_probes(row: Validation, run: CheckRun, *, now: datetime) -> bool:
    """Returns whether probes may yet look for the first time since the node booted. A rescue may have rebooted it."""
    if row.rescue_id is None or run.finished_at is None or now - run.finished_at >= PROBES_WITHIN:
        return False
    names = validation_profiles.parsed(row.profile, row.document).probes
    found = _probes(list(row.nodes.values_list("node", flat=True)), names)
    codes = {result.get(node_checks.BECAUSE, {}).get("code") for results in found.values() for result in results}
    return "probe_before_boot" in codes


def _only_node(row: Validation) -> str:
    names = list(row.nodes.values_list("node__name", flat=True)[:2])
    return names[0] if len(names) == 1 else ""


def _tell(row: Validation) -> None:
    doorbell.publish("checks", row.pk, cluster=row.cluster.name)
    for key in row.nodes.order_by().values_list("node", flat=True):
        doorbell.publish("node", key, cluster=row.cluster.name)
