"""The node's agent acts. It executes a command at most once, by its ID."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from django.db import transaction

from kcover import reasons
from kcover.reasons import Reason
from kcover_portal.fleet import queries as fleet_queries, services as fleet
from kcover_portal.fleet.models import Command
from kcover_portal.rescue.models import Step
from kcover_portal.rescue.step.context import Context

OFFER_LIFETIME = timedelta(minutes=5)  # an agent that takes longer to fetch a command cannot be used for a reboot
BELIEVED_AFTER = timedelta(0)  # the agent reports a reboot that it refused or could not begin
MAY_BE_DONE = ("done", "failed")  # after these the boot ID decides; after the others nothing was begun


def usable(context: Context) -> bool:
    """Returns whether an agent reported recently, so that it would fetch the command."""
    return fleet_queries.agent_reports(context.node, within=fleet_queries.AGENT_SILENT_AFTER, now=context.now)


def ask(context: Context, *, key: str, boot_id: str) -> Reason:
    """Offers the command to reboot; the agent refuses it under any other boot ID."""
    return offer(context, "reboot", key=key, args={"boot_id": boot_id}, within=OFFER_LIFETIME)


def ended(context: Context, *, key: str) -> Reason | None:
    """The reason why the agent will not reboot: it refused, it could not begin, or the command was withdrawn.

    A command without an answer may have been carried out: the agent answers only from the next boot, and a machine with
    eight GPUs takes longer to boot than the offer stands. The caller bounds that wait. A late answer is believed if
    it says that nothing was begun: an agent refuses a command, or lets it expire, before it begins.
    """
    command = Command.objects.filter(key=key).first()
    if command is None or command.state in (Command.State.OFFERED, Command.State.DONE):
        return None
    unanswered = command.state == Command.State.EXPIRED and not (command.message or command.because)
    if unanswered or command.output.get("late") in MAY_BE_DONE:
        return None
    return outcome_of(command)


def outcome_of(command: Command) -> Reason:
    """The result of a command that was not carried out."""
    expired = command.state == Command.State.EXPIRED
    why = (
        reasons.kept(command.because)
        or command.message
        or reasons.of("no_answer_in_time" if expired else "no_reason_given")
    )
    if expired:
        return reasons.of("agent_command_expired", why=why)
    return reasons.of("agent_refused" if command.state == Command.State.REFUSED else "agent_failed", why=why)


def offer(context: Context, kind: str, *, key: str, args: Mapping[str, Any], within: timedelta) -> Reason:
    """Offers a command, once for each key; returns what names it. The end of the rescue withdraws it."""
    assert context.step.spec.requests
    with transaction.atomic():
        context.renew()  # one transaction, so that a rescue that has just ended requests nothing
        command = fleet.ask_agent(
            context.node,
            kind,
            key=key,
            args=args,
            expires_at=context.now + within,
            now=context.now,
            requester=requester(context.step.rescue_id, context.step.index),
        )
    return reasons.of("agent_command", command=str(command.pk))


def requester(rescue: int, step: int | None) -> fleet.Requester:
    """The requester of commands of a rescue (by key): of one step by its index, or of all steps."""
    return fleet.Requester(Command.Requester.RESCUE, rescue, step)


def key_of(step: Step) -> str:
    """The key of the step's request. A step always makes the same request, however often it runs."""
    return f"{step.spec.request_key}-{step.rescue_id}-{step.index}-{step.typed_progress.retry}"


def answer(context: Context, *, key: str) -> Command | None:
    """The command with its result, or ``expired`` if nobody answered; None while an answer may still come."""
    command = Command.objects.get(key=key)
    if command.state != Command.State.OFFERED:
        return command
    if command.expires_at > context.now:
        return None
    command.state = Command.State.EXPIRED
    return command
