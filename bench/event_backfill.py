"""One million health events of the last 90 days, as NVSentinel's exporter sends them when a source is added."""

import itertools
import json
import math
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from bench import result, scene
from bench.result import Result, scaled
from tests.story import product as products

EVENTS = 1_000_000
SHARES = (0.1, 1 / 3, 1.0)  # of the events, one part after the other into one installation
MIN_PAIRS = 50
NODES = 288
MIN_NODES = 8
NODES_PER_SPARE = 8  # the simulator keeps some nodes as spares, which are not measured
GPUS = 8
DAYS = 90
LASTS = timedelta(hours=8)  # from each fault to the event that says that it is over: two requests later
NEWEST = LASTS + timedelta(minutes=30)  # age of the last fault, so that none is decided at once
PER_REQUEST = 1_000
CONNECTIONS = 2  # each sends the events of its nodes in the order of their times
RETRY_SECONDS = 0.2
SOURCE = "nvsentinel"
BATCH = "application/cloudevents-batch+json"
POLICY = """
apiVersion: kcover.io/v1
kind: RescuePolicy
metadata: {name: cordon}
spec: {rules: [{priority: 10, match: {codes: {health: ["SysLogsXIDError/79"]}}, actions: [{name: cordon}]}]}
"""
ROWS = {
    "identities of events": "sources_takenevent",
    "incidents": "incidents_incident",
    "ledger entries": "ledger_entry",
}

Event = dict[str, Any]


