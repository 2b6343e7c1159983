"""A stand-in for Prometheus with DCGM's exporter: ``query=DCGM_FI_DEV_XID_ERRORS`` gives the last Xid of each GPU.

The query may select by the job, and may count the series of each job (``topk(5, count by (job) (...))``).
"""

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

from aiohttp import web

from kcover.faults import xid

METRIC: Final = "DCGM_FI_DEV_XID_ERRORS"
JOB: Final = "nvidia-dcgm-exporter"  # as the GPU operator names it
_SERIES: Final = rf"""{METRIC}(\{{job(?P<how>=~|!~)"(?P<jobs>[^"]*)"\}})?"""
_QUERY: Final = re.compile(rf"(?P<count>topk\((?P<most>[0-9]+), count by \(job\) \()?{_SERIES}(?(count)\)\))")


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
                {
                    "__name__": METRIC,
                    "job": JOB,
                    "Hostname": node,
                    "gpu": str(index),
                    "UUID": uuid,
                    "pci_bus_id": f"0000{pci}.0",
                }
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
        """``GET /api/v1/query``."""
        asked = _QUERY.fullmatch(request.query.get("query", ""))
        if asked is None:
            body = {"status": "error", "errorType": "bad_data", "error": f"only {METRIC} is known"}
            return web.json_response(body, status=400)
        at = float(request.query.get("time") or datetime.now(UTC).timestamp())
        jobs = re.compile(asked["jobs"] if asked["how"] else ".*")
        is_wanted = asked["how"] != "!~"
        found = [one for one in self.series.values() if bool(jobs.fullmatch(one.labels["job"])) == is_wanted]
        if asked["count"]:
            counts = Counter(one.labels["job"] for one in found).most_common(int(asked["most"]))
            result = [{"metric": {"job": job}, "value": [at, str(count)]} for job, count in counts]
        else:
            result = [{"metric": one.labels, "value": [at, str(one.value_at(at))]} for one in found]
        return web.json_response({"status": "success", "data": {"resultType": "vector", "result": result}})
