"""A stand-in for Prometheus with DCGM's exporter: ``query=DCGM_FI_DEV_XID_ERRORS`` gives the last Xid of each GPU."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

from aiohttp import web

from kcover.faults import xid

METRIC: Final = "DCGM_FI_DEV_XID_ERRORS"


@dataclass(slots=True)
class Series:
    """One GPU: its labels, and its values with the times from which they held."""

    labels: dict[str, str]
    values: list[tuple[float, int]] = field(default_factory=lambda: [(0.0, 0)])

    def value_at(self, at: float) -> int:
        """The value that held then."""
        return next((value for since, value in reversed(self.values) if since <= at), 0)


class Prometheus:
    """The series of the GPUs of some nodes."""

    def __init__(self, gpus: Iterable[tuple[str, int, str, str]]) -> None:
        """``gpus``: node, index, slot and UUID of each."""
        self.series = {
            (node, xid.slot(pci) or pci): Series(
                {"__name__": METRIC, "Hostname": node, "gpu": str(index), "UUID": uuid, "pci_bus_id": f"0000{pci}.0"}
            )
            for node, index, pci, uuid in gpus
        }

    def add_kernel_line(self, node: str, line: str, at: datetime) -> None:
        """Sets the value of the GPU that an Xid names."""
        found = xid.parse_line(line)
        if found is not None and found.kind == "xid":
            series = self.series.get((node, xid.slot(found.pci) or ""))
            if series is not None:
                series.values.append((at.timestamp(), found.code))

    def restart(self, node: str, at: datetime) -> None:
        """The exporter of a node starts again: its values are 0."""
        for (name, _), series in self.series.items():
            if name == node:
                series.values.append((at.timestamp(), 0))

    async def query(self, request: web.Request) -> web.Response:
        """``GET /api/v1/query``. Only the name of the metric is a valid query."""
        if request.query.get("query") != METRIC:
            body = {"status": "error", "errorType": "bad_data", "error": f"only {METRIC} is known"}
            return web.json_response(body, status=400)
        at = float(request.query.get("time") or datetime.now(UTC).timestamp())
        found = [{"metric": one.labels, "value": [at, str(one.value_at(at))]} for one in self.series.values()]
        return web.json_response({"status": "success", "data": {"resultType": "vector", "result": found}})
