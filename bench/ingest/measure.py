"""The ingest goals: maximum throughput and its cost, latency at the pace of a fleet, and losses in a crash."""

import itertools
import os
import signal
import statistics
import time
from collections.abc import Callable, Sequence

import psutil
import psycopg

from bench import result
from bench.ingest import load, reports, server
from bench.result import Result, scaled
from tests.story import product as products

AGENTS = 100_000
REPORT_INTERVAL_SECONDS = 30.0  # of each node
CONNECTIONS = 256
ROUNDS = 3
MIN_SECONDS = 0.5
ENDED_SECONDS = 10.0  # after SIGKILL

Row = tuple[str, str, str]


def saturated(scale: float) -> Result:
    """Closed loop: the portal with repeated and with unique reports, and the naive design, alternating."""
    # 2 reports/s are accepted of each node.
    nodes, seconds = scaled(10_000, scale, least=500), scaled(20.0, scale, least=MIN_SECONDS)
    connections, naive_connections, rounds = _at(scale, CONNECTIONS), _at(scale, 64), scaled(ROUNDS, scale, least=1)
    portal_runs: list[tuple[load.LoadResult, server.Cost]] = []
    own: list[tuple[load.LoadResult, server.Cost]] = []
    naive_runs: list[tuple[load.LoadResult, server.Cost]] = []
    with server.portal(nodes=nodes, processes=2) as portal, server.naive(portal, nodes=nodes) as naive:
        _report_once(portal)
        for turn in range(1, rounds + 1):
            portal_runs.append(_run(portal, seconds=seconds, connections=connections, serial=turn * 100_000))
            own.append(
                _run(portal, seconds=seconds, connections=connections, serial=turn * 100_000 + 50_000, says="own")
            )
            naive_runs.append(_run(naive, seconds=seconds, connections=naive_connections, serial=turn * 100_000))
    ratios = [
        _rate(portal_run) / _rate(naive_run)
        for (portal_run, _), (naive_run, _) in zip(portal_runs, naive_runs, strict=True)
    ]
    wal = [cost.wal / len(found.latencies) for found, cost in portal_runs]
    own_ratios = [
        _rate(portal_run) / _rate(naive_run) for (portal_run, _), (naive_run, _) in zip(own, naive_runs, strict=True)
    ]
    hot = [cost.in_place / max(1, cost.beats) for _, cost in portal_runs]
    return Result(
        name="Ingest, saturated",
        command="make bench ARGS=ingest-saturated",
        conditions=f"{nodes:,} nodes; a report is 2.2 KB: 8 GPUs, 8 passing checks, unchanged; one per request, "
        f"answered when durable, credential checked. {connections} keep-alive connections to the portal (2 live "
        f"processes), {naive_connections} to the naive design (DRF nested serializers, token in the database, one ORM "
        f"insert, uvicorn with 2 x 8 threads); the client is on the same cores. {rounds} alternating rounds of "
        f"{seconds:.0f} s; median [min-max]. "
        "The rows `unique reports` are for reports with an unknown key that has another value each time.",
        rows=[
            ("reports/s", _spread([_rate(found) for found, _ in portal_runs]), "≥ 6,000"),
            ("naive design, reports/s", _spread([_rate(found) for found, _ in naive_runs]), ""),
            ("ratio in the same round", _spread(ratios, digits=1), "≥ 20"),
            ("CPU of portal and PostgreSQL per report", _cpu(portal_runs), "≤ 260 µs"),
            ("naive design, CPU per report", _cpu(naive_runs), ""),
            ("unique reports, reports/s", _spread([_rate(found) for found, _ in own]), ""),
            ("unique reports, ratio", _spread(own_ratios, digits=1), ""),
            ("unique reports, CPU per report", _cpu(own), ""),
            ("WAL per report", f"{_spread(wal)} B", "≤ 400 B"),
            ("rows added by unchanged reports", str(sum(cost.rows for _, cost in portal_runs)), "0"),
            ("heartbeats written in place (HOT)", f"{min(hot):.1%}", ""),
            ("P50 / P99 (closed loop)", _percentiles(portal_runs[-1][0]), ""),
            ("responses other than 202", str(sum(_refused(found) for found, _ in portal_runs)), "0"),
        ],
    )


