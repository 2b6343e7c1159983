"""The node's agent resets a GPU. It refuses while anything uses a GPU, because it can see that best."""

from datetime import timedelta

from kcover import reasons
from kcover.reasons import Reason
from kcover_portal.fleet.models import Command
from kcover_portal.rescue.step.context import Context
from kcover_portal.rescue.step.drivers import Reset, agent

TIME_LIMIT = timedelta(minutes=10)  # to fetch it, plus the agent's own three minutes for the reset


def refusal(context: Context) -> Reason | None:
    """The reason why this driver cannot be used now; None if it can."""
    return None if agent.usable(context) else reasons.of("agent_silent_no_reset")


def ask(context: Context, *, key: str, gpu: dict[str, str]) -> Reason:
    """Offers the command."""
    return agent.offer(context, "reset_gpu", key=key, args=gpu, within=TIME_LIMIT)


def ended(context: Context, *, key: str) -> Reset | None:
    """The result according to the agent; None while it is not known yet."""
    command = agent.answer(context, key=key)
    if command is None:
        return None
    return Reset(done=command.state == Command.State.DONE, reason=agent.outcome_of(command))
