"""Bytes of pages on the wire: the first visit of the home page, and of each page its first visit and a live refresh."""

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
PAGES = ("/nodes/", "/incidents/", "/decisions/", "/rescues/", "/approvals/", "/safety/", "/audit/", "/system/")
EDITOR = "/policies/edit/"
FIRST, REFRESH = 200, 15  # KB at most


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
        [node] = re.findall(r'href="(/nodes/[^"?#]+/[^"?#]+/)"', person.get("/nodes/"))[:1]
        weights = {path: _visit(person, path) for path in ("/", *PAGES, node, EDITOR)}
        refreshes = {path: _weight(person, path, **FRAGMENT) for path in ("/", *PAGES, node)}
        map_json = weights["/"].get("/map.json", 0)
    home = weights["/"]
    heaviest = max(weights, key=lambda path: sum(weights[path].values()))
    return Result(
        name="Weight of pages",
        command="make bench ARGS=page-weight",
        conditions=f"{nodes} nodes x 8 GPUs, one in 50 with an open incident; `web`, gzip, static files collected; "
        "the audit log has a dozen entries. "
        f"The first visit of the home page loads {len(home)} addresses. Bytes of bodies as sent, without headers.",
        rows=[
            ("first visit", _kilobytes(sum(home.values())), f"≤ {FIRST} KB"),
            ("of it static files, which browsers keep", _kilobytes(_static(home)), ""),
            (
                f"first visit of the heaviest page, `{heaviest}`",
                _kilobytes(sum(weights[heaviest].values())),
                f"≤ {FIRST} KB",
            ),
            ("live refresh", _kilobytes(refreshes["/"]), f"≤ {REFRESH} KB"),
            *((f"live refresh of `{path}`", _kilobytes(refreshes[path]), f"≤ {REFRESH} KB") for path in PAGES),
            ("live refresh of a node", _kilobytes(refreshes[node]), f"≤ {REFRESH} KB"),
            ("map, when a node changed", _kilobytes(map_json), ""),
        ],
    )


def _visit(person: Person, path: str) -> dict[str, int]:
    """The bytes of a page, and of all that it loads, by address."""
    page = person.get(path)
    assets = sorted({one or other for one, other in ASSETS.findall(page)})
    return {address: _weight(person, address) for address in (path, *assets)}


def _static(weights: dict[str, int]) -> int:
    return sum(size for address, size in weights.items() if address.startswith("/static/"))


def _kilobytes(size: int) -> str:
    return f"{size / 1000:.1f} KB"


def _weight(person: Person, path: str, **headers: str) -> int:
    """Bytes of the body as sent."""
    address = urllib.parse.urljoin(person.url, path)
    asked = urllib.request.Request(address, headers={"Accept-Encoding": "gzip", **headers})
    with person.opener.open(asked, timeout=60) as answer:
        return len(answer.read())
