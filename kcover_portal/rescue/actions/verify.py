"""verify: proof that the node is healthy, before anything runs on it again (invariant 38).

Ready; the boot id that ``ready`` saw; a report of the agent received after that, under that boot id; no fault of the
node since; and all this for the cluster's hold-down time. Silence proves nothing.
"""

from datetime import datetime, timedelta

from kcover import nvlink5, plan, xid
from kcover.policy import matching
from kcover_portal.fleet.models import Agent
from kcover_portal.incidents import queries as incidents
from kcover_portal.incidents.models import Incident
from kcover_portal.policies import queries as policies
from kcover_portal.rescue import queries
from kcover_portal.rescue.actions import marking
from kcover_portal.rescue.actions.context import Context
from kcover_portal.rescue.actions.outcome import Done, Failed, Hold, Outcome, StartOver, Wait

POLL_SECONDS = 1.0
AGENT_WITHIN = timedelta(minutes=5)  # ten default heartbeats


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
    return Done("Ready, agent reporting, no fault since")


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
