"""Whether the kernel log itself can be followed: a probe that sees nothing must not look like a node without faults."""

from datetime import datetime, timedelta

from kcover.fault import Check

NAME = "kernel_log"
SETTLED = timedelta(minutes=10)  # a gap is shown this long
QUIET = timedelta(minutes=1)  # between two notes of the same kind


class LogHealth:
    """Turns what became of each look into a check result, when there is something new to say.

    ``pass``; ``warn`` with the number of records that the log dropped unread, or why some may be missing; ``error``
    where it cannot be read at all.
    """

    def __init__(self) -> None:
        self._status = ""
        self._lost = 0
        self._gap = ""
        self._said_at: datetime | None = None

    def judge(self, *, now: datetime, lost: int = 0, gap: str = "", error: str = "") -> Check | None:
        """What to tell after a look that lost records, found a ``gap`` or failed with ``error``; None: nothing new."""
        self._lost += lost
        self._gap = gap or self._gap
        status = "error" if error else "warn" if self._lost or self._gap else "pass"
        if status == self._status and (status != "warn" or self._within(QUIET, now)):
            return None
        if status == "pass" and self._status == "warn" and self._within(SETTLED, now):
            return None
        dropped = f"{self._lost} records were dropped before they could be read" if self._lost else ""
        message = error or "; ".join(filter(None, (dropped, self._gap)))
        check = Check(name=NAME, status=status, value=float(self._lost), unit="records", message=message)
        self._status, self._said_at = status, now
        if not error:
            self._lost, self._gap = 0, ""
        return check

    def _within(self, span: timedelta, now: datetime) -> bool:
        return self._said_at is not None and timedelta() <= now - self._said_at < span
