"""The failure of a sender."""

from kcover import reasons


class DeliveryError(reasons.ExplainedError):
    """The receiver does not have all records. ``wait``: the seconds that it asks for before the next attempt."""

    def __init__(self, reason: reasons.Reason, *, wait: float = 0) -> None:
        super().__init__(reason)
        self.wait = wait
