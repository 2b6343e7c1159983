"""Faults that come while the spool is full, from sources that nobody can stop reading: counted until there is room."""

import logging
import threading
from collections.abc import Iterable
from dataclasses import replace

from agents.probes.kmsg import MAX_COUNT
from kcover.fault import Fault

log = logging.getLogger(__name__)

MOST = 1000  # different faults; a node that has more has been told enough


class Overflow:
    """Equal faults become one with their count. In memory only: there is no room elsewhere. Safe to use from several
    threads."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._held: dict[tuple[object, ...], Fault] = {}

    def __len__(self) -> int:
        return len(self._held)

    def add(self, faults: Iterable[Fault]) -> None:
        """Hold these. The first of equal ones is the one that is shown."""
        with self._guard:
            for fault in faults:
                key = fault.kind, fault.code, fault.pci, fault.gpu_uuid, fault.source, fault.drill
                held = self._held.get(key)
                if held is not None:
                    self._held[key] = replace(held, count=min(held.count + fault.count, MAX_COUNT))
                elif len(self._held) < MOST:
                    self._held[key] = fault
                else:
                    log.error("spool: full, and so is the memory: %s %s is not told", fault.kind, fault.code)

    def take(self) -> list[Fault]:
        """What was held, in the order it came; nothing is held any more."""
        with self._guard:
            held, self._held = list(self._held.values()), {}
        return held
