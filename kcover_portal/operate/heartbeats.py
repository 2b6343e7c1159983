"""The heartbeat of a process without clients: a file that its loop touches, whose age a probe compares.

``worker``, ``beat`` and ``watch`` answer no request, so nothing else shows that one of them hangs. A process that waits
for a server which went away works as it should, and goes on touching the file.
"""

import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from django.conf import settings

log = logging.getLogger(__name__)

EVERY_SECONDS: Final = 5.0
_touched_at = 0.0


def touch() -> None:
    """Touches the file of ``KCOVER_HEARTBEAT_FILE``, at most once in ``EVERY_SECONDS``."""
    global _touched_at
    path, now = settings.KCOVER_HEARTBEAT_FILE, time.monotonic()
    if not path or now - _touched_at < EVERY_SECONDS:
        return
    _touched_at = now
    try:
        Path(path).touch()
    except OSError as error:
        log.warning("the heartbeat file %s: %s", path, error)


def while_connecting(connection: Any) -> Any:
    """Makes a connection to the broker that touches the file each second in which it waits for the broker."""
    ensure = connection.ensure_connection

    def beating(*args: Any, callback: Callable[[], object] | None = None, **kwargs: Any) -> Any:
        def both() -> None:
            touch()
            if callback is not None:
                callback()

        return ensure(*args, callback=both, **kwargs)

    connection.ensure_connection = beating
    return connection