def steady(scale: float) -> Result:
    """Every node at its own pace, open loop: latency counts from when a report was due."""
    rows: list[Row] = []
    points = []
    sizes = result.sizes(AGENTS, scale, least=300)
    connections = _at(scale, 1_000)
    for nodes in sizes:
        full_size = nodes == sizes[-1]
        seconds = scaled(300.0 if full_size else 60.0, scale, least=MIN_SECONDS)
        found, cost = _at_pace(nodes, seconds=seconds, connections=connections)
        points.append((float(nodes), _cores(found, cost)))
        rows += _paced(
            f"{nodes:,} nodes every {REPORT_INTERVAL_SECONDS:.0f} s", nodes, seconds, found, cost, goals=full_size
        )
        if full_size:
            rows += [
                ("WAL per report", f"{cost.wal / len(found.latencies):.0f} B", "≤ 400 B"),
                ("rows added", str(cost.rows), "0"),
                ("heartbeats written in place (HOT)", f"{cost.in_place / max(1, cost.beats):.1%}", ""),
                ("exponent of the cores", f"{result.exponent(points):.2f}", "≤ 1"),
            ]
    nodes, seconds = sizes[-1], scaled(60.0, scale, least=MIN_SECONDS)
    for says, processes, what in (
        ("bare", 1, "heartbeats as sent by the project's agents"),
        ("own", 2, "unique reports, two live processes"),
    ):
        found, cost = _at_pace(nodes, seconds=seconds, connections=connections, processes=processes, says=says)
        rows += _paced(f"{nodes:,} nodes, {what}", nodes, seconds, found, cost, goals=False)
    return Result(
        name="Ingest, a fleet's pace",
        command="make bench ARGS=ingest-steady",
        conditions=f"Reports as above, spread evenly, over {connections:,} keep-alive connections; "
        f"{scaled(300.0, scale, least=MIN_SECONDS):.0f} s at the largest size, after every node has reported once; "
        "one live process.",
        rows=rows,
    )


def _at_pace(
    nodes: int, *, seconds: float, connections: int, processes: int = 1, says: str = "all"
) -> tuple[load.LoadResult, server.Cost]:
    with server.portal(nodes=nodes, processes=processes) as portal:
        _report_once(portal)
        rate = nodes / REPORT_INTERVAL_SECONDS
        return _run(portal, seconds=seconds, connections=connections, rate=rate, serial=100_000, says=says)


def _paced(
    what: str, nodes: int, seconds: float, found: load.LoadResult, cost: server.Cost, *, goals: bool
) -> list[Row]:
    return [
        (f"{what}: server cores", f"{_cores(found, cost):.2f}", "≤ 1.3" * goals),
        (f"{what}: P50 / P99 / P99.9", _percentiles(found), "P99 ≤ 50 ms" * goals),
        (f"{what}: not 202, or not sent", f"{_refused(found)}, {_unsent(found, nodes, seconds)}", "0" * goals),
    ]


def _cores(found: load.LoadResult, cost: server.Cost) -> float:
    return (cost.portal + cost.postgres) / found.seconds


def crashes(scale: float) -> Result:
    """kill -9 of each process that a report passes through; then again with synchronous_commit off."""
    seconds, connections = scaled(6.0, scale, least=MIN_SECONDS), _at(scale, 64)
    trials_each, lazy_trials = scaled(3, scale, least=1), scaled(5, scale, least=1)
    rows: list[Row] = []

    def tried(kill: Callable[[server.Portal], None], times: int) -> tuple[int, int]:
        trials = [
            _trial(portal, kill, seconds=seconds, connections=connections, serial=next(serials) * 1_000)
            for _ in range(times)
        ]
        return sum(sent for sent, _ in trials), sum(missing for _, missing in trials)

    with server.portal(nodes=scaled(20_000, scale, least=2_000)) as portal:
        _report_once(portal)
        serials = itertools.count(1)
        acknowledged = lost = 0
        for what, kill in (("portal", _kill_live), ("PostgreSQL's backend", _kill_backends), ("PostgreSQL", _kill_all)):
            sent, missing = tried(kill, trials_each)
            acknowledged, lost = acknowledged + sent, lost + missing
            rows.append(
                (f"kill -9 of {what}, {trials_each} trials", f"{sent:,} acknowledged, {missing} lost", "0 lost")
            )
        rows.append((f"all {3 * trials_each} trials", f"{acknowledged:,} acknowledged, {lost} lost", "0 of ≥ 10,000"))
        _without_synchronous_commit(portal)
        sent, missing = tried(_kill_all, lazy_trials)
        what = f"with synchronous_commit=off, {lazy_trials} trials of PostgreSQL"
        rows.append((what, f"{sent:,} acknowledged, {missing} lost", "some lost"))
    return Result(
        name="Ingest, crashes",
        command="make bench ARGS=ingest-crashes",
        conditions=f"{connections} connections send reports, and meanwhile one process is killed. Afterwards each "
        "acknowledged report is looked up in the recent batches of its node. The last row shows that the test can "
        "fail.",
        rows=rows,
    )


