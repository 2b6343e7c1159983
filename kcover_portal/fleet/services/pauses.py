"""Which pause a person has seen: a resume ends no other one."""

import hashlib

from kcover import reasons
from kcover_portal.fleet.models import Cluster
from kcover_portal.lib.errors import Refused
from kcover_portal.runtime.models import Installation, Mode


class PauseChanged(Refused):
    """Somebody paused, resumed or changed the mode since the person looked."""


def reason_of(row: Cluster | Installation) -> str:
    """Why it is paused, in a person's words."""
    return row.reason if isinstance(row, Installation) else row.pause_reason


def seen(row: Cluster | Installation) -> str:
    """A short text that names the mode and the pause of a row as a person sees them; another pause has another one."""
    at = row.changed_at if isinstance(row, Installation) else None
    told = "\n".join((row.mode, row.resumes_as, reason_of(row), at.isoformat() if at else ""))
    return hashlib.blake2b(told.encode(), digest_size=8).hexdigest()


def check(row: Cluster | Installation, known: str) -> None:
    """Raises PauseChanged if ``known`` names another mode or pause than the row has; "" if it is not known."""
    if known and known != seen(row):
        if row.mode != Mode.PAUSED:
            raise PauseChanged(reasons.of("settings_changed_meanwhile"))
        raise PauseChanged(reasons.of("paused_meanwhile", why=reason_of(row) or "-"))
