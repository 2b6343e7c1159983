"""Evidence of a rescue: asked for before the drain, and waited for before the step that destroys it.

Evidence never stops a rescue. A step waits for it at most WAIT_LIMIT from its start, and not at all for an agent that
is silent, too old or that refuses. Why a step went on without it is in its progress and in the audit log.
"""

from datetime import datetime, timedelta
from typing import Protocol, cast

from django.db import transaction

from kcover import audit, reasons
from kcover.checks import version_skew
from kcover.evidence import bundle as core
from kcover.reasons import Reason
from kcover_portal.evidence import queries, services
from kcover_portal.evidence.models import Bundle
from kcover_portal.fleet import queries as fleet_queries, services as fleet
from kcover_portal.fleet.models import Command
from kcover_portal.ledger import services as ledger
from kcover_portal.rescue.step import plan_steps
from kcover_portal.rescue.step.context import Context
from kcover_portal.rescue.step.drivers import agent
from kcover_portal.rescue.step.outcomes import Poll

WAIT_LIMIT = timedelta(seconds=20)
POLL_SECONDS = 1.0  # the bundle's arrival also wakes the rescue


class _Progress(Protocol):
    """The progress of a step that destroys evidence."""

    evidence: Reason | None
    evidence_since: datetime | None


def request(context: Context) -> None:
    """Asks the node's agent for evidence if a later step of this round destroys it. Asking again does nothing."""
    step = context.step
    later = plan_steps.later(context.steps, step)
    if any(other.spec.destroys_evidence for other in later) and _hindrance(context) is None:
        _ask(context)


def wait(context: Context) -> Poll | None:
    """Waits for the evidence, right before the act that destroys it; None once there is nothing to wait for."""
    progress = cast("_Progress", context.step.typed_progress)
    if progress.evidence is not None:
        return None
    since = progress.evidence_since or context.now
    number = context.step.round
    row = Bundle.objects.filter(rescue=context.rescue.pk, number=number).first()
    hindrance = _hindrance(context)
    if row is None and hindrance is None:
        context.note(evidence_since=since)
        _ask(context)
        return _awaited(since)
    kept, missed = _ended(context, row, hindrance, since=since)
    if kept is None and missed is None:
        if progress.evidence_since is None:
            context.note(evidence_since=since)
        return _awaited(since)
    _go_on(context, kept=kept, missed=missed)
    return None


def _ask(context: Context) -> None:
    with transaction.atomic():
        context.renew()  # one transaction, so that a rescue that has just ended requests nothing
        node, number = context.node, context.step.round
        services.request(node, rescue=context.rescue.pk, number=number, boot_id=node.boot_id, now=context.now)


def _awaited(since: datetime) -> Poll:
    return Poll(POLL_SECONDS, reasons.of("evidence_awaited", until=reasons.moment(since + WAIT_LIMIT)))


def _hindrance(context: Context) -> Reason | None:
    """Why the node's agent collects nothing: it is silent, or older than the command. None if it may collect."""
    version = fleet_queries.agent_version(context.node, within=fleet_queries.AGENT_SILENT_AFTER, now=context.now)
    if version is None:
        return reasons.of("evidence_agent_silent")
    if not version_skew.is_at_least(version, core.SINCE_AGENT):
        return reasons.of("evidence_agent_old", version=version or "?", least=core.SINCE_AGENT)
    return None


def _ended(
    context: Context, row: Bundle | None, hindrance: Reason | None, *, since: datetime
) -> tuple[Reason | None, Reason | None]:
    """What there is, or why there is nothing; both None while it may still arrive in time."""
    if row is None:
        return None, hindrance
    if row.state in (Bundle.State.KEPT, Bundle.State.DELETED):
        return reasons.of("evidence_stored", bytes=row.size), None
    if row.state == Bundle.State.MISSED:
        return None, reasons.of("evidence_damaged")
    command = agent.answer(context, key=queries.key_of(row.rescue, row.number))
    if command is not None and command.state != Command.State.DONE:
        return None, reasons.of("evidence_not_collected", why=agent.outcome_of(command))
    if context.now - since >= WAIT_LIMIT:
        return None, reasons.of("evidence_too_late", seconds=int(WAIT_LIMIT.total_seconds()))
    return None, hindrance


def _go_on(context: Context, *, kept: Reason | None, missed: Reason | None) -> None:
    """Stores what became of the evidence. An agent that has not begun to collect does not begin any more."""
    step = context.step
    with transaction.atomic(), ledger.last():
        context.remember(evidence=kept or missed)
        if missed is None:
            return
        number = step.round
        fleet.withdraw_command(
            queries.key_of(context.rescue.pk, number), because=reasons.of("evidence_act_began"), now=context.now
        )
        act = audit.EvidenceMissed(
            rescue=context.rescue.pk,
            node=context.node.name,
            number=number,
            step=step.index,
            name=step.name,
            because=missed,
        )
        ledger.record(context.cluster.name, act, actor=f"rescue {context.rescue.pk}", now=context.now)