def measure(scale: float) -> Result:
    """Three parts of the events, each measured from the start, then the last request once more."""
    count = scaled(NODES, scale, least=MIN_NODES)
    with tempfile.TemporaryDirectory() as folder, products.on_postgres(Path(folder)) as product:
        product.names = ["web", "worker", "beat", "watch"]
        product.set_up(
            nodes=count + count // NODES_PER_SPARE + 4, policies=POLICY, agents=False, simulator=["--no-workloads"]
        )
        pairs = scaled(EVENTS // 2, scale, least=MIN_PAIRS)
        sender = Sender(product, scene.working_nodes(product)[:count], pairs=pairs)
        points = [sender.send_up_to(share) for share in SHARES]
        scene.settled(product, seconds=300)
        kept = _stored(product, sender)
    return Result(
        name="Backfilled events",
        command="make bench ARGS=event-backfill",
        conditions=f"{points[-1][0]:,.0f} CloudEvents of {count} nodes and {DAYS} days, each fault with its end "
        f"{LASTS.seconds // 3600} h later; {PER_REQUEST} events a request, {CONNECTIONS} connections to `web` (two "
        "processes). One rule would cordon for each of them. The clock runs until the last event is durable.",
        rows=[
            *(
                (f"{count:,.0f} events", f"{took:.0f} s ({count / took:,.0f}/s)", _goal(count))
                for count, took in points
            ),
            ("exponent", f"{result.exponent(points):.2f}", "≤ 1.1"),
            *kept,
        ],
    )


def _goal(count: float) -> str:
    return "≤ 600 s" if count == EVENTS else ""


@dataclass(slots=True)
class Sender:
    """Sends the events of each connection's nodes. ``last``: a request that was accepted. ``refused``: with 429."""

    product: products.Product
    nodes: Sequence[str]
    pairs: int
    token: str = ""
    sent: int = 0
    refused: int = 0
    last: bytes = b""
    _seconds: float = 0.0
    _streams: list[Iterator[Event]] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self.product.manage("source", "add", SOURCE, "--kind", "cloudevents", "--cluster", "sim")
        created = self.product.manage("token", "create", "--kind", "source", "--source", SOURCE, "--cluster", "sim")
        self.token = created.strip()
        now = datetime.now(UTC)
        self._streams = [self._events(number, now) for number in range(CONNECTIONS)]

    def send_up_to(self, share: float) -> tuple[float, float]:
        """Sends events until this share of all is durable; returns their number and the seconds from the start."""
        wanted = round(self.pairs * 2 * share)
        began = time.monotonic()
        with ThreadPoolExecutor(CONNECTIONS) as pool:
            each = math.ceil((wanted - self.sent) / CONNECTIONS)
            self.sent += sum(pool.map(lambda stream: self._drain(stream, each), self._streams))
        self._seconds += time.monotonic() - began
        return float(self.sent), self._seconds

    def post(self, body: bytes) -> dict[str, Any]:
        """Sends one request until it is accepted. Raises RuntimeError if it never will be."""
        url = f"{self.product.url}/api/v1/sources/{SOURCE}/events"
        while True:
            status, answer = products.call(
                "POST", url, body, token=self.token, headers={"Content-Type": BATCH}, timeout=120
            )
            if status == 202:
                return dict(answer)
            if status != 429 and status < 500:
                raise RuntimeError(f"{status} {answer}")
            with self._lock:
                self.refused += 1
            time.sleep(RETRY_SECONDS)

    def _drain(self, stream: Iterator[Event], most: int) -> int:
        sent = 0
        while events := list(itertools.islice(stream, min(most - sent, PER_REQUEST))):
            sent += len(events)
            self.last = json.dumps(events).encode()
            answer = self.post(self.last)
            if answer["accepted"] != len(events):
                raise RuntimeError(f"{len(events)} events were sent: {json.dumps(answer)[:500]}")
        return sent

    def _events(self, connection: int, now: datetime) -> Iterator[Event]:
        """The faults and their ends in the order of their times."""
        nodes = self.nodes[connection::CONNECTIONS]
        pairs = self.pairs // CONNECTIONS
        step = (timedelta(days=DAYS) - NEWEST) / max(1, pairs)
        behind = round(LASTS / step)  # how many faults follow before a fault is over

        def event(number: int, *, healthy: bool) -> Event:
            at = now - timedelta(days=DAYS) + number * step + (LASTS if healthy else timedelta())
            place = nodes[number % len(nodes)], number // len(nodes) % GPUS
            return health_event(f"{connection}-{number}-{healthy}", *place, at=at, healthy=healthy)

        for number in range(pairs + behind):
            if number < pairs:
                yield event(number, healthy=False)
            if number >= behind:
                yield event(number - behind, healthy=True)


def health_event(name: str, node: str, gpu: int, *, at: datetime, healthy: bool) -> Event:
    stamp = at.isoformat(timespec="milliseconds")
    return {
        "specversion": "1.0",
        "type": "com.nvidia.nvsentinel.health.v1",
        "source": "nvsentinel://sim/healthevents",
        "id": name,
        "time": stamp,
        "data": {
            "metadata": {"cluster": "sim"},
            "healthEvent": {
                "version": 1,
                "agent": "syslog-health-monitor",
                "componentClass": "GPU",
                "checkName": "SysLogsXIDError",
                "isFatal": not healthy,
                "isHealthy": healthy,
                "message": "" if healthy else "GPU has fallen off the bus",
                "recommendedAction": 0 if healthy else 24,
                "errorCode": [] if healthy else ["79"],
                "entitiesImpacted": [{"entityType": "PCI", "entityValue": f"0000:{0x18 + gpu * 16:02x}:00"}],
                "generatedTimestamp": stamp,
                "nodeName": node,
            },
        },
    }


def _stored(product: products.Product, sender: Sender) -> list[tuple[str, str, str]]:
    """Returns rows about the stored events, and about what a repeated request changes."""
    again = sender.post(sender.last)
    [(accepted,)] = scene.ask(product, "SELECT accepted FROM sources_source WHERE name = %s", SOURCE)
    [(still_open,)] = scene.ask(product, "SELECT count(*) FROM incidents_incident WHERE state = 'open'")
    [(rescues,)] = scene.ask(product, "SELECT count(*) FROM rescue_rescue")
    [(size,)] = scene.ask(product, "SELECT pg_database_size(current_database())")
    rows = [(what, scene.ask(product, f"SELECT count(*) FROM {table}")[0][0]) for what, table in ROWS.items()]
    return [
        ("events accepted", f"{accepted:,}", f"{sender.sent:,}"),
        ("requests answered 429 and sent again", f"{sender.refused:,}", ""),
        ("accepted of a repeated request", f"{again['accepted']}", "0"),
        ("incidents still open", f"{still_open}", "0"),
        ("rescues", f"{rescues}", "0"),
        *((f"stored: {what}", f"{count:,}", "") for what, count in rows),
        ("size of the database", f"{size / 2**20:,.0f} MiB", ""),
    ]
