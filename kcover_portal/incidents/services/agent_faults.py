"""The own times of faults that waited at an agent: while the portal was not reached, others may have told of them."""

from collections.abc import Sequence
from dataclasses import fields
from datetime import timedelta

from kcover.faults import fault
from kcover.values import moments
from kcover_portal.fleet.services.agent_reports import IncomingReport
from kcover_portal.incidents.services.timed_fault import TimedFault

KERNEL_LOG = "kmsg"
WAITED = timedelta(seconds=1)  # what is sent sooner is new
NAMES = [one.name for one in fields(fault.Fault)]


def timed(incoming: IncomingReport) -> Sequence[fault.Fault]:
    """The faults of a report, those that waited with their own time.

    Lines and report have the time of the same clock, so that an error of the clock changes nothing. Only lines of the
    kernel's ring buffer count: those of a file may be in another time zone. So do no repeated lines: they span a time.
    """
    return [_timed(one, incoming) for one in incoming.faults]


def _timed(one: fault.Fault, incoming: IncomingReport) -> fault.Fault:
    if one.source != KERNEL_LOG or one.seen_at is None or one.records or one.count > 1:
        return one
    waited = incoming.sent_at - one.seen_at
    if waited <= WAITED:
        return one
    return TimedFault(
        **{name: getattr(one, name) for name in NAMES}, earliest=moments.before(incoming.received_at, waited)
    )
