"""What is wrong with the portal itself, for /readyz, /metrics and the page System."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from kcover import reasons
from kcover_portal.audit_stream import queries as audit_stream


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One problem. ``check``: the name of the check, stable."""

    check: str
    because: reasons.Reason


def problems(*, now: datetime) -> list[Problem]:
    """Everything that a person should repair; empty if all is well."""
    return [*_sinks(now=now)]


def _sinks(*, now: datetime) -> Iterator[Problem]:
    """Sinks of the audit stream that fail or are behind."""
    heads = audit_stream.Heads()
    for sink in audit_stream.sinks():
        why = audit_stream.trouble(sink, audit_stream.lag(sink, now=now, heads=heads))
        if why is not None:
            yield Problem(check=f"audit sink {sink.name}", because=why)
