"""The past rescues of nodes, and how many repairs they planned."""

from collections.abc import Collection, Iterable, Sequence
from datetime import datetime

from django.db.models import F, Window
from django.db.models.functions import RowNumber

from kcover import actions
from kcover_portal.fleet.models import Node
from kcover_portal.lib.prepared import Prepared
from kcover_portal.rescue.models import Rescue, Step

MAX_PAST_RESCUES = 100  # of one node that are considered
# The columns that decisions depend on.
COLUMNS = (
    "node_id",
    "state",
    "origin",
    "marks",
    "plan_hash",
    "needs_human",
    "fault_kind",
    "fault_code",
    "opened_at",
    "closed_at",
    "on_probation",
)
COUNT_ON_PROBATION = 2  # a repair on probation counts so often: the repair before it did not help


class PastRescues:
    """The latest rescues of several nodes, read at once."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        self._by_node: dict[int, list[Rescue]] = {}
        self._steps: dict[int, list[str]] | None = None  # read only if there were automatic rescues
        for rescue in _latest(nodes):
            self._by_node.setdefault(rescue.node_id, []).append(rescue)

    def of(self, node: Node) -> Sequence[Rescue]:
        """The node's rescues, newest first."""
        return self._by_node.get(node.pk, ())

    def repairs(self, node: Node, steps: Collection[str], *, since: datetime, code: str = "") -> int:
        """The number of these steps in the plans of the node's automatic rescues that were opened since.

        ``code``: only rescues for this kind and code of fault. Those that a fault on probation opened count twice.
        """
        chosen = [rescue for rescue in _automatic(self.of(node), since=since) if code in ("", rescue.code)]
        if not chosen:
            return 0
        if self._steps is None:
            self._steps = _repair_steps([rescue for rows in self._by_node.values() for rescue in _automatic(rows)])
        return sum(_weight(rescue) for rescue in chosen for name in self._steps.get(rescue.pk, ()) if name in steps)


def repairs(past: Iterable[Rescue], *, since: datetime) -> int:
    """The number of repairing steps in the plans of automatic rescues that were opened since; see ``_weight``."""
    chosen = _automatic(past, since=since)
    steps = _repair_steps(chosen)
    return sum(_weight(rescue) * len(steps.get(rescue.pk, ())) for rescue in chosen)


def _weight(rescue: Rescue) -> int:
    return COUNT_ON_PROBATION if rescue.on_probation else 1


def _latest(nodes: Sequence[Node]) -> Iterable[Rescue]:
    if len(nodes) == 1:
        return _LATEST.rows(node=nodes[0].pk)
    rows = Rescue.objects.filter(node__in=nodes).order_by("-pk").only(*COLUMNS)
    place = Window(RowNumber(), partition_by=F("node"), order_by=F("pk").desc())
    return rows.annotate(place=place).filter(place__lte=MAX_PAST_RESCUES)


_LATEST = Prepared(
    lambda node: Rescue.objects.filter(node=node).order_by("-pk").only(*COLUMNS)[:MAX_PAST_RESCUES], node=int
)


def _automatic(past: Iterable[Rescue], *, since: datetime | None = None) -> list[Rescue]:
    rescues = (rescue for rescue in past if rescue.origin != Rescue.Origin.MANUAL)
    return [rescue for rescue in rescues if since is None or rescue.opened_at >= since]


def _repair_steps(rescues: Sequence[Rescue]) -> dict[int, list[str]]:
    """The names of the steps that repair, by rescue."""
    found: dict[int, list[str]] = {}
    if rescues:
        names = actions.names(lambda spec: spec.mends)
        for rescue, name in Step.objects.filter(rescue__in=rescues, name__in=names).values_list("rescue", "name"):
            found.setdefault(rescue, []).append(name)
    return found
