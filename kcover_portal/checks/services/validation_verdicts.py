"""The verdict on the nodes of a validation, from the results of its check run, its NCCL tests and its probes."""

import dataclasses
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from kcover import reasons
from kcover.faults import fault
from kcover.nodes import health
from kcover.validation import node_verdict, profiles
from kcover_portal.checks.models import CheckRun, CheckTarget, ValidatedNode, Validation
from kcover_portal.checks.services import nccl_checks, node_checks, validation_profiles
from kcover_portal.fleet import queries as fleet
from kcover_portal.fleet.models import Agent, CheckResult

PROBES_WITHIN = timedelta(minutes=5)  # after a boot: longer than the longest interval of a probe
RESULT_FIELDS = tuple(field.name for field in dataclasses.fields(fault.Check))


def judge(row: Validation, run: CheckRun) -> list[ValidatedNode]:
    """Stores the verdict on each node and returns the nodes."""
    profile = validation_profiles.parsed(row.profile, row.document)
    nodes = _with_probes(row, profile)
    nccl = nccl_checks.results(row, profile, nodes)
    for one in nodes:
        one.nccl = nccl[one.pk]
    _decide(nodes, profile, run)
    ValidatedNode.objects.bulk_update(nodes, ("state", "proof", "because", "probes", "nccl"), batch_size=200)
    return nodes


def waits(row: Validation, run: CheckRun, *, now: datetime) -> bool:
    """Returns whether the verdict is still to wait: for probes, or for NCCL tests, which it begins."""
    profile = validation_profiles.parsed(row.profile, row.document)
    if run.state == CheckRun.State.STOPPED:
        return False
    if _waits_for_probes(row, profile, run, now=now):
        return True
    if not profile.nccl_limits:
        return False
    passed: list[ValidatedNode] = []
    if row.nccl_plan_id is None:
        nodes = _with_probes(row, profile)
        _decide(nodes, profiles.without_nccl(profile), run)
        passed = [one for one in nodes if one.state == node_verdict.PASSED]
    return nccl_checks.go_on(row, profile, passed, now=now)


def _with_probes(row: Validation, profile: profiles.Profile) -> list[ValidatedNode]:
    nodes = list(row.nodes.select_related("node"))
    probes = _probes([one.node_id for one in nodes], profile.probes)
    for one in nodes:
        one.probes = probes.get(one.node_id, [])
    return nodes


def _decide(nodes: Sequence[ValidatedNode], profile: profiles.Profile, run: CheckRun) -> None:
    """Sets the verdict of each node, without storing it."""
    targets = {target.node_id: target for target in run.targets.all()}
    serials = fleet.machine_serials([one.node_id for one in nodes])
    for one in nodes:
        verdict = _verdict(profile, one, targets.get(one.node_id), serial=serials.get(one.node_id, ""))
        one.state, one.proof = verdict.state, verdict.proof
        one.because = [reason.to_json() for reason in verdict.because]


def _verdict(
    profile: profiles.Profile, one: ValidatedNode, target: CheckTarget | None, *, serial: str
) -> node_verdict.Verdict:
    """The verdict. ``serial``: of the machine that has the node's name now; "" if unknown."""
    if one.node.uid != one.machine or (one.serial and serial and serial != one.serial):
        why = reasons.of("validation_other_machine")
        return node_verdict.Verdict(node_verdict.ERROR, node_verdict.NONE, (why,))
    answered = node_checks.results_of(target) if target is not None else []
    checks = [*answered, *node_checks.as_values(one.nccl)]
    verdict = node_verdict.of_node(profile, checks, node_checks.as_values(one.probes))
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


def _waits_for_probes(row: Validation, profile: profiles.Profile, run: CheckRun, *, now: datetime) -> bool:
    """Returns whether probes may yet look for the first time since the node booted. A rescue may have rebooted it."""
    if row.rescue_id is None or run.finished_at is None or now - run.finished_at >= PROBES_WITHIN:
        return False
    found = _probes(list(row.nodes.values_list("node", flat=True)), profile.probes)
    notes = [result.get(node_checks.BECAUSE, {}) for results in found.values() for result in results]
    return any(reasons.stored_saying(note, "probe_before_boot") for note in notes)
