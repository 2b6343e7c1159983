"""The boot to which a fault belongs: the one that ran when the fault happened, whenever it was reported.

A fault's time is an interval, because clocks differ and reporters look at intervals. If the interval reaches before the
start of a boot, the fault is evidence of the boot before: a second reboot for the old fault costs more than a wait.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True)
class Boot:
    """One boot of a node. ``since``: it surely ran at this time, by the portal's clock; None: it began long ago.

    ``after``: the boot before surely ran at this time, long before ``since``, as nobody looked; None: somebody did.
    """

    id: str
    since: datetime | None = None
    after: datetime | None = None


def boot_of(boots: Sequence[Boot], *, earliest: datetime) -> Boot | None:
    """The boot of a fault that did not happen before ``earliest``, by the portal's clock; None without boots.

    ``boots``: of the node, the latest first. A fault from before all of them counts for the oldest that is known.
    """
    for boot in boots:
        if boot.since is None or boot.since <= earliest:
            return boot
    return boots[-1] if boots else None
