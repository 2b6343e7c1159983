"""The node's agent acts: a command that it executes at most once by its id."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from django.db import transaction

from kcover_portal.fleet import queries as fleet_queries
from kcover_portal.fleet import services as fleet
from kcover_portal.fleet.models import Command
from kcover_portal.rescue.actions.context import Context
from kcover_portal.rescue.models import Step

OFFER = timedelta(minutes=5)  # an agent that takes longer to hear of it is no way to reboot
BELIEVED_AFTER = timedelta(0)  # it tells of a reboot that it refused, or could not begin
MAY_BE_DONE = ("done", "failed")  # words after which the node's boot id tells; with the others nothing was begun
VERBS = ("reboot", "reset", "checks")  # with which the keys of a rescue's commands begin


def usable(context: Context) -> bool:
    """Whether an agent reported lately, so that it would hear the command."""
    return fleet_queries.agent_reports(context.node, within=fleet_queries.AGENT_SILENT_AFTER, now=context.now)


def ask(context: Context, *, key: str, boot_id: str) -> str:
    """Puts the command to reboot on offer; the agent refuses it under any other boot id."""
    return offer(context, "reboot", key=key, args={"boot_id": boot_id}, within=OFFER)


def ended(context: Context, *, key: str) -> str | None:
    """Why the agent will not reboot, if it said so, or if the command was withdrawn.

    One that nobody answered in time may have been obeyed: who obeys answers only from the next boot, which takes a
    machine with eight GPUs longer than the offer stood. The caller's own time bounds the wait for it. An answer that
    comes later is believed where it says that nothing was begun: an agent refuses, or lets expire, before it begins.
    """
    command = Command.objects.filter(key=key).first()
    if command is None or command.state in (Command.State.OFFERED, Command.State.DONE):
        return None
    unanswered = command.state == Command.State.EXPIRED and not command.message
    if unanswered or command.output.get("late") in MAY_BE_DONE:
        return None
    return f"the agent's answer is {command.state}: {command.message or 'no reason given'}"


def offer(context: Context, kind: str, *, key: str, args: Mapping[str, Any], within: timedelta) -> str:
    """Puts a command on offer, once for each key; returns what was asked, in words."""
    with transaction.atomic():
        context.renew()  # in one transaction: a rescue that was ended in this moment asks for nothing
        command = fleet.ask_agent(
            context.node, kind, key=key, args=args, expires_at=context.now + within, now=context.now
        )
    return f"agent command {command.pk}"


def key_of(context: Context, verb: str) -> str:
    """Names this one request for all time: the same step asks for the same thing, however often it is run."""
    return key_of_step(context.step, verb)


def key_of_step(step: Step, verb: str) -> str:
    """The same, of a step that is not being run."""
    return f"{verb}-{step.rescue_id}-{step.index}-{step.progress.get('retry', 0)}"


def answer(context: Context, *, key: str) -> Command | None:
    """The command with its result, or one that nobody answered in time (``expired``); None while it may still come."""
    command = Command.objects.get(key=key)
    if command.state != Command.State.OFFERED:
        return command
    if command.expires_at > context.now:
        return None
    command.state, command.message = Command.State.EXPIRED, "no answer in time"
    return command
