"""Check results that nobody tells again: of GPUs that are gone, of what is checked no longer; of too many devices. And
moves of checks, of which an agent may tell without end."""

from collections.abc import Collection, Sequence
from datetime import timedelta
from typing import NamedTuple

from django.db.models import Exists, ExpressionWrapper, F, OuterRef, Q, QuerySet, TextField, Value
from django.db.models.functions import Cast, Concat

from kcover import health
from kcover_portal.fleet.models import CheckResult, Gpu
from kcover_portal.fleet.services import statements

MOST_RESULTS = 1_000  # of one node; a node of sixteen GPUs has about half as many
MOST_MOVES = 2_000  # of one node; half of them stay where there are more, so that it is not counted out for each one
KEPT = timedelta(days=7)  # results that count no longer are still shown for so long


class Slot(NamedTuple):
    """A GPU as it stood in a node's inventory."""

    node: int
    uuid: str
    place: int
    pci: str


def replaced(gone: Collection[Slot], present: Collection[tuple[int, str | None]]) -> None:
    """Forgets what was said of GPUs that left the inventory while another one is in their place.

    ``present``: node and address of those that there are. A GPU that is merely not there any more may be a lost one:
    what was said of it stays until it is too old.
    """
    for one in gone:
        if one.pci and (one.node, one.pci) in present:
            number = f"gpu{one.place}"  # as dcgm calls it, and the agent where it does not know the UUID
            about = Q(device__in=(one.uuid, number)) | Q(device__startswith=f"{number} ")
            CheckResult.objects.filter(about, node=one.node).delete()


def beyond(nodes: Sequence[int]) -> None:
    """Keeps MOST_RESULTS results of each of the nodes, those that were told last: one agent fills nobody's gauge."""
    given = statements.given(node="bigint")
    rows = statements.rows([{"node": node} for node in nodes])
    many = statements.run(
        f"""SELECT node_id FROM fleet_checkresult WHERE node_id IN (SELECT node FROM {given})
            GROUP BY node_id HAVING count(*) > %s""",
        [rows, MOST_RESULTS],
    )
    for (node,) in many:
        last = CheckResult.objects.filter(node=node).order_by("-seen_at", "pk").values_list("pk", flat=True)
        CheckResult.objects.filter(pk__in=list(last[MOST_RESULTS:])).delete()


def moves_beyond(nodes: Collection[int]) -> None:
    """Bounds the moves kept of each of the nodes, of which a check has just moved.

    The latest move of each check on each device comes first, then the one before it of each: what flaps pushes out its
    own past and not that of others.
    """
    if not nodes:
        return
    many = statements.run(
        f"""SELECT node_id FROM fleet_checkchange
            WHERE node_id IN (SELECT node FROM {statements.given(node="bigint")})
            GROUP BY node_id HAVING count(*) > %s""",
        [statements.rows([{"node": node} for node in sorted(nodes)]), MOST_MOVES],
    )
    for (node,) in many:
        statements.run(
            """DELETE FROM fleet_checkchange WHERE node_id = %s AND id NOT IN (
                SELECT id FROM (
                    SELECT id, row_number() OVER (PARTITION BY name, device ORDER BY id DESC) AS place
                    FROM fleet_checkchange WHERE node_id = %s
                ) AS ranked ORDER BY place, id DESC LIMIT %s)""",
            [node, node, MOST_MOVES // 2],
        )


def prune() -> int:
    """Forgets results that have not counted for KEPT, and those of GPUs that are not there any more, of which nothing
    was told for as long; returns how many."""
    past = CheckResult.objects.filter(seen_at__lt=F("node__agent__seen_at") - (health.RUN_AGAIN + KEPT))
    timed, _ = past.exclude(name__in=health.UNTIL_RUN_AGAIN).delete()
    return timed + (past & _of_gone_gpus()).delete()[0]


def _of_gone_gpus() -> QuerySet[CheckResult]:
    """Results whose device is the UUID or the number of a GPU that its node's inventory does not have."""
    gpus = Gpu.objects.filter(node=OuterRef("node")).annotate(
        number=Concat(Value("gpu"), Cast("index", TextField()), output_field=TextField())
    )
    named = gpus.filter(uuid=OuterRef("device"))
    numbered = gpus.annotate(device=ExpressionWrapper(OuterRef("device"), TextField())).filter(
        Q(device=F("number")) | Q(device__startswith=Concat(F("number"), Value(" ")))
    )
    of_one = Q(device__startswith="GPU-") | Q(device__regex=r"^gpu[0-9]+( |$)")
    return CheckResult.objects.filter(of_one, Exists(gpus), ~Exists(named), ~Exists(numbered))
