"""The signals that ask a command to stop."""

import queue
import signal


class StopSignals:
    """Catches signals from its creation on. Only the main thread may create it."""

    def __init__(self, *numbers: signal.Signals) -> None:
        self._arrived: queue.SimpleQueue[int] = queue.SimpleQueue()  # unlike an Event's set(), safe in a handler
        for number in numbers:
            signal.signal(number, lambda number, _frame: self._arrived.put(number))

    def wait(self, *, seconds: float) -> bool:
        """Returns whether a signal has arrived.

        Wait repeatedly for a short time: a signal that arrives just before a wait begins does not end that wait.
        """
        try:
            self._arrived.get(timeout=seconds)
        except queue.Empty:
            return False
        return True
