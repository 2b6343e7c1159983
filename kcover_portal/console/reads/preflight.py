"""A run of preflight as a matrix: a row a node, a column a slot, in it the peer and whether they failed together."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from kcover import preflight
from kcover_portal.preflight.models import PreflightReport, PreflightRun

FLAGGED = ("abnormal", "slow", "suspect")


@dataclass(frozen=True, slots=True)
class Cell:
    """One slot of a node: its peer by name or address, whether it failed, and who says so."""

    peer: str
    failed: bool
    by_itself: bool
    by_peer: bool


@dataclass(frozen=True, slots=True)
class Row:
    """One node; a cell is None where it ran nothing in that slot."""

    node: str
    verdict: str
    failed_checks: Sequence[str]
    cells: Sequence[Cell | None]
    at: datetime


@dataclass(frozen=True, slots=True)
class Matrix:
    """All nodes, the flagged ones first."""

    slots: int
    rows: Sequence[Row]


def matrix(run: PreflightRun) -> Matrix:
    """The run's reports side by side; a failure counts for both ends, whichever told of it."""
    rows = list(run.reports.select_related("node"))
    reports = {row.node.name: preflight.read(row.body) for row in rows}
    claims = Counter(address for one in reports.values() for address in one.addresses)
    owner = {address: name for name, one in reports.items() for address in one.addresses if claims[address] == 1}
    told: dict[tuple[str, int], tuple[str, bool]] = {}  # (node, slot): what its peer says, and the peer
    for name, report in reports.items():
        for batch in report.batches:
            if batch.peer in owner:
                told[owner[batch.peer], batch.slot] = (name, batch.failed)
    slots = preflight.batches_of(run.size)
    made = [_row(row, reports[row.node.name], owner, told, slots) for row in rows]
    made.sort(key=lambda row: (FLAGGED.index(row.verdict) if row.verdict in FLAGGED else len(FLAGGED), row.node))
    return Matrix(slots, made)


def _row(
    row: PreflightReport,
    report: preflight.Report,
    owner: dict[str, str],
    told: dict[tuple[str, int], tuple[str, bool]],
    slots: int,
) -> Row:
    name = row.node.name
    own = {batch.slot: batch for batch in report.batches}
    cells: list[Cell | None] = []
    for slot in range(slots):
        mine, theirs = own.get(slot), told.get((name, slot))
        if mine is None and theirs is None:
            cells.append(None)
            continue
        peer = owner.get(mine.peer, mine.peer) if mine else theirs[0] if theirs else ""
        by_itself, by_peer = bool(mine and mine.failed), bool(theirs and theirs[1])
        cells.append(Cell(peer, by_itself or by_peer, by_itself, by_peer))
    return Row(name, row.verdict, report.failed_checks, cells, row.at)
