"""kcover's preflight reports: files that init containers leave on the node, each sent to the portal once.

Containers of users write these files, so nothing about them is trusted. No link is followed, only plain files are read,
and sizes and numbers are limited. The portal decides whether a report counts.
"""

import contextlib
import json
import logging
import os
import pathlib
import re
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from typing import Any

from agents.host.store import Store
from agents.outbox.retries import jittered_delay
from agents.uplink.protocol import PortalFailed, ReportDeferred, ReportMalformed, Uplink, UplinkError

log = logging.getLogger(__name__)

STATE_FILE = "preflight.json"  # in the store
ROUND_SECONDS = 10.0
FIRST_PAUSE_SECONDS, MAX_PAUSE_SECONDS = 5.0, 300.0  # after a failed call
SETTLE_SECONDS = 2.0  # a younger file may still be written
MAX_AGE_SECONDS = 86_400.0  # the pod of an older report is long gone
MAX_FILE_BYTES = 64 * 1024  # a report of five slots has 2 KiB
MAX_NAMESPACES, MAX_FILES = 256, 1024  # that one round looks at; files for each namespace
MAX_FAILURES = 3  # of the portal on one file
_NAMESPACE = re.compile(r"[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?")
_FILE = re.compile(r"([a-z0-9][-a-z0-9.]{0,252})-[0-9]{1,6}\.json")
_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # a pipe must not block the thread

Fingerprint = list[int]  # time of the last change in ns, and size: a file that was written again is another report


