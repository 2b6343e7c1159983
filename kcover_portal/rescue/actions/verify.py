"""verify: proof that the node is healthy, before anything runs on it again (invariant 38).

Ready; the boot id that ``ready`` saw; a report of the agent received after that, under that boot id, and another one
lately; no fault of the node since; the checks that brought the rescue about fail no longer; and all this for the
cluster's hold-down time. Silence proves nothing.
"""

from datetime import datetime, timedelta

from kcover import health, nvlink5, plan, xid
from kcover.policy import matching
from kcover_portal.fleet import queries as fleet
from kcover_portal.fleet.models import Agent, CheckResult
from kcover_portal.incidents import queries as incidents
from kcover_portal.incidents.models import Incident
from kcover_portal.policies import queries as policies
from kcover_portal.rescue import queries
from kcover_portal.rescue.actions import marking
from kcover_portal.rescue.actions.context import Context
from kcover_portal.rescue.actions.outcome import Done, Failed, Hold, Outcome, StartOver, Wait

POLL_SECONDS = 1.0
AGENT_WITHIN = timedelta(minutes=5)  # ten default heartbeats
NAMED = 8
CHECK_SECONDS = 5.0
CHECK_WITHIN = health.TOLD_AGAIN  # an agent looks as often as once an hour, and tells at once what has changed


def run(context: Context) -> Outcome:
    """One look at the proof."""
    marking.restate(context, "verifying")
    node = marking.expect_isolated(context)
    since, boot_id = _proof_starts(context)
    active = incidents.faults_since(context.node, since, boot_id=boot_id)
    if active:
        seen = "since the repair: " + ", ".join(f"{one.kind} {one.code} {one.device}".strip() for one in active)
        # The same rule means the same plan; what another rule means is not mended by more of this one.
        return StartOver(seen) if all(_same_rule(context, one) for one in active) else Failed(seen)
    if boot_id and node.boot_id != boot_id:
        return Failed("the node rebooted once more, and not by this rescue")
    if not node.ready:
        return Wait(POLL_SECONDS, "the node is not Ready")
    if context.step.args.get("agent", True) and not _agent_is_fresh(context, since=since, boot_id=node.boot_id):
        if context.now - since > AGENT_WITHIN:
            return Hold("no report of the node's agent since it came back, and silence is no proof of health")
        return Wait(POLL_SECONDS, "waiting for the agent's first report since the repair")
    left = since + timedelta(seconds=context.cluster.hold_down) - context.now
    if left > timedelta(0):
        return Wait(
            left.total_seconds(), f"healthy so far; {context.cluster.hold_down} s without a fault are asked for"
        )
    return _unproved(context, since=since, boot_id=node.boot_id) or Done("Ready, agent reporting, no fault since")


def _unproved(context: Context, *, since: datetime, boot_id: str) -> Outcome | None:
    """What is missing at the end of the hold-down time, in which the agent may have fallen silent."""
    lately = context.now - fleet.AGENT_SILENT_AFTER
    if context.step.args.get("agent", True) and not _agent_is_fresh(context, since=max(since, lately), boot_id=boot_id):
        # Counted from here: for a while the portal itself may have been away, and nobody could report.
        if "silent_at" not in context.step.progress:
            context.remember(silent_at=context.now.isoformat())
        if context.now - datetime.fromisoformat(context.step.progress["silent_at"]) > AGENT_WITHIN:
            return Hold("the node's agent has fallen silent, and silence is no proof of health")
        return Wait(CHECK_SECONDS, "waiting for a report of the agent, which has fallen silent")
    codes = context.rescue.incidents.filter(kind="check", state=Incident.State.OPEN).values("code")
    failing = CheckResult.objects.filter(node=context.node, name__in=codes, status="fail").order_by("name", "device")
    if failing:
        still = ", ".join(f"{one.name} {one.device}".strip() for one in failing[:NAMED])
        if context.now - since > CHECK_WITHIN:
            return Hold(f"checks still fail: {still}")
        return Wait(CHECK_SECONDS, f"checks have not passed yet: {still}")
    return None


def _same_rule(context: Context, fault: Incident) -> bool:
    chosen, _ = matching.match(
        policies.candidates(),
        kind=fault.kind,
        code=fault.code,
        cause=fault.cause,
        labels=context.node.labels,
        fatal=nvlink5.fatal(xid.parse_line(fault.message)),
    )
    if chosen is None or chosen.name != context.rescue.rule or chosen.rule.mode != "enforce":
        return False
    first = plan.digest(plan.of_rule(chosen.rule, code=context.rescue.code.partition(" ")[2]))
    return first == context.rescue.plan_hash  # the rule still says what it said then


def _proof_starts(context: Context) -> tuple[datetime, str]:
    """When the proof counts from, by the portal's clock, and the boot id it is about."""
    ready = queries.step_named(context.rescue, "ready")
    if ready is not None and ready.finished_at is not None:
        return ready.finished_at, ready.progress.get("boot_id", "")
    reset = queries.step_named(context.rescue, "reset")
    if reset is not None and reset.finished_at is not None and reset.state == reset.State.DONE:
        return reset.finished_at, ""
    return context.step.started_at or context.now, ""


def _agent_is_fresh(context: Context, *, since: datetime, boot_id: str) -> bool:
    return Agent.objects.filter(node=context.node, boot_id=boot_id, seen_at__gt=since).exists()
