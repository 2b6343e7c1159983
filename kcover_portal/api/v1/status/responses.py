"""The streamed response of a check run: each node as it finishes, then a summary.

If the client disconnects, the response ends but the run continues.
"""

import json
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from django.utils import timezone

from kcover import reasons
from kcover.checks import autopilot_text
from kcover.faults.fault import Check
from kcover_portal.checks import services as check_runs
from kcover_portal.checks.models import CheckRun, CheckTarget

POLL_SECONDS = 0.5  # between polls of the rows
KEEPALIVE_SECONDS = 30.0  # without output; then an empty line keeps the connection alive
COMMIT_DELAY = timedelta(seconds=10)  # by how much results may be committed out of order
MAX_LISTENERS = 4  # concurrent responses of a process, because each occupies a thread

pause = time.sleep
clock = time.monotonic

_room = threading.BoundedSemaphore(MAX_LISTENERS)


class ListenersFull(Exception):
    """All MAX_LISTENERS places of this process are taken."""


class ListenerSlot:
    """One of the MAX_LISTENERS places, until it is given back. Raises ListenersFull."""

    def __init__(self) -> None:
        if not _room.acquire(blocking=False):
            raise ListenersFull
        self._held = True

    def give_back(self) -> None:
        if self._held:
            self._held = False
            _room.release()


def node_json(target: CheckTarget) -> dict[str, Any]:
    """One node of a run."""
    return {
        "node": target.node.name,
        "address": target.node.address,
        "state": target.state,
        "status": target.statuses,
        "checks": target.results,
        "note": reasons.text(target.note),
        "requested_at": _stamp(target.requested_at),
        "finished_at": _stamp(target.finished_at),
    }


def run_json(run: CheckRun) -> dict[str, Any]:
    """A run without its nodes."""
    return {
        "run": run.pk,
        "cluster": run.cluster.name,
        "state": run.state,
        "checks": run.checks,
        "r": run.level,
        "batch": run.batch,
        "ring": _ring_json(run),
        "total": run.total,
        "requested_by": run.requested_by,
        "requested_at": _stamp(run.requested_at),
        "finished_at": _stamp(run.finished_at),
    }


def _ring_json(run: CheckRun) -> dict[str, Any] | None:
    """Returns iperf's ring: its traffic and the step of the current batch; 0 before and after it."""
    if not run.ring:
        return None
    ring = {"plane": "mgmt", "streams": 1, "step": 0, **run.ring}
    traffic = {"plane": ring["plane"], "pclients": ring["clients"], "clientsperiface": ring["streams"]}
    progress = {"startport": ring["port"], "step": ring["step"], "steps": check_runs.ring_step_count(run)}
    return {"workload": "ring", **traffic, **progress}


def _stamp(at: datetime | None) -> str | None:
    return at.isoformat().replace("+00:00", "Z") if at else None


@dataclass(slots=True, kw_only=True)
class StatusResponse:
    """A streamed response. ``place`` is given back at the end; None if the caller does not wait."""

    run: CheckRun
    wait: float
    place: ListenerSlot | None
    as_json: bool
    url_of: Callable[[str], str]  # URL of the same checks on one node
    page: str  # URL of the run
    heading: str  # first line of the text
    _reported: dict[str, list[str]] = field(default_factory=dict)
    _rates: dict[str, dict[str, dict[str, float]]] = field(default_factory=dict)  # by interface, sender and receiver

    def close(self) -> None:
        """Called by the server at the end of the response, also if the client disconnected."""
        if self.place is not None:
            self.place.give_back()

    def __iter__(self) -> Iterator[bytes]:
        """Yields the response as UTF-8."""
        pieces = self._json() if self.as_json else self._text()
        return (piece.encode() for piece in pieces)

    def _text(self) -> Iterator[str]:
        run = self.run
        yield self.heading
        yield f"Run {run.pk} in cluster {run.cluster.name}: {', '.join(run.checks)}\n{self.page}\n\n"
        for target in self._targets():
            if target is None:
                yield "\n"
                continue
            results = check_runs.results_of(target)
            self._keep_rates(target.node.name, results)
            if len(self._reported) > 1:
                yield "\n"  # Autopilot has two empty lines between nodes
            yield autopilot_text.node_text(
                target.node.name,
                address=target.node.address,
                url=self.url_of(target.node.name),
                results=results,
                status=target.statuses,
                note=reasons.text(target.note),
            )
        if run.state == CheckRun.State.RUNNING:
            yield f"{len(self._reported)} of {run.total} nodes have answered; the run continues: {self.page}\n\n"
        for interface, rates in sorted(self._rates.items()):
            yield autopilot_text.throughput_text(rates, interface=interface)
        yield autopilot_text.summary_text(self._reported, runtime=_runtime(run))

    def _keep_rates(self, sender: str, results: Iterable[Check]) -> None:
        """Keeps the rates of iperf's ring. The device is the receiver, and on the data plane its interface."""
        for check in results:
            if check.name == "iperf" and check.value is not None:
                receiver, _, interface = check.device.partition(" ")
                self._rates.setdefault(interface, {}).setdefault(sender, {})[receiver] = check.value

    def _json(self) -> Iterator[str]:
        nodes = []
        for target in self._targets():
            if target is None:
                yield "\n"  # JSON may begin with it
            else:
                nodes.append(node_json(target))
        runtime = round(_runtime(self.run).total_seconds(), 1)
        yield json.dumps({**run_json(self.run), "nodes": nodes, "summary": self._reported, "runtime": runtime}) + "\n"

    def _targets(self) -> Iterator[CheckTarget | None]:
        """Yields the run's nodes as they finish, and None after a long silence. Ends with the run or the wait."""
        deadline = clock() + self.wait
        last_output = clock()
        since: datetime | None = None
        while True:
            self.run.refresh_from_db(fields=("state", "finished_at"))
            over = self.run.state != CheckRun.State.RUNNING or clock() >= deadline
            for target in self._ended(since if not over else None):
                self._reported[target.node.name] = target.statuses
                last_output = clock()
                since = max(since or target.finished_at, target.finished_at) if target.finished_at else since
                yield target
            if over:
                return
            if clock() - last_output > KEEPALIVE_SECONDS:
                last_output = clock()
                yield None
            pause(POLL_SECONDS)

    def _ended(self, since: datetime | None) -> list[CheckTarget]:
        """Returns finished nodes that are not reported yet; ``since`` is when the last reported one finished."""
        rows = self.run.targets.exclude(finished_at=None).select_related("node").order_by("finished_at", "place")
        if since is not None:
            rows = rows.filter(finished_at__gte=since - COMMIT_DELAY)
        return [target for target in rows if target.node.name not in self._reported]


def _runtime(run: CheckRun) -> timedelta:
    return (run.finished_at or timezone.now()) - run.requested_at
