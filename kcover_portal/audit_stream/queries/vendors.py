"""The sinks that receive only the repairs of some vendors."""

import dataclasses
from collections.abc import Mapping
from typing import Any, Final

from kcover.repairs import ticket_text
from kcover_portal.audit_stream.models import Sink
from kcover_portal.audit_stream.queries.topics import TICKETS, Record

VENDORS: Final = "vendors"  # the option; its value: names with semicolons between them
SEPARATOR: Final = ";"
FORMER: Final = "former_vendor"  # in a record: from whom the act took the repair
# What belongs to the new vendor of a repair, or to the people who gave it away.
NOT_FOR_THE_FORMER: Final[Mapping[str, Any]] = {
    **dict.fromkeys(("vendor", "queue", "assignee", "ticket", "reason"), ""),
    "due": None,
    "event": ticket_text.WITHDRAW,
}


def names(text: str) -> list[str]:
    """The names in the option's value, in their order."""
    return [name.strip() for name in text.split(SEPARATOR) if name.strip()]


def limited(sink: Sink, record: Record) -> Record | None:
    """The record as the sink may receive it; None for one about a repair of another vendor.

    The vendor that loses a repair learns it by one last record, without the details of the new vendor.
    """
    known = names(str(sink.options.get(VENDORS, "")))
    if record.topic != TICKETS or not known:
        return record
    former = record.document.get(FORMER, "")
    if record.document["vendor"] in known:
        return _changed(record, {FORMER: former if former in known else ""})
    return _changed(record, NOT_FOR_THE_FORMER) if former in known else None


def may_change(sink: Sink, vendor: str) -> bool:
    """Returns whether what arrives for the sink may change a repair of this vendor.

    A webhook speaks for one vendor. Jira and mails speak for all whose repairs the sink receives.
    """
    if sink.kind in Sink.WEBHOOKS:
        return vendor == str(sink.options.get("vendor", ""))
    known = names(str(sink.options.get(VENDORS, "")))
    return not known or vendor in known


def _changed(record: Record, columns: Mapping[str, Any]) -> Record:
    return dataclasses.replace(record, document={**record.document, **columns})
