"""The boot to which a fault belongs: the one that ran when the fault happened, whenever it was reported.

A fault's time is an interval, because clocks differ and reporters look at intervals. If the interval reaches before the
start of a boot, the fault is evidence of the boot before: a second reboot for the old fault costs more than a wait.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from kcover.faults import kernel_line
from kcover.values import moments


@dataclass(frozen=True, slots=True)
class Boot:
    """One boot of a node. ``since``: it surely ran at this time, by the portal's clock; None: it began long ago.

    ``after``: the boot before surely ran at this time, long before ``since``, as nobody looked; None: somebody did.
    """

    id: str
    since: datetime | None = None
    after: datetime | None = None


def boot_of(
    boots: Sequence[Boot], *, earliest: datetime, begun: datetime | None = None, takes: timedelta = timedelta()
) -> Boot | None:
    """The boot of a fault that did not happen before ``earliest``, by the portal's clock; None without boots.

    ``boots``: of the node, the latest first. A fault from before all of them counts for the oldest that is known.
    ``begun``: when the kernel that told of it had begun at the latest; None: unknown. From then until somebody sees a
    boot it takes ``takes`` at most, so that the kernel of a boot that was seen still later is another one.
    """
    for boot in boots:
        if boot.since is None or (boot.since <= earliest and not _is_after(boot, begun, takes)):
            return boot
    return boots[-1] if boots else None


def kernel_begun(at: datetime, uptime: timedelta) -> datetime:
    """When a kernel that had run for ``uptime`` at or before ``at`` had begun at the latest.

    The kernel's clock runs free of the node's, so that its drift is left out.
    """
    return moments.before(at, uptime * (1 - kernel_line.DRIFT))


def _is_after(boot: Boot, begun: datetime | None, takes: timedelta) -> bool:
    since = boot.after or boot.since  # as nobody looked, the boot may have begun since ``after``
    return begun is not None and since is not None and begun < since - takes
