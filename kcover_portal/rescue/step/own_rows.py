"""Updates of a rescue's rows by the worker that has it. The statements are built once (``PreparedUpdate``)."""

from typing import Any

from kcover_portal.lib.prepared import PreparedUpdate
from kcover_portal.rescue.models import Rescue, Step

_RUNNING = PreparedUpdate(
    lambda rescue, token: Rescue.objects.filter(pk=rescue, token=token, state=Rescue.State.RUNNING),
    rescue=int,
    token=int,
)
_RESCUE = PreparedUpdate(lambda rescue: Rescue.objects.filter(pk=rescue), rescue=int)
_OTHERS_WITH_MARKS = PreparedUpdate(
    lambda node, rescue: Rescue.objects.filter(node=node).exclude(pk=rescue).exclude(marks={}), node=int, rescue=int
)
_STEP = PreparedUpdate(lambda step: Step.objects.filter(pk=step), step=int)


def update_running(rescue: int, token: int, **columns: Any) -> bool:
    """Updates the rescue if it runs and the token of its lease is valid; the row is then locked."""
    return bool(_RUNNING.run(columns, rescue=rescue, token=token))


def update_rescue(rescue: int, **columns: Any) -> None:
    """Updates the rescue. The caller knows that it has it."""
    _RESCUE.run(columns, rescue=rescue)


def save_step(step: Step, *columns: str) -> None:
    """Writes these columns of the step."""
    _STEP.run({column: getattr(step, column) for column in columns}, step=step.pk)


def keep_marks(rescue: Rescue) -> None:
    """Writes the rescue's marks to the rescue that they name: an earlier one, if only its devices stay isolated.

    No other rescue has marks on the node from now on.
    """
    owner = rescue.marks.get("rescue", rescue.pk)
    update_rescue(owner, marks=rescue.marks)
    _OTHERS_WITH_MARKS.run({"marks": {}}, node=rescue.node_id, rescue=owner)
