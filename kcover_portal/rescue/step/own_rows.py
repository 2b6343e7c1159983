"""Claims of rescues, and updates of their rows by the worker that has them.

The statements for one row are built once (``PreparedUpdate``). Rows that get the same values share a statement.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from kcover_portal.lib.prepared import PreparedUpdate
from kcover_portal.rescue import queries
from kcover_portal.rescue.models import Rescue, Step
from kcover_portal.rescue.step import lease
from kcover_portal.runtime.services import claims

CLAIMS: Final = claims.Claims(
    model=Rescue,
    due=queries.due_rescues,
    lasts=lease.TIME,
    state=Rescue.State.RUNNING,
    related=("node__cluster", "cluster"),
)
_RESCUE = PreparedUpdate(lambda rescue: Rescue.objects.filter(pk=rescue), rescue=int)
_OTHERS_WITH_MARKS = PreparedUpdate(
    lambda node, rescue: Rescue.objects.filter(node=node).exclude(pk=rescue).exclude(marks={}, marks_begun={}),
    node=int,
    rescue=int,
)
_STEP = PreparedUpdate(lambda step: Step.objects.filter(pk=step), step=int)

Columns = Mapping[str, Any]
NO_MARKS: Final[Columns] = {"marks": {}, "marks_begun": {}}


def update_each_running(changes: Sequence[tuple[Rescue, Columns]]) -> set[int]:
    """As ``CLAIMS.write`` for several rescues, each with columns of its own. Returns the keys of those written."""
    if len(changes) == 1:
        [(rescue, columns)] = changes
        return {rescue.pk} if CLAIMS.write(rescue, **columns) else set()
    ours = _update_several(changes)
    for rescue, columns in changes:
        if rescue.pk in ours:
            claims.set_on(rescue, columns)
    return ours


def _update_several(changes: Sequence[tuple[Rescue, Columns]]) -> set[int]:
    rows = Rescue.objects.select_for_update(no_key=True).filter(pk__in=[rescue.pk for rescue, _ in changes])
    tokens = dict(rows.filter(state=Rescue.State.RUNNING).order_by("pk").values_list("pk", "token"))
    ours = [(rescue.pk, columns) for rescue, columns in changes if tokens.get(rescue.pk) == rescue.token]
    for columns, keys in _alike(ours):
        Rescue.objects.filter(pk__in=keys).update(**columns)
    return {key for key, _ in ours}


def update_rescue(rescue: int, **columns: Any) -> None:
    """Updates the rescue. The caller knows that it has it."""
    _RESCUE.run(columns, rescue=rescue)


def save_step(step: Step, *columns: str) -> None:
    """Writes these columns of the step."""
    _STEP.run({column: getattr(step, column) for column in columns}, step=step.pk)


def save_steps(steps: Sequence[Step], *columns: str) -> None:
    """As ``save_step`` for several steps."""
    if len(steps) == 1:
        save_step(steps[0], *columns)
        return
    for values, keys in _alike((step.pk, {column: getattr(step, column) for column in columns}) for step in steps):
        Step.objects.filter(pk__in=keys).update(**values)


def keep_marks(*rescues: Rescue) -> None:
    """Writes the marks of each rescue to the rescue that they name: an earlier one, if only its devices stay isolated.

    No other rescue has marks on its node from now on.
    """
    own = [rescue for rescue in rescues if rescue.marks.get("rescue", rescue.pk) == rescue.pk]
    if len(own) > 1:
        Rescue.objects.bulk_update(own, ["marks", "marks_begun"])
        others = Rescue.objects.filter(node__in=[rescue.node_id for rescue in own]).exclude(marks={}, marks_begun={})
        others.exclude(pk__in=[rescue.pk for rescue in own]).update(**NO_MARKS)
        rescues = tuple(rescue for rescue in rescues if rescue not in own)
    for rescue in rescues:
        owner = rescue.marks.get("rescue", rescue.pk)
        update_rescue(owner, marks=rescue.marks, marks_begun={})
        _OTHERS_WITH_MARKS.run(NO_MARKS, node=rescue.node_id, rescue=owner)


def _alike(rows: Iterable[tuple[int, Columns]]) -> list[tuple[Columns, list[int]]]:
    """The keys of the rows that get the same values."""
    groups: list[tuple[Columns, list[int]]] = []
    for key, columns in rows:
        same = next((keys for values, keys in groups if values == columns), None)
        if same is None:
            groups.append((columns, [key]))
        else:
            same.append(key)
    return groups
