"""A stand-in for NVSentinel's exporter: it sends each Xid, and its end, as a CloudEvent to one address.

Events wait in memory while the receiver does not answer. Each has an id of its own, so that it may be sent twice.
"""

import asyncio
import logging
import uuid
from collections import deque
from collections.abc import Callable, Collection
from datetime import UTC, datetime
from typing import Any, Final

import aiohttp

from kcover.faults import catalog, xid

log = logging.getLogger(__name__)

CHECK: Final = "SysLogsXIDError"
CONTENT_TYPE: Final = "application/cloudevents-batch+json"
MAX_WAITING_EVENTS: Final = 10_000
BATCH_EVENTS: Final = 200
PAUSE, LONGEST_PAUSE = 0.5, 10.0  # seconds
RESTART_BM: Final = 24

Key = tuple[str, int, str]  # node, Xid, slot


class Exporter:
    """``active``: the Xids that are present, by node, code and slot. ``send_to`` begins to send."""

    def __init__(self, *, cluster: str, active: Callable[[], Collection[Key]]) -> None:
        self.sent = 0
        self._source = f"nvsentinel://{cluster}/healthevents"
        self._active = active
        self._open: set[Key] = set()
        self._waiting: deque[dict[str, Any]] = deque(maxlen=MAX_WAITING_EVENTS)
        self._url = self._token = ""

    def send_to(self, url: str, token: str) -> None:
        """Sets the receiver."""
        self._url, self._token = url, token

    def add_kernel_line(self, node: str, line: str, at: datetime) -> None:
        """Queues the event of an Xid."""
        found = xid.parse_line(line)
        if found is not None and found.kind == "xid" and "Xid" in line:
            key = node, found.code, xid.slot(found.pci) or ""
            self._open.add(key)
            self._waiting.append(self._event(key, healthy=False, message=line, at=at))

    def look(self, at: datetime) -> None:
        """Queues the end of each Xid that is not present any more."""
        for key in self._open - set(self._active()):
            self._open.discard(key)
            self._waiting.append(self._event(key, healthy=True, message="No Health Failures", at=at))

    async def run(self) -> None:
        """Sends until it is cancelled."""
        pause = PAUSE
        async with aiohttp.ClientSession() as session:
            while True:
                await asyncio.sleep(pause)
                self.look(datetime.now(UTC))
                if self._url and self._waiting:
                    pause = PAUSE if await self._send(session) else min(2 * pause, LONGEST_PAUSE)

    async def _send(self, session: aiohttp.ClientSession) -> bool:
        some = [self._waiting.popleft() for _ in range(min(BATCH_EVENTS, len(self._waiting)))]
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": CONTENT_TYPE}
        try:
            async with session.post(self._url, json=some, headers=headers) as answer:
                if answer.status == 202:
                    self.sent += len(some)
                    return True
                log.warning("the receiver of health events answered %d: %s", answer.status, await answer.text())
        except (aiohttp.ClientError, OSError) as error:
            log.warning("the receiver of health events does not answer: %s", error)
        self._waiting.extendleft(reversed(some))
        return False

    def _event(self, key: Key, *, healthy: bool, message: str, at: datetime) -> dict[str, Any]:
        node, code, slot = key
        stamp = at.astimezone(UTC).isoformat().replace("+00:00", "Z")
        health = {
            "version": "v1",
            "agent": "syslog-health-monitor",
            "componentClass": "GPU",
            "checkName": CHECK,
            "isFatal": not healthy and catalog.severity("xid", code) == "fatal",
            "isHealthy": healthy,
            "message": message,
            "recommendedAction": 0 if healthy else RESTART_BM,
            "errorCode": [] if healthy else [str(code)],
            "entitiesImpacted": [{"entityType": "PCI", "entityValue": slot}] if slot else [],
            "generatedTimestamp": stamp,
            "nodeName": node,
        }
        return {
            "specversion": "1.0",
            "type": "com.nvidia.nvsentinel.health.v1",
            "source": self._source,
            "id": str(uuid.uuid4()),
            "time": stamp,
            "data": {"metadata": {}, "healthEvent": health},
        }
