"""The times of maintenance windows that repeat, and the bounds of their rows."""

from typing import Final

from kcover import reasons
from kcover.values import recurrence
from kcover.values.recurrence import Recurrence, RecurrenceError, Span
from kcover_portal.lib.errors import FieldError

MAX_NAMES: Final = 50_000  # of nodes in all windows of a series, which are stored with each window


def spans(first: Span, repeats: Recurrence | None) -> list[Span]:
    """Returns the times of a window and its repetitions. Raises FieldError."""
    if repeats is None:
        return [first]
    try:
        return recurrence.spans(first, repeats)
    except RecurrenceError as error:
        raise FieldError(f"repeats.{error.field}", error.reason) from error


def check_size(nodes: int, windows: int) -> None:
    """Raises FieldError for a series whose rows would be too large."""
    if windows > 1 and nodes * windows > MAX_NAMES:
        refused = reasons.of("repeat_too_large", nodes=nodes, windows=windows, most=MAX_NAMES)
        raise FieldError("repeats.until", refused)
