"""The stage of a node on its way out of service and back: one vocabulary for the state label and for REST."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

STANDBY_LABEL: Final = "kcover.io/standby"  # marks a spare; set by operators
STATE_LABEL: Final = "kcover.io/state"  # set by the portal to one of LABELLED


class Stage(StrEnum):
    """The stages. A node is in the first two without a state label."""

    HEALTHY = "healthy"  # the portal does nothing with it
    STANDBY = "standby"
    QUARANTINED = "quarantined"
    DRAINING = "draining"
    REBOOTING = "rebooting"
    VERIFYING = "verifying"
    VALIDATING = "validating"
    REPAIR = "repair"  # another system or the repair desk has it
    PROBATION = "probation"
    BURN_IN = "burn-in"  # a new machine that is validated before its first work
    RESERVED = "reserved"  # a standby that is about to take a node's place


LABELLED: Final = frozenset(Stage) - {Stage.HEALTHY, Stage.STANDBY}


def of(labels: Mapping[str, str]) -> Stage:
    """The stage of a node with these labels. A state label with another value is not the portal's."""
    named = labels.get(STATE_LABEL)
    if named in LABELLED:
        return Stage(named)
    return Stage.STANDBY if labels.get(STANDBY_LABEL) == "true" else Stage.HEALTHY
