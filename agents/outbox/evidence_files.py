"""Bundles of evidence that wait for the portal: files in a folder, uploaded in chunks that can be resumed.

The portal answers each chunk with the number of bytes that it has. So after a lost answer, a restart or a reboot in the
middle, the upload continues where it was. A bundle that the portal does not want is deleted.
"""

import contextlib
import logging
import pathlib
import threading
import uuid
from collections.abc import Callable
from datetime import datetime

from agents.outbox.retries import jittered_delay
from agents.uplink.protocol import ReportDeferred, ReportMalformed, Uplink, UplinkError
from kcover.evidence import bundle

log = logging.getLogger(__name__)

ROUND_SECONDS = 300.0  # without a wake-up
FIRST_PAUSE_SECONDS, MAX_PAUSE_SECONDS = 1.0, 120.0  # after a failed call
CHUNK_BYTES = 256 << 10  # in memory at once; the portal takes up to bundle.MAX_CHUNK_BYTES
MAX_FILES = 4  # that wait; the oldest go first
MAX_AGE_SECONDS = 86_400.0  # then the portal has given up on it
MAX_RESTARTS = 3  # of one upload whose bytes did not arrive as they were sent
SUFFIX = ".gz"


class EvidenceFiles:
    """The bundles ``<folder>/<name>.gz``. ``run_round`` is called by one thread, ``wake`` by any."""

    def __init__(self, folder: pathlib.Path, *, uplink: Uplink, clock: Callable[[], datetime]) -> None:
        self._folder, self._uplink, self._clock = folder, uplink, clock
        self._wake = threading.Event()
        self._pause = FIRST_PAUSE_SECONDS

    def wake(self) -> None:
        """There is a new bundle, or the agent stops."""
        self._wake.set()

    def wait(self, seconds: float) -> None:
        """Wait for the next round, or until ``wake``."""
        self._wake.wait(seconds)
        self._wake.clear()

    def run_round(self) -> float:
        """Upload what waits. Return the seconds until the next round."""
        waiting = sorted((path for path in self._folder.glob(f"*{SUFFIX}")), key=_changed_at, reverse=True)
        for path in waiting[MAX_FILES:]:
            _drop(path, "too many bundles wait for the portal")
        for path in waiting[:MAX_FILES]:
            try:
                self._send(path)
            except (ReportMalformed, ReportDeferred) as error:
                _drop(path, f"the portal does not take it: {error}")
            except UplinkError as error:
                log.debug("evidence %s waits for the portal: %s", path.name, error)
                pause, self._pause = self._pause, min(2 * self._pause, MAX_PAUSE_SECONDS)
                return jittered_delay(error.retry_after, pause)
            except OSError as error:
                _drop(path, str(error))
        self._pause = FIRST_PAUSE_SECONDS
        return ROUND_SECONDS

    def _send(self, path: pathlib.Path) -> None:
        """Upload a bundle to its end and delete the file. Raises UplinkError, OSError."""
        try:
            name = uuid.UUID(path.name.removesuffix(SUFFIX))
        except ValueError:
            _drop(path, "its name is not that of a bundle")
            return
        age = max(0.0, self._clock().timestamp() - _changed_at(path))
        if age > MAX_AGE_SECONDS:
            _drop(path, "it is too old")
            return
        with path.open("rb") as file:
            sha256 = bundle.sha256_of(file)
            size = file.tell()
            received, restarts = 0, 0
            while received < size:
                file.seek(received)
                upload = bundle.Upload(bundle=name, offset=received, size=size, sha256=sha256, age=int(age))
                before, received = received, self._uplink.post_evidence(upload, file.read(CHUNK_BYTES))
                restarts += received <= before
                if restarts > MAX_RESTARTS:
                    raise ReportMalformed(f"the portal has {received} bytes of {size} after {restarts} attempts")
        path.unlink()
        log.info("evidence %s uploaded: %d bytes", name, size)


def _changed_at(path: pathlib.Path) -> float:
    with contextlib.suppress(OSError):
        return path.stat().st_mtime
    return 0.0


def _drop(path: pathlib.Path, why: str) -> None:
    log.warning("evidence %s is deleted: %s", path.name, why)
    with contextlib.suppress(OSError):
        path.unlink()
