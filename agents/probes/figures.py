"""The figures of GPUs as probes last found them, for one heartbeat in each quarter of an hour."""

import random
import threading
from datetime import UTC, datetime, timedelta

from agents.probes.finding import Observation
from kcover.nodes.gpu_figures import FIGURES, QUARTER, Figures

MAX_AGE = timedelta(minutes=5)  # a probe that hangs leaves older ones, which are not sent
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class GpuFigures:
    """The latest values. One thread notes them, another one sends them."""

    def __init__(self, node: str) -> None:
        """``node``: its name chooses when in a quarter it sends, because a fleet must not send at once."""
        offset = random.Random(node).uniform(0.1, 0.9)  # nosec B311
        self._begin = _EPOCH + QUARTER * offset
        self._lock = threading.Lock()
        self._latest: dict[tuple[str, str], tuple[float, datetime]] = {}  # by GPU and name
        self._sent: int | None = None

    def note(self, observation: Observation, now: datetime) -> None:
        """Keep the figures that a run of a probe found, unless it only repeats earlier ones."""
        if observation.repeated:
            return
        found = dict(observation.figures)
        for finding in observation.findings:
            check = finding.check
            if check.name in FIGURES and check.device and check.value is not None:
                found[check.device, check.name] = check.value
        with self._lock:
            self._latest |= {key: (value, now) for key, value in found.items()}

    def are_due(self, now: datetime) -> bool:
        """Return whether the portal has accepted none in this quarter."""
        return self._quarter(now) != self._sent

    def due(self, now: datetime) -> Figures:
        """The figures to send now, by GPU and name."""
        found: dict[str, dict[str, float]] = {}
        if self.are_due(now):
            with self._lock:
                self._latest = {key: one for key, one in self._latest.items() if abs(now - one[1]) <= MAX_AGE}
                for (gpu, name), (value, _at) in self._latest.items():
                    found.setdefault(gpu, {})[name] = value
        return found

    def accepted(self, at: datetime) -> None:
        """Note that the portal has the figures of the quarter of this time."""
        self._sent = self._quarter(at)

    def _quarter(self, now: datetime) -> int:
        return (now - self._begin) // QUARTER
