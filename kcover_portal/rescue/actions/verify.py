"""verify: prove that the node is healthy before anything runs on it again (invariant 38).

The node is Ready, under the boot ID that ``ready`` saw. The agent has reported since, under that boot ID, and again
recently. No fault was seen since. The checks that caused the rescue no longer fail. Pods can get all its GPUs. All
this holds for the cluster's hold-down time. Silence proves nothing.
"""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from django.db.models import QuerySet

from kcover import reasons
from kcover.actions import validate, verify as core
from kcover.nodes import health
from kcover.nodes.node_stage import Stage
from kcover.plans import plan
from kcover_portal.fleet import queries as fleet
from kcover_portal.fleet.models import Agent, CheckResult
from kcover_portal.incidents import queries as incidents, services
from kcover_portal.incidents.models import Incident
from kcover_portal.kube import port
from kcover_portal.lib.prepared import Prepared
from kcover_portal.rescue.step import doubtful_reports, matched_rule, plan_steps
from kcover_portal.rescue.step.context import Context
from kcover_portal.rescue.step.marks import node_marks, out_of_service
from kcover_portal.rescue.step.outcomes import Done, Failed, Hold, Outcome, Poll, StartOver, Wait

POLL_SECONDS = 1.0
AGENT_TIME_LIMIT = timedelta(minutes=5)  # ten default heartbeats
SETTLE_WITHIN = timedelta(minutes=10)  # of a fault that no repair preceded
MAX_NAMES_SHOWN = 8
CHECK_SECONDS = 5.0
GPUS_WITHIN = timedelta(minutes=10)  # a device plugin that starts needs a minute or two
CHECK_WITHIN = health.PROBE_RESULT_VALID_FOR  # agents run checks at least once an hour and report changes at once


def run(context: Context) -> Outcome:
    """Checks the conditions once. The outcome also names what sources told late, which does not count."""
    since, boot_id = _proof_starts(context)
    outcome = _verify(context, since=since, boot_id=boot_id)
    late = incidents.told_late(context.node, since, boot_id=boot_id)
    return replace(outcome, reason=reasons.both(outcome.reason, _not_counted(late))) if late else outcome


def _not_counted(late: Sequence[incidents.LateReport]) -> reasons.Reason:
    return reasons.of("late_reports", reports=doubtful_reports.named(late))


def _verify(context: Context, *, since: datetime, boot_id: str) -> Outcome:
    node = node_marks.restate(context, Stage.VERIFYING)
    out_of_service.take_back(context, node)
    services.settle_doubt(node=context.node, now=context.now)
    active = incidents.faults_since(context.node, since, boot_id=boot_id)
    if active:
        faults = ", ".join(f"{incident.kind} {incident.code} {incident.device}".strip() for incident in active)
        again = reasons.of("faults_since_repair", faults=faults)
        if not all(_same_rule(context, incident) for incident in active):
            return Failed(again)  # the fault of another rule needs another repair
        if _may_settle(context):
            context.remember(quiet_since=context.now)
            return Wait(CHECK_SECONDS, reasons.of("faults_not_over", faults=faults))
        return StartOver(again)  # the same rule means the same plan
    if boot_id and node.boot_id != boot_id:
        return Failed(reasons.of("rebooted_again"))
    if not node.ready:
        return Poll(POLL_SECONDS, reasons.of("verify_not_ready"))
    if context.step.args_as(core.Args).agent and not _agent_is_fresh(context, since=since, boot_id=node.boot_id):
        if context.now - since > AGENT_TIME_LIMIT:
            return Hold(reasons.of("agent_not_back"))
        return Poll(POLL_SECONDS, reasons.of("verify_waits_for_agent"))
    left = since + timedelta(seconds=context.cluster.hold_down) - context.now
    if left > timedelta(0):
        return Wait(left.total_seconds(), reasons.of("hold_down", seconds=context.cluster.hold_down))
    missing = _unproved(context, since=since, boot_id=node.boot_id) or _without_gpus(context, node, since=since)
    return missing or doubtful_reports.wait(context) or Done(reasons.of("verified_healthy"))


