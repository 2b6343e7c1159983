"""The node's agent reboots: a command that it executes at most once by its id."""

from datetime import timedelta

from django.db import transaction

from kcover_portal.fleet import queries as fleet_queries
from kcover_portal.fleet import services as fleet
from kcover_portal.fleet.models import Command
from kcover_portal.rescue.actions.context import Context

OFFER = timedelta(minutes=5)  # an agent that takes longer to hear of it is no way to reboot


def usable(context: Context) -> bool:
    """Whether an agent reported lately, so that it would hear the command."""
    return fleet_queries.agent_reports(context.node, within=fleet_queries.AGENT_SILENT_AFTER, now=context.now)


def ask(context: Context, *, key: str, boot_id: str) -> str:
    """Puts the command on offer; the agent refuses it under any other boot id."""
    with transaction.atomic():
        context.renew()  # in one transaction: a rescue that was ended in this moment asks for nothing
        command = fleet.ask_agent(
            context.node,
            "reboot",
            key=key,
            args={"boot_id": boot_id},
            expires_at=context.now + OFFER,
            now=context.now,
        )
    return f"agent command {command.pk}"


def ended(context: Context, *, key: str) -> str | None:
    """Why the agent will not reboot, if it said so or never heard the command."""
    command = Command.objects.filter(key=key).first()
    if command is None or command.state in (Command.State.OFFERED, Command.State.DONE):
        return None
    return f"the agent's answer is {command.state}: {command.message or 'no reason given'}"
