"""Query GPUs one by one, each under its own deadline, so that one that hangs does not hide the others.

A thread in a driver that hangs cannot be ended. There is at most one for each GPU and kind of query. A GPU that still
hangs is not queried again until it returns, and takes no time of the next caller.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from agents.host import deadline
from kcover.faults.fault import Gpu

T = TypeVar("T")

GPU_TIMEOUT_SECONDS = 5.0  # for one GPU; eight that answer take tens of ms


@dataclass(slots=True)
class GpuQuery:
    """A query of one GPU.

    ``call``: the NVML call in progress. ``gpu``: what is known of the GPU so far. ``started_at`` is in the time of
    ``time.monotonic``.
    """

    started_at: float
    call: str = ""
    gpu: Gpu | None = None


class GpuHangs(Exception):
    """A GPU that has not answered yet. ``seconds``: since it was queried."""

    def __init__(self, query: GpuQuery) -> None:
        self.seconds = time.monotonic() - query.started_at
        self.gpu = query.gpu
        super().__init__(f"{query.call or 'the driver'} has not returned for {self.seconds:.0f} s")


class PerGpuDeadline:
    """The running queries of one kind (``what`` names it) by the index of the GPU. Create one object for each process,
    as the library exists once."""

    def __init__(self, what: str, *, timeout: float = GPU_TIMEOUT_SECONDS) -> None:
        self.what, self.timeout = what, timeout
        self._running: dict[int, GpuQuery] = {}

    def run(self, index: int, answer: Callable[[GpuQuery], T]) -> T:
        """Return or raise the result of ``answer``, which notes its progress in the query.

        Raises GpuHangs if the GPU has not answered within ``timeout`` seconds; at once if an earlier query is that old.
        """

        def answer_with_query() -> T:
            query = self._running[index] = GpuQuery(time.monotonic())
            try:
                return answer(query)
            finally:
                self._running.pop(index, None)

        try:
            return deadline.within(self.timeout, answer_with_query, what=f"{self.what} of GPU {index}")
        except deadline.DeadlineExceeded as late:
            query = self._running.get(index) or GpuQuery(time.monotonic() - self.timeout)
            raise GpuHangs(query) from late
