"""What needs attention, by kind. Each app states its own part; the portal joins them."""

from enum import StrEnum


class Need(StrEnum):
    """The kinds, most urgent first: the order in lists and counts."""

    LEDGER = "ledger"  # the audit log differs from an anchor
    STORM = "storm"  # one symptom on many nodes
    RESCUE = "rescue"  # a rescue that was left to people
    APPROVAL = "approval"  # a rescue that waits for an answer
    INCIDENT = "incident"  # a fault that no rescue handles
    JOB = "job"  # an order about a training job that was left to people
    REPAIR = "repair"  # a repair that is overdue, or has no owner or no date
    PART = "part"  # a part that was taken back, left with faults, or is reported by two nodes
    WATCH = "watch"  # a cluster that the watch cannot read
    SOURCE = "source"  # a source of faults that fails


KINDS = tuple(kind.value for kind in Need)
