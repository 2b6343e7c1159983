"""Preflight: how long the last report of a job takes, whose response contains the verdict."""

import json
import statistics
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from bench import result, scene
from bench.result import Result, scaled
from tests.story import product as products

NODES = 1_000
RUNS = 5
CONNECTIONS = 8
SLOTS = 5
GROUP = 8  # nodes that are paired with each other: in each slot, place XOR (slot + 1)


def measure(scale: float) -> Result:
    """Three job sizes on one installation."""
    # Whole groups. At a scale of 1: 96, 328 and 1,000 nodes.
    sizes = sorted({size // GROUP * GROUP for size in result.sizes(NODES, scale, least=GROUP)})
    runs = scaled(RUNS, scale, least=1)
    points: list[tuple[float, float]] = []
    rows: list[tuple[str, str, str]] = []
    with tempfile.TemporaryDirectory() as folder, products.on_postgres(Path(folder)) as product:
        product.names = ["web"]
        product.manage_all([["migrate", "--verbosity", "0"], product.anna()])
        scene.fill(product, sizes[-1])
        (printed,) = product.manage_all([["token", "create", "--kind", "operator", "--cluster", "big"]])
        product.token = printed.strip()
        product.start_processes()
        for size in sizes:
            found = [_run(product, size, f"{size}-{number}") for number in range(runs)]
            last = [took for took, _ in found]
            points.append((size, statistics.median(last)))
            rows.append(
                (
                    f"{size:,} nodes, last report answered with the verdict",
                    f"{statistics.median(last) * 1000:.0f} ms ({min(last) * 1000:.0f} to {max(last) * 1000:.0f})",
                    "≤ 1 s" if size == sizes[-1] else "",
                )
            )
    rows += [
        (f"all {points[-1][0]:,.0f} reports", f"{statistics.median(total for _, total in found):.1f} s", ""),
        ("exponent", f"{result.exponent(points):.2f}", "≤ 1"),
    ]
    return Result(
        name="Preflight verdict",
        command="make bench ARGS=preflight-verdict",
        conditions=f"One job; one report per node with {SLOTS} slots; one node in {GROUP} is slow. {CONNECTIONS} "
        f"connections to `web`, the last report alone; {runs} jobs of each size, median (and range).",
        rows=rows,
    )


def _run(product: products.Product, size: int, uid: str) -> tuple[float, float]:
    """Seconds for the last report, and for all reports."""
    began = time.perf_counter()
    with ThreadPoolExecutor(CONNECTIONS) as pool:
        answers = list(pool.map(lambda place: _post(product, place, size, uid), range(size - 1)))
    assert {answer["state"] for answer in answers} == {"waiting"}
    last = time.perf_counter()
    assert _post(product, size - 1, size, uid)["state"] == "complete"
    ended = time.perf_counter()
    found = product.get(f"/api/v1/preflight/runs?namespace=ml&workload=job&uid={uid}")
    assert len(found["slow_nodes"]) == size // GROUP, found["slow_nodes"][:5]
    return ended - last, ended - began


def _post(product: products.Product, place: int, size: int, uid: str) -> dict[str, Any]:
    body = {"namespace": "ml", "workload_uid": uid, "report": _report(place, size)}
    status, answer = product.post("/api/v1/preflight/reports", body)
    assert status == 202, (status, json.dumps(answer))
    return dict(answer)


def _report(place: int, size: int) -> dict[str, Any]:
    figures = {"allreduce_ms": 21.4, "world_size": 16, "allreduce_shape": 2**30, "dtype_bytes": 2}
    return {
        "workload": "job",
        "workload_size": size,
        "node_name": f"gpu-{place:05}",
        "node_ip": _ip(place),
        "gpu_check": 1,
        "storage_check": 1,
        "node_check_busbw_threshold_gbps": "50",
        "batches": [
            {
                "batch_idx": slot,
                "pair": [_ip(place), _ip(place ^ (slot + 1))],
                "self_ip": _ip(place),
                "status": "fail" if place % GROUP == 0 else "ok",
                **figures,
            }
            for slot in range(SLOTS)
        ],
    }


def _ip(place: int) -> str:
    return f"10.1.{place >> 8}.{place & 255}"
