"""The failure of a sender."""

from kcover import reasons


class DeliveryError(reasons.ExplainedError):
    """The receiver does not have all records. ``wait``: the seconds that it asks for before the next attempt.

    ``lasting``: it refuses this record for good, and may accept others.
    """

    def __init__(self, reason: reasons.Reason, *, wait: float = 0, lasting: bool = False) -> None:
        super().__init__(reason)
        self.wait = wait
        self.lasting = lasting
