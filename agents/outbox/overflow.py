"""Faults that arrive while the spool is full, from sources that cannot be paused: merged and counted until there is
room."""

import logging
import threading
from collections.abc import Iterable
from dataclasses import replace

from kcover.faults.fault import Fault
from kcover.wire.fields import MAX_COUNT

log = logging.getLogger(__name__)

MAX_DISTINCT_FAULTS = 1000  # more distinct faults say nothing new about a node


class Overflow:
    """Merges equal faults and counts them. In memory only, because the disk has no room. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._faults: dict[tuple[object, ...], Fault] = {}

    def __len__(self) -> int:
        return len(self._faults)

    def add(self, faults: Iterable[Fault]) -> None:
        """Hold these faults. Of equal ones, the first is kept."""
        with self._lock:
            for fault in faults:
                key = fault.kind, fault.code, fault.pci, fault.gpu_uuid, fault.source, fault.drill
                known = self._faults.get(key)
                if known is not None:
                    self._faults[key] = replace(known, count=min(known.count + fault.count, MAX_COUNT))
                elif len(self._faults) < MAX_DISTINCT_FAULTS:
                    self._faults[key] = fault
                else:
                    log.error("spool and overflow are full: fault %s %s is dropped", fault.kind, fault.code)

    def take(self) -> list[Fault]:
        """Return the faults held, in order of arrival, and forget them."""
        with self._lock:
            known, self._faults = list(self._faults.values()), {}
        return known
