"""The CPU of health events at a fleet's usual pace, of which 99 % have no consequence."""

import itertools
import json
import math
import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from bench import scene
from bench.event_backfill import BATCH, MIN_NODES, NODES, NODES_PER_SPARE, Event, health_event
from bench.process_cost import costs, costs_within
from bench.result import Result, scaled
from tests.story import product as products

EVENTS_PER_DAY = 190_000  # what a fleet of 288 nodes was seen to export
SECONDS_PER_DAY = 86_400
WINDOW_SECONDS = 240.0
MIN_SECONDS = 1.0
SETTLE_SECONDS = 30.0
PER_REQUEST = 192  # events to warm up with
FAULT_EVERY = 100  # events; the others are passes, warnings and events that are only stored
SOURCE = "nvsentinel"
STRUCTURED = "application/cloudevents+json"


def measure(scale: float) -> Result:
    """One event per request, as NVSentinel's exporter sends them, less the CPU of as much time without events."""
    count, window = scaled(NODES, scale, least=MIN_NODES), scaled(WINDOW_SECONDS, scale, least=MIN_SECONDS)
    pace = EVENTS_PER_DAY / SECONDS_PER_DAY
    with tempfile.TemporaryDirectory() as folder, products.on_postgres(Path(folder)) as product:
        product.names = ["web", "worker", "beat", "watch"]
        product.set_up(nodes=count + count // NODES_PER_SPARE + 4, agents=False, simulator=["--no-workloads"])
        product.manage("source", "add", SOURCE, "--kind", "cloudevents", "--cluster", "sim")
        token = product.manage("token", "create", "--kind", "source", "--source", SOURCE, "--cluster", "sim").strip()
        product.wait(lambda: len(scene.working_nodes(product)) >= count, "the nodes to be listed", seconds=120)
        events = _events(scene.working_nodes(product)[:count])
        for _ in range(math.ceil(count * 4 / PER_REQUEST)):  # each node has warned once
            _post(product, token, list(itertools.islice(events, PER_REQUEST)), content_type=BATCH)
        scene.settled(product, seconds=120)
        time.sleep(SETTLE_SECONDS * scale)
        quiet = costs_within(window, lambda: costs(product))
        before = costs(product)
        sent, accepted = _send(product, token, events, seconds=window, pace=pace)
        used = {name: seconds - before[name] - quiet[name] for name, seconds in costs(product).items()}
        [(incidents,)] = scene.ask(product, "SELECT count(*) FROM incidents_incident WHERE severity = 'fatal'")
    return Result(
        name="Routine health events",
        command="make bench ARGS=routine-events",
        conditions=f"{EVENTS_PER_DAY:,} CloudEvents a day of {count} nodes, one in a request, for {window:.0f} s: "
        "passes of checks, repeated warnings, events with STORE_ONLY, and one fatal fault in "
        f"{FAULT_EVERY} events, without a rule. CPU of each process as a share of one core, less what it "
        "used in as much time without events.",
        rows=[
            *((f"{name}", f"{seconds / window:.2%}", "") for name, seconds in used.items()),
            ("all processes", f"{sum(used.values()) / window:.2%}", "≤ 1 %"),
            ("all processes, per event", f"{sum(used.values()) / sent * 1000:.1f} ms", ""),
            ("events accepted", f"{accepted:,}", f"{sent:,}"),
            ("incidents of fatal faults", f"{incidents:,}", ""),
        ],
    )


def _events(nodes: list[str]) -> Iterator[Event]:
    for number in itertools.count():
        fault = number % FAULT_EVERY == FAULT_EVERY - 1
        node, passed = nodes[number // 4 % len(nodes)], not fault and number % 2 == 0
        event = health_event(f"event-{number}", node, 0, at=datetime.now(UTC), healthy=passed)
        health = event["data"]["healthEvent"]
        if number % 4 == 1 and not fault:
            health |= {"checkName": "GpuThermalWatch", "isFatal": False, "errorCode": ["DCGM_FR_CLOCKS_EVENT_THERMAL"]}
        if number % 4 == 3 and not fault:
            health["processingStrategy"] = "STORE_ONLY"
        yield event


def _send(
    product: products.Product, token: str, events: Iterator[Event], *, seconds: float, pace: float
) -> tuple[int, int]:
    """Sends events at ``pace`` per second; returns how many, and how many the portal accepted."""
    began, count, accepted = time.monotonic(), round(seconds * pace), 0
    for number in range(count):
        time.sleep(max(0.0, number / pace - (time.monotonic() - began)))
        accepted += _post(product, token, next(events), content_type=STRUCTURED)
    return count, accepted


def _post(product: products.Product, token: str, body: Event | list[Event], *, content_type: str) -> int:
    """Sends one request; returns how many events were accepted."""
    url, headers = f"{product.url}/api/v1/sources/{SOURCE}/events", {"Content-Type": content_type}
    status, answer = products.call("POST", url, json.dumps(body).encode(), token=token, headers=headers)
    if status != 202:
        raise RuntimeError(f"{status} {answer}")
    return int(answer["accepted"])
