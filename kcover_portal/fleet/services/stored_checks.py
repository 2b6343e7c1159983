"""Limits the stored check results and their changes.

Deletes results that no agent will report again: of GPUs that are gone and of checks that no longer run. Limits the rows
of one node, because an agent may report any number of devices and changes.
"""

from collections.abc import Collection, Sequence
from typing import NamedTuple

from django.db.models import Exists, ExpressionWrapper, F, OuterRef, Q, QuerySet, TextField, Value
from django.db.models.functions import Cast, Concat

from kcover.nodes import health
from kcover_portal.fleet.models import CheckResult, Gpu
from kcover_portal.fleet.services import bulk_sql
from kcover_portal.runtime.services import retention

MAX_RESULTS = 1_000  # per node; a node with sixteen GPUs has about half as many
MAX_CHANGES = 2_000  # per node; beyond, half of them stay, so that not every change prunes
RESULT_RETENTION = retention.time(CheckResult)  # after a result stops counting


class GpuSlot(NamedTuple):
    """A GPU in a node's inventory."""

    node: int
    uuid: str
    place: int
    pci: str


def replaced(gone: Collection[GpuSlot], present: Collection[tuple[int, str | None]]) -> None:
    """Deletes results of GPUs that were replaced: another GPU has their PCI address.

    ``present``: node and PCI address of the GPUs in the inventory. A missing GPU may be a lost one, so its results are
    kept until they are too old.
    """
    for slot in gone:
        if slot.pci and (slot.node, slot.pci) in present:
            number = f"gpu{slot.place}"  # its name in dcgm, and in the agent if the UUID is unknown
            devices = Q(device__in=(slot.uuid, number)) | Q(device__startswith=f"{number} ")
            CheckResult.objects.filter(devices, node=slot.node).delete()


def limit_results(nodes: Sequence[int]) -> None:
    """Keeps the latest MAX_RESULTS results of each node, so that no agent can fill the metrics."""
    given = bulk_sql.given(node="bigint")
    rows = bulk_sql.rows([{"node": node} for node in nodes])
    crowded = bulk_sql.run(
        f"""SELECT node_id FROM fleet_checkresult WHERE node_id IN (SELECT node FROM {given})
            GROUP BY node_id HAVING count(*) > %s""",  # nosec B608
        [rows, MAX_RESULTS],
    )
    for (node,) in crowded:
        newest_first = CheckResult.objects.filter(node=node).order_by("-seen_at", "pk").values_list("pk", flat=True)
        CheckResult.objects.filter(pk__in=list(newest_first[MAX_RESULTS:])).delete()


def limit_changes(nodes: Collection[int]) -> None:
    """Limits the stored changes of nodes whose checks have just changed.

    The latest change of each check on each device is kept first, then the one before it. So a flapping check displaces
    its own history and not that of others.
    """
    if not nodes:
        return
    crowded = bulk_sql.run(
        f"""SELECT node_id FROM fleet_checkchange
            WHERE node_id IN (SELECT node FROM {bulk_sql.given(node="bigint")})
            GROUP BY node_id HAVING count(*) > %s""",  # nosec B608
        [bulk_sql.rows([{"node": node} for node in sorted(nodes)]), MAX_CHANGES],
    )
    for (node,) in crowded:
        bulk_sql.run(
            """DELETE FROM fleet_checkchange WHERE node_id = %s AND id NOT IN (
                SELECT id FROM (
                    SELECT id, row_number() OVER (PARTITION BY name, device ORDER BY id DESC) AS place
                    FROM fleet_checkchange WHERE node_id = %s
                ) AS ranked ORDER BY place, id DESC LIMIT %s)""",
            [node, node, MAX_CHANGES // 2],
        )


def prune() -> int:
    """Deletes results that stopped counting RESULT_RETENTION ago, also of gone GPUs; returns their number."""
    past = CheckResult.objects.filter(
        seen_at__lt=F("node__agent__seen_at") - (health.AUTOPILOT_RESULT_VALID_FOR + RESULT_RETENTION)
    )
    timed, _ = past.exclude(name__in=health.CHECKS_VALID_UNTIL_RERUN).delete()
    return timed + (past & _of_gone_gpus()).delete()[0]


def _of_gone_gpus() -> QuerySet[CheckResult]:
    """Returns results whose device is the UUID or number of a GPU that is not in its node's inventory."""
    gpus = Gpu.objects.filter(node=OuterRef("node")).annotate(
        number=Concat(Value("gpu"), Cast("index", TextField()), output_field=TextField())
    )
    named = gpus.filter(uuid=OuterRef("device"))
    numbered = gpus.annotate(device=ExpressionWrapper(OuterRef("device"), TextField())).filter(
        Q(device=F("number")) | Q(device__startswith=Concat(F("number"), Value(" ")))
    )
    of_one = Q(device__startswith="GPU-") | Q(device__regex=r"^gpu[0-9]+( |$)")
    return CheckResult.objects.filter(of_one, Exists(gpus), ~Exists(named), ~Exists(numbered))
