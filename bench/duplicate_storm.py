"""Hundreds of thousands of lines with few distinct faults: one incident for each, and a bounded number of rows."""

import itertools
import tempfile
import time
from pathlib import Path

from bench import result, scene
from bench.result import Result
from tests.story import product as products

LINES = 800_000
MAX_LINES_PER_REPORT = 1000  # of the wire format; an agent sends fewer
MIN_LINES = 1000
NODES = 5
CODES = (48, 62, 64, 79, 94, 119)
DISTINCT = 29  # NVSentinel #1120: 29 faults, reported 800,000 times
CONNECTIONS = 8
POLICY = scene.CORDON.replace('"62"', '"62", "79"')
ROWS = {
    "occurrences": "incidents_occurrence",
    "batches": "incidents_batch",
    "decisions": "rescue_decision",
    "ledger entries": "ledger_entry",
}


def measure(scale: float) -> Result:
    """Three sizes, each on a new installation; the row counts are those of the largest."""
    points: list[tuple[float, float]] = []
    kept: list[tuple[str, str, str]] = []
    for lines in result.sizes(LINES, scale, least=MIN_LINES):
        reports = max(NODES, round(lines / MAX_LINES_PER_REPORT))
        per_report = min(MAX_LINES_PER_REPORT, lines // reports)
        with tempfile.TemporaryDirectory() as folder, products.on_postgres(Path(folder)) as product:
            product.set_up(nodes=NODES + 4, policies=POLICY, agents=False, simulator=["--no-workloads"])
            points.append((reports * per_report, _run(product, reports, per_report)))
            kept = _stored(product, reports * per_report)
    return Result(
        name="Duplicate storm",
        command="make bench ARGS=duplicate-storm",
        conditions=f"{points[-1][0]:,} fault lines, each a log record with its own number; {DISTINCT} distinct "
        f"faults of {NODES} nodes; up to {MAX_LINES_PER_REPORT} lines per report, {CONNECTIONS} connections. The clock "
        "runs until the last report is durable and no decision or rescue is due.",
        rows=[
            *(
                (f"{lines:,.0f} lines", f"{took:.1f} s ({lines / took:,.0f}/s)", "< 300 s" if lines == LINES else "")
                for lines, took in points
            ),
            ("exponent", f"{result.exponent(points):.2f}", "≤ 1"),
            *kept,
        ],
    )


def _run(product: products.Product, count: int, per_report: int) -> float:
    """Seconds until every report is durable and every decision and rescue is finished."""
    nodes = scene.working_nodes(product)[:NODES]
    secrets, boots = scene.tokens(product, nodes), scene.boots(product)
    pairs = list(itertools.product(nodes, CODES))[:DISTINCT]
    codes = {node: itertools.cycle([code for of, code in pairs if of == node]) for node in nodes}
    sequence = itertools.count(1)
    reports = []
    for node in itertools.islice(itertools.cycle(nodes), count):
        faults = [scene.xid(next(codes[node]), sequence=next(sequence)) for _ in range(per_report)]
        reports.append((secrets[node], scene.report(node, faults, boot_id=boots[node])))
    began = time.time()
    scene.send(product, reports, connections=CONNECTIONS)
    return scene.settled(product, seconds=120) - began


def _stored(product: products.Product, lines: int) -> list[tuple[str, str, str]]:
    """The row counts in the database afterwards, with their goals."""
    [(incidents, counted)] = scene.ask(product, "SELECT count(*), sum(count) FROM incidents_incident")
    rescues = scene.ask(product, "SELECT count(*) FROM rescue_rescue GROUP BY node_id")
    rows = [(what, scene.ask(product, f"SELECT count(*) FROM {table}")[0][0]) for what, table in ROWS.items()]
    return [
        ("incidents", f"{incidents}", f"{DISTINCT}"),
        ("occurrences counted", f"{counted:,}", f"{lines:,}"),
        ("most rescues of one node", f"{max((count for (count,) in rescues), default=0)}", "≤ 1"),
        *((f"stored: {what}", f"{count:,}", "bounded") for what, count in rows),
    ]
