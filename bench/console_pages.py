"""Console pages of a portal with 10,000 nodes: response time and size."""

import tempfile
import time
from pathlib import Path

from bench import result, scene
from bench.result import Result, percentile, scaled
from tests.story import product as products
from tests.story.person import Person

NODES = 10_000
MIN_NODES = 10
REQUESTS = 100
WARM_UP = 5
PAGES = {
    "overview": "/",
    "overview's map": "/map.json",
    "nodes": "/nodes/",
    "nodes, searched": "/nodes/?q=gpu-00",
    "incidents": "/incidents/",
    "rescues": "/rescues/",
}


def measure(scale: float) -> Result:
    """The same installation with three fleet sizes."""
    sizes = result.sizes(NODES, scale, least=MIN_NODES)
    requests, warm_up = scaled(REQUESTS, scale, least=2), scaled(WARM_UP, scale, least=1)
    points: dict[str, list[tuple[float, float]]] = {page: [] for page in PAGES}
    rows: list[tuple[str, str, str]] = []
    with tempfile.TemporaryDirectory() as folder, products.on_postgres(Path(folder)) as product:
        product.names = ["web"]
        product.manage_all([["migrate", "--verbosity", "0"], product.anna()])
        product.start_processes()
        person = Person(product)
        person.sign_in("anna", products.PASSWORD)
        for nodes in sizes:
            scene.fill(product, nodes)
            for page, path in PAGES.items():
                p95, size = _page(person, path, requests=requests, warm_up=warm_up)
                points[page].append((nodes, p95))
                if nodes == sizes[-1]:
                    limit = "≤ 300 KB" if "map" not in page else ""
                    rows.append((f"{page}, P95", f"{p95 * 1000:.0f} ms", "≤ 200 ms"))
                    rows.append((f"{page}, bytes", f"{size / 1000:.0f} KB", limit))
    rows += [(f"{page}, exponent", f"{result.exponent(points[page]):.2f}", "≤ 1") for page in PAGES]
    return Result(
        name="Console pages",
        command="make bench ARGS=console-pages",
        conditions=f"{sizes[-1]:,} nodes x 8 GPUs in one cluster, one in 50 with an open incident, "
        f"ten closed ones and a rescue; {requests} requests of each page, one after the "
        "other, by one signed-in user, directly to `web`; the clock runs until the last byte. Bytes as sent.",
        rows=rows,
    )


def _page(person: Person, path: str, *, requests: int, warm_up: int) -> tuple[float, int]:
    """P95 in seconds and size in bytes of one page."""
    times, size = [], 0
    for number in range(warm_up + requests):
        began = time.perf_counter()
        size = len(person.get(path).encode())
        if number >= warm_up:
            times.append(time.perf_counter() - began)
    return percentile(times, 0.95), size
