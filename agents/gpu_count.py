"""How many GPUs a node must have: a GPU that the next boot does not enumerate is missed only by who remembers it."""

import json
import logging
from collections.abc import Callable

from agents.store import Store

log = logging.getLogger(__name__)

FILE = "gpus.json"


class GpuCount:
    """As the settings say, else the most that there ever were, over restarts and reboots.

    What the settings say is remembered, too: they may be taken back after a GPU was removed for good.
    """

    def __init__(self, store: Store, *, given: int | None, bus: Callable[[], int] = lambda: 0) -> None:
        """``bus``: how many there are whatever their driver says, 0 where only the vendor's tool can tell."""
        self._store, self._given, self._bus = store, given, bus
        self._known = self._read()

    def __call__(self, listed: int = 0) -> int:
        """How many there must be now, of which the vendor's tool lists so many; 0: it is no GPU node."""
        wanted = max(self._known, self._bus(), listed) if self._given is None else self._given
        if wanted != self._known:
            self._known = wanted
            try:
                self._store.write(FILE, json.dumps({"most": wanted}).encode())
            except OSError as error:
                log.warning("how many GPUs there are is remembered until the agent ends only: %s", error)
        return wanted

    def _read(self) -> int:
        try:
            most = json.loads(self._store.read(FILE) or b'{"most": 0}')["most"]
        except (OSError, ValueError, KeyError, TypeError) as error:
            log.warning("how many GPUs there were is not known: %s", error)
            return 0
        return most if isinstance(most, int) else 0
