"""Is the kernel log readable? A probe that sees nothing must not look like a node without faults."""

from datetime import datetime, timedelta

from kcover.faults.fault import Check

CHECK_NAME = "kernel_log"
GAP_SHOWN_FOR = timedelta(minutes=10)  # a gap stays visible this long
MIN_INTERVAL = timedelta(minutes=1)  # between two warnings


class LogHealth:
    """Turns the result of each read into a check result, if there is news.

    ``pass``; ``warn`` with the number of records lost before they were read, or with the reason why some may be
    missing; ``error`` if the log cannot be read at all.
    """

    def __init__(self) -> None:
        self._status = ""
        self._lost = 0
        self._gap = ""
        self._reported_at: datetime | None = None

    def update(self, *, now: datetime, lost: int = 0, gap: str = "", error: str = "") -> Check | None:
        """The check result after a read that lost records, found a ``gap`` or failed with ``error``. None if nothing
        changed."""
        self._lost += lost
        self._gap = gap or self._gap
        status = "error" if error else "warn" if self._lost or self._gap else "pass"
        if status == self._status and (status != "warn" or self._within(MIN_INTERVAL, now)):
            return None
        if status == "pass" and self._status == "warn" and self._within(GAP_SHOWN_FOR, now):
            return None
        dropped = f"{self._lost} records were lost before they could be read" if self._lost else ""
        message = error or "; ".join(filter(None, (dropped, self._gap)))
        check = Check(name=CHECK_NAME, status=status, value=float(self._lost), unit="records", message=message)
        self._status, self._reported_at = status, now
        if not error:
            self._lost, self._gap = 0, ""
        return check

    def _within(self, span: timedelta, now: datetime) -> bool:
        return self._reported_at is not None and timedelta() <= now - self._reported_at < span
