"""The node's agent resets a GPU: it refuses while anything uses one, which nobody else can see so well."""

from datetime import timedelta

from kcover_portal.fleet.models import Command
from kcover_portal.rescue.actions.context import Context
from kcover_portal.rescue.actions.drivers import Reset, agent

WITHIN = timedelta(minutes=10)  # to hear of it, and the agent's own three minutes for the reset


def refusal(context: Context) -> str | None:
    """Why this way is closed now; None where it is open."""
    return None if agent.usable(context) else "the node's agent is silent, and only it can reset a GPU"


def ask(context: Context, *, key: str, gpu: dict[str, str]) -> str:
    """Puts the command on offer."""
    return agent.offer(context, "reset_gpu", key=key, args=gpu, within=WITHIN)


def ended(context: Context, *, key: str) -> Reset | None:
    """The agent's word on how it went."""
    command = agent.answer(context, key=key)
    if command is None:
        return None
    said = f"the agent's answer is {command.state}: {command.message or 'no reason given'}"
    return Reset(done=command.state == Command.State.DONE, said=said)