class _Unreadable(Exception):
    """A file without a report of this node. The message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    """A file that looks like a report."""

    namespace: str
    name: str
    workload: str
    fingerprint: Fingerprint

    @property
    def key(self) -> str:
        """Its name in the state."""
        return f"{self.namespace}/{self.name}"


class PreflightFiles:
    """The reports in ``<folder>/<namespace>/<workload>-<rank>.json``. Used by one thread."""

    def __init__(
        self, folder: pathlib.Path, *, node: str, store: Store, uplink: Uplink, clock: Callable[[], datetime]
    ) -> None:
        """``store`` remembers which files were handled, across restarts."""
        self._folder, self._node = folder, node
        self._store, self._uplink, self._clock = store, uplink, clock
        self._handled = self._load()
        self._failures: dict[str, int] = {}  # of the portal, by file
        self._pause = FIRST_PAUSE_SECONDS
        self._silent = False  # the last call failed, and the log says so

    def run_round(self) -> float:
        """Send each new report. Return the seconds until the next round."""
        try:
            root = os.open(self._folder, _FOLDER_FLAGS)
        except OSError:  # there is no preflight on this node
            return ROUND_SECONDS
        try:
            return self._round(root)
        finally:
            os.close(root)

    def _round(self, root: int) -> float:
        found = sorted(_files(root), key=lambda one: one.fingerprint)
        before = dict(self._handled)
        keys = {one.key for one in found}
        self._handled = {key: mark for key, mark in self._handled.items() if key in keys}
        wait = ROUND_SECONDS
        for one in found:
            if self._handled.get(one.key) == one.fingerprint:
                continue
            age = self._clock().timestamp() - one.fingerprint[0] / 1e9
            if 0 <= age < SETTLE_SECONDS:
                continue
            try:
                if age < MAX_AGE_SECONDS and not self._send(root, one):
                    continue
            except UplinkError as error:
                wait = self._postpone(error)
                break
            self._handled[one.key] = one.fingerprint
            self._failures.pop(one.key, None)
        if self._handled != before:
            self._save()
        return wait

    def _send(self, root: int, one: _Found) -> bool:
        """Send the report. Return whether the file is done with. Raises UplinkError if the portal cannot be reached."""
        try:
            self._uplink.post_preflight(self._body(root, one))
        except (_Unreadable, OSError) as error:
            log.warning("preflight report %s is not sent: %s", one.key, error)
        except (ReportMalformed, ReportDeferred) as error:
            log.warning("preflight report %s was refused: %s", one.key, error)
        except PortalFailed as error:
            self._failures[one.key] = self._failures.get(one.key, 0) + 1
            log.warning("preflight report %s: the portal failed: %s", one.key, error)
            return self._failures[one.key] >= MAX_FAILURES
        else:
            log.info("preflight report %s sent", one.key)
        self._pause, self._silent = FIRST_PAUSE_SECONDS, False
        return True

    def _postpone(self, error: UplinkError) -> float:
        level = logging.DEBUG if self._silent else logging.WARNING
        log.log(level, "preflight reports wait for the portal: %s", error)
        pause, self._silent = self._pause, True
        self._pause = min(2 * self._pause, MAX_PAUSE_SECONDS)
        return jittered_delay(error.retry_after, pause)

    def _body(self, root: int, one: _Found) -> bytes:
        """The body for the portal. Raises _Unreadable, OSError."""
        content = _read(root, one)
        try:
            report = json.loads(content)
        except (ValueError, RecursionError) as error:
            raise _Unreadable(f"not valid JSON: {error}") from None
        if not isinstance(report, dict):
            raise _Unreadable("not a JSON object")
        if report.get("node_name") != self._node:
            raise _Unreadable(f"its node_name is {str(report.get('node_name'))[:100]!r}, not {self._node}")
        body: dict[str, Any] = {"namespace": one.namespace, "report": report}
        if not report.get("workload"):
            body["workload"] = one.workload
        return json.dumps(body).encode()

    def _load(self) -> dict[str, Fingerprint]:
        try:
            content = json.loads(self._store.read(STATE_FILE) or b"{}")
            return {str(key): [int(part) for part in mark] for key, mark in content.items()}
        except (OSError, ValueError, TypeError, AttributeError) as error:
            log.warning("the list of sent preflight reports cannot be read; they are sent again: %s", error)
            return {}

    def _save(self) -> None:
        try:
            self._store.write(STATE_FILE, json.dumps(self._handled).encode())
        except OSError as error:
            log.warning("the list of sent preflight reports cannot be stored: %s", error)


def _files(root: int) -> Iterator[_Found]:
    """The plain files with the name of a report."""
    for namespace in _names(root, MAX_NAMESPACES):
        if not _NAMESPACE.fullmatch(namespace):
            continue
        try:
            folder = os.open(namespace, _FOLDER_FLAGS, dir_fd=root)
        except OSError:  # a file, or a link
            continue
        try:
            for name in _names(folder, MAX_FILES):
                if (match := _FILE.fullmatch(name)) and (mark := _fingerprint(folder, name)):
                    yield _Found(namespace=namespace, name=name, workload=match[1], fingerprint=mark)
        finally:
            os.close(folder)


def _names(folder: int, most: int) -> list[str]:
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        return [entry.name for entry in islice(entries, most)]
    return []


def _fingerprint(folder: int, name: str) -> Fingerprint | None:
    """None if the name is not that of a plain file."""
    with contextlib.suppress(OSError):
        seen = os.stat(name, dir_fd=folder, follow_symlinks=False)
        if stat.S_ISREG(seen.st_mode):
            return [seen.st_mtime_ns, seen.st_size]
    return None


def _read(root: int, one: _Found) -> bytes:
    """The content of a file. Raises _Unreadable, OSError."""
    folder = os.open(one.namespace, _FOLDER_FLAGS, dir_fd=root)
    try:
        handle = os.open(one.name, _FILE_FLAGS, dir_fd=folder)
    finally:
        os.close(folder)
    with os.fdopen(handle, "rb") as file:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise _Unreadable("not a plain file")
        content = file.read(MAX_FILE_BYTES + 1)
    if len(content) > MAX_FILE_BYTES:
        raise _Unreadable(f"larger than {MAX_FILE_BYTES} bytes")
    return content
