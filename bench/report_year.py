"""Reports about 12 months of 5,000 GPUs: response time of REST and of the page."""

import tempfile
import time
from pathlib import Path

from bench import scene
from bench.result import Result, percentile, scaled
from tests.story import product as products
from tests.story.person import Person

NODES = 625  # with 8 GPUs
REQUESTS = 10


def measure(scale: float) -> Result:
    """Fills a database with two years, and asks for the last one."""
    requests = scaled(REQUESTS, scale, least=2)
    rows: list[tuple[str, str, str]] = []
    with tempfile.TemporaryDirectory() as folder, products.on_postgres(Path(folder)) as product:
        product.names = ["web"]
        product.manage_all([["migrate", "--verbosity", "0"], product.anna()])
        filled = scene.run_inside(product, "bench.report_rows", str(scaled(NODES, scale, least=10))).strip()
        product.start_processes()
        person = Person(product)
        person.sign_in("anna", products.PASSWORD)
        since = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() - 365 * 86400))
        for by in ("code", "phase"):
            rows.append(
                (f"REST, by {by}", *_median(person, f"/api/v1/reports/reliability?from={since}&by={by}", requests))
            )
        rows.append(("lemons", *_median(person, "/api/v1/reports/lemons", requests)))
        rows.append(("page, report and lemons", _median(person, "/reports/?period=12m", requests)[0], ""))
    return Result(
        name="Reports of a year",
        command="make bench ARGS=report-year",
        conditions=f"{filled}, over two years; the report is about the last year and compares it with the one before. "
        f"Median of {requests} requests, one after the other, to `web`.",
        rows=rows,
    )


def _median(person: Person, path: str, requests: int) -> tuple[str, str]:
    times = []
    for _ in range(requests):
        begun = time.perf_counter()
        person.get(path)
        times.append(time.perf_counter() - begun)
    return f"{percentile(times, 0.5):.2f} s (P95 {percentile(times, 0.95):.2f} s)", "≤ 2 s"
