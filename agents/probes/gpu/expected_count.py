"""How many GPUs a node must have. If a GPU is gone after a reboot, only a comparison with earlier boots shows it."""

import json
import logging
from collections.abc import Callable

from agents.host.store import Store

log = logging.getLogger(__name__)

COUNT_FILE = "gpus.json"


class ExpectedGpuCount:
    """The configured number, else the largest number of GPUs ever seen, across restarts and reboots.

    A configured number is remembered too, because the setting may be removed after a GPU was removed for good.
    """

    def __init__(self, store: Store, *, configured: int | None, count_on_bus: Callable[[], int] = lambda: 0) -> None:
        """``count_on_bus``: how many GPUs are on the bus, whatever their driver says; 0 if only the vendor's tool can
        tell.
        """
        self._store, self._configured, self._count_on_bus = store, configured, count_on_bus
        self._remembered = self._read()

    def __call__(self, listed: int = 0) -> int:
        """The number of GPUs that must be present. ``listed``: the count of the vendor's tool. 0: not a GPU node."""
        wanted = max(self._remembered, self._count_on_bus(), listed) if self._configured is None else self._configured
        if wanted != self._remembered:
            self._remembered = wanted
            try:
                self._store.write(COUNT_FILE, json.dumps({"most": wanted}).encode())
            except OSError as error:
                log.warning("could not store the number of GPUs; it is remembered until the agent ends: %s", error)
        return wanted

    def _read(self) -> int:
        try:
            most = json.loads(self._store.read(COUNT_FILE) or b'{"most": 0}')["most"]
        except (OSError, ValueError, KeyError, TypeError) as error:
            log.warning("could not read the stored number of GPUs: %s", error)
            return 0
        return most if isinstance(most, int) else 0
