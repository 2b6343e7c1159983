"""The kernel's lines before a fault: they often say what broke first. Secrets and user data stay on the node."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

from agents.probes.log.kmsg import MAX_MESSAGE_CHARS, Record
from kcover.evidence.redaction import Redactor
from kcover.faults.fault import Fault

MAX_LINES: Final = 10  # before one fault
WITHIN: Final = timedelta(minutes=5)  # an older line hardly has to do with the fault
MAX_LINE_CHARACTERS: Final = 200
MAX_FAULTS: Final = 10  # of one read: those that follow in a burst have the same lines before them


def with_lines(found: Sequence[Fault], records: Sequence[Record]) -> list[Fault]:
    """The faults, the first ones of them with their ``lines_before``. ``records``: what was read, oldest first.

    A fault that was held back may be of an earlier read. Then it gets no lines: the first of its kind had them.
    """
    if not found:
        return []
    places: dict[tuple[int | None, str, datetime | None], int] = {}
    for index, record in enumerate(records):
        places.setdefault((record.sequence, record.text[:MAX_MESSAGE_CHARS], record.at), index)
    told = []
    for number, fault in enumerate(found):
        place = places.get((fault.sequence, fault.message, fault.seen_at), 0)
        told.append(replace(fault, lines_before=_lines(records, place)) if number < MAX_FAULTS and place else fault)
    return told


def _lines(records: Sequence[Record], place: int) -> str:
    """The last lines of the kernel before this place, one a line. What a program wrote is left out."""
    redactor, fault = Redactor(), records[place]
    before = [one for one in records[:place][-MAX_LINES:] if _is_shown(one, fault.at)]
    return "\n".join(_line(redactor, one) for one in before)


def _is_shown(record: Record, at: datetime) -> bool:
    """Returns whether the kernel itself wrote the record shortly before."""
    return record.facility == 0 and not record.is_foreign and at - record.at <= WITHIN


def _line(redactor: Redactor, record: Record) -> str:
    text = redactor.line(record.text.strip())[:MAX_LINE_CHARACTERS]
    # A plain line has the time of its log in its text; the record's is that of the read.
    return text if record.is_plain else f"{record.at:%H:%M:%S}.{record.at.microsecond // 1000:03d} {text}"
