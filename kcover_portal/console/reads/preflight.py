"""A preflight run as a matrix: one row per node, one column per slot."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from kcover import preflight
from kcover_portal.preflight.models import PreflightReport, PreflightRun

FLAGGED = ("abnormal", "slow", "suspect")


@dataclass(frozen=True, slots=True)
class Cell:
    """One slot of a node: its peer, whether the pair failed, and who reported it."""

    peer: str
    failed: bool
    by_itself: bool
    by_peer: bool


@dataclass(frozen=True, slots=True)
class Row:
    """One node; a cell is None if the node ran nothing in that slot."""

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
    """The matrix of a run; a failure counts for both nodes of the pair."""
    rows = list(run.reports.select_related("node"))
    reports = {row.node.name: preflight.read(row.body) for row in rows}
    claims = Counter(address for sent in reports.values() for address in sent.addresses)
    owner = {address: name for name, sent in reports.items() for address in sent.addresses if claims[address] == 1}
    peer_results: dict[tuple[str, int], tuple[str, bool]] = {}  # (node, slot): what its peer reports, and the peer
    for name, report in reports.items():
        for batch in report.batches:
            if batch.peer in owner:
                peer_results[owner[batch.peer], batch.slot] = (name, batch.failed)
    slots = preflight.expected_batches(run.size)
    lines = [_row(row, reports[row.node.name], owner, peer_results, slots) for row in rows]
    lines.sort(key=lambda row: (FLAGGED.index(row.verdict) if row.verdict in FLAGGED else len(FLAGGED), row.node))
    return Matrix(slots, lines)


def _row(
    row: PreflightReport,
    report: preflight.Report,
    owner: dict[str, str],
    peer_results: dict[tuple[str, int], tuple[str, bool]],
    slots: int,
) -> Row:
    name = row.node.name
    own = {batch.slot: batch for batch in report.batches}
    cells: list[Cell | None] = []
    for slot in range(slots):
        own_result, peer_result = own.get(slot), peer_results.get((name, slot))
        if own_result is None and peer_result is None:
            cells.append(None)
            continue
        peer = owner.get(own_result.peer, own_result.peer) if own_result else peer_result[0] if peer_result else ""
        by_itself, by_peer = bool(own_result and own_result.failed), bool(peer_result and peer_result[1])
        cells.append(Cell(peer, by_itself or by_peer, by_itself, by_peer))
    return Row(name, row.verdict, report.failed_checks, cells, row.at)
