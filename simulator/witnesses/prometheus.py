"""A stand-in for Prometheus with DCGM's exporter: ``query=DCGM_FI_DEV_XID_ERRORS`` gives the last Xid of each GPU.

The query may select by the job, and may count the series of each job (``topk(5, count by (job) (...))``).

``query=training_step_seconds`` gives the time of a step of each pod of a training job. The slowest node sets the pace
of its whole job, so ``training_compute_seconds``, the part of a step before the ranks meet, tells the nodes apart.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

from aiohttp import web

from kcover.faults import xid

METRIC: Final = "DCGM_FI_DEV_XID_ERRORS"
JOB: Final = "nvidia-dcgm-exporter"  # as the GPU operator names it
_SERIES: Final = rf"""{METRIC}(\{{job(?P<how>=~|!~)"(?P<jobs>[^"]*)"\}})?"""
_QUERY: Final = re.compile(rf"(?P<count>topk\((?P<most>[0-9]+), count by \(job\) \()?{_SERIES}(?(count)\)\))")
STEP, COMPUTE = "training_step_seconds", "training_compute_seconds"


@dataclass(frozen=True, slots=True)
class Rank:
    """A pod of a training job that runs. ``speed``: of its node, 1.0 is as it should be."""

    namespace: str
    job: str
    pod: str
    node: str
    speed: float

    @property
    def seconds(self) -> float:
        """What its part of a step takes."""
        return 1 / max(self.speed, 0.01)


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

    def __init__(
        self, gpus: Iterable[tuple[str, int, str, str]], *, ranks: Callable[[], Iterable[Rank]] = tuple
    ) -> None:
        """``gpus``: node, index, slot and UUID of each. ``ranks``: of the training jobs, as they run now."""
        self.ranks = ranks
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
        asked = request.query.get("query", "")
        at = float(request.query.get("time") or datetime.now(UTC).timestamp())
        if asked in (STEP, COMPUTE):
            result = self._steps(asked, at)
        elif (known := _QUERY.fullmatch(asked)) is not None:
            result = self._xids(known, at)
        else:
            error = f"only {METRIC}, {STEP} and {COMPUTE} are known"
            return web.json_response({"status": "error", "errorType": "bad_data", "error": error}, status=400)
        return web.json_response({"status": "success", "data": {"resultType": "vector", "result": result}})

    def _xids(self, asked: re.Match[str], at: float) -> list[dict[str, object]]:
        jobs = re.compile(asked["jobs"] if asked["how"] else ".*")
        is_wanted = asked["how"] != "!~"
        found = [one for one in self.series.values() if bool(jobs.fullmatch(one.labels["job"])) == is_wanted]
        if asked["count"]:
            counts = Counter(one.labels["job"] for one in found).most_common(int(asked["most"]))
            return [{"metric": {"job": job}, "value": [at, str(count)]} for job, count in counts]
        return [{"metric": one.labels, "value": [at, str(one.value_at(at))]} for one in found]

    def _steps(self, asked: str, at: float) -> list[dict[str, object]]:
        ranks = list(self.ranks())
        slowest: dict[tuple[str, str], float] = {}
        for rank in ranks:
            job = rank.namespace, rank.job
            slowest[job] = max(slowest.get(job, 0.0), rank.seconds)
        return [
            {
                "metric": {"__name__": asked, "namespace": rank.namespace, "pod": rank.pod, "training_job": rank.job},
                "value": [at, str(rank.seconds if asked == COMPUTE else slowest[rank.namespace, rank.job])],
            }
            for rank in ranks
        ]
