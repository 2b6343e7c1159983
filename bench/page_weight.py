"""Bytes of the first page on the wire: the first visit, a second one, and a live refresh."""

import re
import tempfile
import urllib.parse
import urllib.request
from pathlib import Path

from bench import scene
from bench.result import Result, scaled
from tests.story import product as products
from tests.story.person import Person

NODES = 200
ASSETS = re.compile(r'(?:href|src)="(/static/[^"#]+)|data-src="(/map\.json[^"]*)"')
FRAGMENT = {"HX-Request": "true", "HX-Target": "live"}


def measure(scale: float) -> Result:
    """One visit by a signed-in person with an empty cache."""
    nodes = scaled(NODES, scale, least=10)
    with tempfile.TemporaryDirectory() as folder, products.on_postgres(Path(folder)) as product:
        product.names = ["web"]
        product.manage_all([["migrate", "--verbosity", "0"], product.anna(), ["static_files", "--verbosity", "0"]])
        product.start_processes()
        person = Person(product)
        person.sign_in("anna", products.PASSWORD)
        scene.fill(product, nodes)
        page = person.get("/")
        assets = sorted({one or other for one, other in ASSETS.findall(page)})
        weights = {path: _weight(person, path) for path in ("/", *assets)}
        kept = sum(size for path, size in weights.items() if path.startswith("/static/"))
        fragment, map_json = _weight(person, "/", **FRAGMENT), weights.get("/map.json", 0)
    return Result(
        name="Weight of the first page",
        command="make bench ARGS=page-weight",
        conditions=f"{nodes} nodes x 8 GPUs, one in 50 with an open incident; `web`, gzip, static files collected. "
        f"The first visit loads {len(weights)} addresses, with headers left out. Bytes of bodies as sent.",
        rows=[
            ("first visit", f"{sum(weights.values()) / 1000:.0f} KB", "≤ 200 KB"),
            ("of it static files, which browsers keep", f"{kept / 1000:.0f} KB", ""),
            ("live refresh", f"{fragment / 1000:.1f} KB", "≤ 15 KB"),
            ("map, when a node changed", f"{map_json / 1000:.1f} KB", ""),
        ],
    )


def _weight(person: Person, path: str, **headers: str) -> int:
    """Bytes of the body as sent."""
    address = urllib.parse.urljoin(person.url, path)
    asked = urllib.request.Request(address, headers={"Accept-Encoding": "gzip", **headers})
    with person.opener.open(asked, timeout=60) as answer:
        return len(answer.read())