def _at(scale: float, connections: int) -> int:
    return scaled(connections, scale, least=8)


def _report_once(portal: server.Portal) -> None:
    """Every node reports once, so that the reports that follow are unchanged."""
    portal.load(connections=CONNECTIONS, each=True)
    with psycopg.connect(portal.database, autocommit=True) as connection:
        connection.execute("VACUUM ANALYZE")
        connection.execute("CHECKPOINT")


def _run(of: server.Portal | server.Naive, **plan: float) -> tuple[load.LoadResult, server.Cost]:
    before = of.cost()
    found = of.load(**plan)
    return found, of.cost().since(before)


def _trial(
    portal: server.Portal, kill: Callable[[server.Portal], None], *, seconds: float, connections: int, serial: int
) -> tuple[int, int]:
    """The number of reports acknowledged around a kill, and how many of them are missing."""
    client = load.start(
        port=portal.port, nodes=portal.nodes, connections=connections, seconds=seconds, serial=serial, note=True
    )
    time.sleep(seconds * 0.6)
    kill(portal)
    found = load.finish(client)
    if len(found.acknowledged) > reports.RECENT_BATCHES * portal.nodes:
        raise RuntimeError(f"{len(found.acknowledged)} reports of {portal.nodes} nodes: a row keeps only the last few")
    portal.product.start_processes()
    portal.product.wait(lambda: _is_up(portal), "the portal to accept reports again")
    with psycopg.connect(portal.database) as connection:
        rows = connection.execute("SELECT n.name, a.recent FROM fleet_agent a JOIN fleet_node n ON n.id = a.node_id")
        known = dict(rows.fetchall())
    found_again = [
        reports.mark(*report_id) in known.get(reports.name_of(report_id[0]), "") for report_id in found.acknowledged
    ]
    return len(found_again), found_again.count(False)


def _is_up(portal: server.Portal) -> bool:
    url = portal.product.url + "/api/v1/agent/commands"
    return products.call("GET", url, token=reports.secret_of(0))[0] == 200


def _kill_live(portal: server.Portal) -> None:
    portal.product.kill("live")


def _kill_backends(portal: server.Portal) -> None:
    """Kills the backend of the writer; PostgreSQL then ends all other backends too."""
    with psycopg.connect(portal.postgres.server.url, autocommit=True) as connection:
        found = connection.execute(
            "SELECT pid FROM pg_stat_activity WHERE datname = 'portal' ORDER BY query_start DESC LIMIT 1"
        ).fetchone()
    assert found is not None
    os.kill(found[0], signal.SIGKILL)


def _kill_all(portal: server.Portal) -> None:
    running = portal.postgres.server.process
    assert running is not None
    postmaster = psutil.Process(running.pid)
    postmaster.suspend()  # otherwise it may start a backend that is not in the list
    backends = postmaster.children(recursive=True)
    for process in (postmaster, *backends):
        process.kill()
    portal.postgres.server.kill()
    # Until they are gone they hold the shared memory, and no server starts.
    psutil.wait_procs(backends, timeout=ENDED_SECONDS)
    portal.postgres.server.start()


def _without_synchronous_commit(portal: server.Portal) -> None:
    with psycopg.connect(portal.postgres.server.url, autocommit=True) as connection:
        connection.execute("ALTER DATABASE portal SET synchronous_commit = off")
    portal.product.kill("live")
    portal.product.start_processes()


def _cpu(runs: Sequence[tuple[load.LoadResult, server.Cost]]) -> str:
    """Microseconds of server CPU per report."""
    each = [(cost.portal + cost.postgres) / len(found.latencies) * 1e6 for found, cost in runs]
    return f"{_spread(each)} µs"


def _rate(found: load.LoadResult) -> float:
    return found.statuses[202] / found.seconds


def _refused(found: load.LoadResult) -> int:
    return sum(count for status, count in found.statuses.items() if status != 202) + found.cut


def _unsent(found: load.LoadResult, nodes: int, seconds: float) -> int:
    return max(0, int(nodes / REPORT_INTERVAL_SECONDS * seconds * 0.999) - len(found.latencies))


def _percentiles(found: load.LoadResult) -> str:
    shares = (0.5, 0.99, 0.999)
    return " / ".join(f"{result.percentile(found.latencies, share) * 1000:.1f}" for share in shares) + " ms"


def _spread(values: Sequence[float], *, digits: int = 0) -> str:
    low, middle, high = min(values), statistics.median(values), max(values)
    return f"{middle:,.{digits}f} [{low:,.{digits}f}-{high:,.{digits}f}]"
