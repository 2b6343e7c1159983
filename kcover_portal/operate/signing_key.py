"""The signing key at start: one machine gets its own, and a deployment without one is warned."""

import stat
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from django.conf import settings
from django.core import checks

from kcover_portal.ledger import signatures


def ensure() -> None:
    """Creates the key in var/ on the first start, unless KCOVER_SIGNING_KEY names another file.

    A key that cannot be written is no error: the portal then runs with unsigned heads and reports this.
    """
    path = settings.KCOVER_SIGNING_KEY
    if path.is_relative_to(settings.VAR_DIR) and not path.exists():
        with suppress(signatures.SigningKeyExists, OSError):
            signatures.create_key(path)


def usable(**_given: Any) -> Sequence[checks.CheckMessage]:
    """Warns if the portal cannot sign the audit log, or if other accounts of the machine can read the key."""
    try:
        signatures.current_key_id()
    except signatures.SigningKeyUnusable as error:
        return [
            checks.Warning(
                f"The audit log is not signed. {error}",
                hint="Create a key with manage.py ledger key, and set KCOVER_SIGNING_KEY to its path.",
                id="kcover.W001",
            )
        ]
    path = settings.KCOVER_SIGNING_KEY
    if path.stat().st_mode & (stat.S_IROTH | stat.S_IWOTH):
        return [
            checks.Warning(f"Every account of this machine can read {path}.", hint=f"chmod o= {path}", id="kcover.W002")
        ]
    return []