def _may_settle(context: Context) -> bool:
    """Returns whether the fault may be over soon: its lines often repeat for seconds, and no repair preceded.

    The validation that follows closes incidents up to its own start, so also those of the time until then.
    """
    repaired = any(step.spec.mends and step.state == step.State.DONE for step in context.steps)
    validated = any(step.name == validate.SPEC.name and step.index > context.step.index for step in context.steps)
    started = context.step.started_at or context.now
    return validated and not repaired and context.now - started < SETTLE_WITHIN


def _unproved(context: Context, *, since: datetime, boot_id: str) -> Outcome | None:
    """The missing proof after the hold-down time, in which the agent may have become silent; None if nothing is
    missing.
    """
    lately = context.now - fleet.AGENT_SILENT_AFTER
    agent = context.step.args_as(core.Args).agent
    if agent and not _agent_is_fresh(context, since=max(since, lately), boot_id=boot_id):
        # The time counts from here, because the portal itself may have been away, so that no agent could report.
        silent_at = context.step.progress_as(core.Progress).silent_at
        if silent_at is None:
            silent_at = context.now
            context.remember(silent_at=silent_at)
        if context.now - silent_at > AGENT_TIME_LIMIT:
            return Hold(reasons.of("agent_fell_silent"))
        return Wait(CHECK_SECONDS, reasons.of("verify_waits_for_silent_agent"))
    failing = _FAILING_CHECKS.rows(rescue=context.rescue.pk, node=context.node.pk)
    if failing:
        still = ", ".join(f"{check.name} {check.device}".strip() for check in failing[:MAX_NAMES_SHOWN])
        if context.now - since > CHECK_WITHIN:
            return Hold(reasons.of("checks_still_fail", checks=still))
        return Wait(CHECK_SECONDS, reasons.of("checks_not_passed_yet", checks=still))
    return None


def _without_gpus(context: Context, node: port.Node, *, since: datetime) -> Outcome | None:
    """Waits for the GPUs that pods cannot get: a device plugin names those that it finds healthy."""
    if not node.unallocatable:
        return None
    numbers = {"missing": node.unallocatable, "count": node.gpus}
    if context.now - since > GPUS_WITHIN:
        return Hold(reasons.of("gpus_still_unallocatable", **numbers))
    return Wait(CHECK_SECONDS, reasons.of("verify_waits_for_gpus", **numbers))


def _same_rule(context: Context, fault: Incident) -> bool:
    chosen = matched_rule.of(context, fault)
    if chosen is None or chosen.name != context.rescue.rule or chosen.rule.mode != "enforce":
        return False
    drained = context.rescue.cluster.on_drain_timeout
    first = plan.digest(plan.of_rule(chosen.rule, code=context.rescue.fault_code, on_drain_timeout=drained))
    return first == context.rescue.plan_hash  # the rule still requests the same plan


def _proof_starts(context: Context) -> tuple[datetime, str]:
    """The time when the verification starts, by the portal's clock, and the boot ID that it is about."""
    if (repaired := plan_steps.repaired(context.steps)) is not None:
        return repaired
    quiet_since = context.step.progress_as(core.Progress).quiet_since
    return quiet_since or context.step.started_at or context.now, ""


def _agent_is_fresh(context: Context, *, since: datetime, boot_id: str) -> bool:
    return bool(_FRESH_AGENT.rows(node=context.node.pk, boot_id=boot_id, since=since))


_FRESH_AGENT = Prepared(
    lambda node, boot_id, since: Agent.objects.filter(node=node, boot_id=boot_id, seen_at__gt=since).values_list("pk"),
    node=int,
    boot_id=str,
    since=datetime,
)


def _failing_checks(rescue: int, node: int) -> QuerySet[CheckResult]:
    """Failing checks of the node that are open incidents of the rescue."""
    codes = Incident.objects.filter(rescues=rescue, kind="check", state=Incident.State.OPEN).order_by().values("code")
    return CheckResult.objects.filter(node=node, name__in=codes, status="fail").order_by("name", "device")


_FAILING_CHECKS = Prepared(_failing_checks, rescue=int, node=int)
