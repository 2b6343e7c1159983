"""A record of a repair as text for people in other systems: Jira issues and mails. In English, as the records are."""

from collections.abc import Mapping
from typing import Any, Final

WITHDRAW: Final = "withdraw"  # the event that tells a vendor that it has lost the repair
MAX_LINE: Final = 200  # characters of a summary
MAX_VALUE: Final = 1000  # characters of one fact
MAX_BECAUSE: Final = 10  # reasons of the report


def one_line(text: str, *, most: int = MAX_VALUE) -> str:
    """The text without line breaks and control characters, at most so long."""
    line = " ".join("".join(char if char.isprintable() else " " for char in text).split())
    return line if len(line) <= most else line[: most - 1] + "…"


def summary(record: Mapping[str, Any]) -> str:
    """The subject: the repair, its node and its part. The same as long as none of these changes."""
    return one_line(f"Repair {record['repair']}: {record['machine']['node']} {_part(record)}", most=MAX_LINE)


def headline(record: Mapping[str, Any]) -> str:
    """One line: the event, the person or program that caused it, the new state and the reason."""
    if record["event"] == WITHDRAW:
        return one_line(f"Taken from this vendor by {record['actor']}.")
    state = str(record["state"]).replace("_", " ")
    said = f": {record['reason']}" if record["reason"] else "."
    return one_line(f"{_EVENTS[record['event']]} by {record['actor']}, now {state}{said}")


def has_ended(record: Mapping[str, Any]) -> bool:
    """True if the receiver has nothing left to do."""
    return record["event"] in ("close", WITHDRAW)


def facts(record: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The details that are known, each with its label."""
    machine = record["machine"]
    found = [
        ("State", record["state"]),
        ("Hardware id", record["hardware_id"]),
        ("Cluster", machine["cluster"]),
        ("Node", machine["node"]),
        ("Rack", machine["rack"]),
        ("Machine serial number", machine["serial"]),
        ("In service since", machine["handover_at"]),
        ("Part", _part(record)),
        ("Removed serial number", record["removed_serial"]),
        ("Action", record["action"]),
        ("Vendor", record["vendor"]),
        ("Queue", record["queue"]),
        ("Owner", record["assignee"]),
        ("Ticket", record["ticket"]),
        ("Due", record["due"]),
        *(("Because", reason) for reason in record["opened_because"][:MAX_BECAUSE]),
    ]
    return [(label, line) for label, value in found if (line := one_line(str(value or "")))]


def _part(record: Mapping[str, Any]) -> str:
    part = record["part"]
    return " ".join(value for value in (part["kind"], part["slot"], part["serial"]) if value)


_EVENTS: Final = {"open": "Reported", "update": "Changed", "close": "Closed"}
