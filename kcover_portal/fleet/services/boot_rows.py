"""The boots in the row of a node, as the watch shows them."""

from collections.abc import Iterable
from datetime import datetime

from kcover_portal.fleet.models import Node
from kcover_portal.fleet.queries import WATCH_GAP

MAX_PAST_BOOTS = 8  # reports of earlier boots may still arrive


def after(
    row: Node, boots: Iterable[str], *, watched_at: datetime | None, now: datetime
) -> tuple[list[str], dict[str, str]]:
    """The boots that are over once the node has had these boot ids, one after the other, and the times of all.

    A boot without another one before it has no time: it began before the portal looked. ``watched_at``: when the
    cluster last answered before. If that was long ago, the time of the boot is followed by it: in between nobody knows.
    """
    gap = watched_at is not None and now - watched_at > WATCH_GAP
    shown = f"{now.isoformat()} {watched_at.isoformat()}" if gap and watched_at is not None else now.isoformat()
    current = row.boot_id
    past: list[str] = row.past_boots
    times: dict[str, str] = dict(row.boot_times)
    for boot in boots:
        past = [over for over in (current, *past) if over not in ("", boot)][:MAX_PAST_BOOTS]
        if past and boot not in ("", current):
            times.setdefault(boot, shown)
        current = boot
    return past, {boot: at for boot, at in times.items() if boot in (current, *past)}
