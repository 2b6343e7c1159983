"""Reports that the portal has not acknowledged, one file for each batch.

A batch file also stores the mark: how far the sources had been read when the batch was made. One atomic write stores a
fault together with the fact that its log line was read, so a crash neither loses the fault nor duplicates it.
"""

import errno
import json
import logging
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from agents.host.store import Store

log = logging.getLogger(__name__)

BATCH_FOLDER = "batches"
MARK_FILE = "mark.json"
MAX_BYTES = 64 << 20
MAX_BATCHES = 10_000
MAX_UNWRITTEN_BYTES = 4 << 20  # of batches that the disk refused
NO_SPACE_ERRORS = (errno.ENOSPC, errno.EDQUOT)

Mark = Mapping[str, Any]


@dataclass(slots=True, kw_only=True)
class Batch:
    """A report that waits.

    ``report`` and ``mark`` are set only until they are on disk. ``unreadable``: the last attempt to read its file
    failed.
    """

    number: int
    batch_id: str
    size: int
    has_faults: bool
    report: dict[str, Any] | None = None
    mark: Mark | None = None
    unreadable: bool = False

    @property
    def name(self) -> str:
        """The name of its file in the store."""
        return f"{BATCH_FOLDER}/{self.number:012d}.json"


class Spool:
    """Batches in the order they were made, limited in bytes and number. Thread-safe.

    A batch with faults is never dropped. When such batches fill the spool, ``full`` is True and the owner stops reading
    its sources; the kernel's log is the buffer then. A batch without faults is dropped, oldest first, to make room for
    one with faults. If the disk still refuses a write, the batch stays in memory, is sent from there, and the stored
    mark stays where it was.
    """

    def __init__(self, store: Store, *, max_bytes: int = MAX_BYTES, max_batches: int = MAX_BATCHES) -> None:
        self.store = store
        self._max_bytes, self._max_batches = max_bytes, max_batches
        self._lock = threading.RLock()
        self._waiting: dict[str, Batch] = {}
        self._mark: Mark = {}
        self._mark_is_stored = True
        self._number = 0
        self._dropped = 0
        self._load()

    @property
    def mark(self) -> Mark:
        """The mark up to which the sources were read. Empty at the very first start."""
        return self._mark

    @property
    def full(self) -> bool:
        """True if no more faults can be kept."""
        with self._lock:
            return self._is_over_limits()

    @property
    def waiting(self) -> int:
        """The number of batches that the portal has not acknowledged."""
        return len(self._waiting)

    @property
    def ready(self) -> bool:
        """True if there is a batch to send now, as far as is known."""
        return any(not batch.unreadable for batch in list(self._waiting.values()))

    @property
    def unwritten(self) -> int:
        """The number of batches in memory only, because the disk refused them. Does not wait for a disk that hangs."""
        return sum(batch.report is not None for batch in list(self._waiting.values()))

    @property
    def dropped(self) -> int:
        """The number of batches without faults dropped since the start."""
        return self._dropped

    def append(self, report: dict[str, Any], *, mark: Mark | None = None) -> None:
        """Keep an encoded report (named by its ``batch_id``) together with the mark. ``mark`` None leaves the mark
        unchanged, for a report that does not come from the sources."""
        with self._lock:
            mark = self._mark if mark is None else mark
            self._number += 1
            size = len(json.dumps(report))
            batch = Batch(
                number=self._number,
                batch_id=report["batch_id"],
                size=size,
                has_faults=bool(report["faults"]),
                report=report,
                mark=mark,
            )
            self._waiting[batch.batch_id] = batch
            self.set_mark(mark)
            self._flush()
            self._drop_for_space()

    def set_mark(self, mark: Mark) -> None:
        """Move the mark without a batch, after reading lines that hold no fault. Stored by the next ``save``."""
        self._mark, self._mark_is_stored = mark, False

    def save(self) -> None:
        """Store the mark, unless a batch is in memory only: after a crash its lines must be read again."""
        with self._lock:
            if not self._flush() or self._mark_is_stored:
                return
            try:
                self.store.write(MARK_FILE, _dump({"number": self._number, "mark": self._mark}))
            except OSError as error:
                log.warning("spool: could not store the mark: %s", error)
            else:
                self._mark_is_stored = True

    def next_report(self) -> dict[str, Any] | None:
        """The report to send now: the oldest readable one; deferred ones come last."""
        with self._lock:
            for batch in list(self._waiting.values()):
                if batch.report is not None:
                    return dict(batch.report)
                try:
                    content = self._read(batch.name)
                except OSError as error:  # for example too many open files: the file is still there
                    if not batch.unreadable:
                        log.error("spool: %s cannot be read, trying again later: %s", batch.name, error)
                    batch.unreadable = True
                    continue
                batch.unreadable = False
                if content is not None:
                    report: dict[str, Any] = content["report"]
                    return report
                del self._waiting[batch.batch_id]
            return None

    def acknowledge(self, batch_id: str) -> None:
        """Delete a batch that the portal has accepted, or never will. The mark is stored first: this batch may be the
        only place that has it."""
        with self._lock:
            batch = self._waiting.pop(batch_id, None)
            if batch is None:
                return
            self.save()
            try:
                self.store.delete(batch.name)
            except OSError as error:
                log.warning(
                    "spool: %s could not be deleted and will be sent again after a restart: %s", batch.name, error
                )
            if not self._mark_is_stored:  # there was no room before; there may be some now
                self.save()

    def defer(self, batch_id: str) -> None:
        """Let all other batches go before this one."""
        with self._lock:
            batch = self._waiting.pop(batch_id, None)
            if batch is not None:
                self._waiting[batch_id] = batch

    def _load(self) -> None:
        number = highest = 0
        content = self._read_at_start(MARK_FILE)
        if content is not None:
            number, self._mark = content["number"], content["mark"]
        for name in self.store.names(BATCH_FOLDER):
            content = self._read_at_start(name)
            if content is None:
                highest = max(highest, _number(name))  # the file may still be there and must not be overwritten
                continue
            report = content["report"]
            size = len(json.dumps(report))
            batch = Batch(
                number=content["number"], batch_id=report["batch_id"], size=size, has_faults=bool(report["faults"])
            )
            self._waiting[batch.batch_id] = batch
            if batch.number > number:  # newer than the stored mark
                number, self._mark, self._mark_is_stored = batch.number, content["mark"], False
        self._number = max(number, highest)

    def _read_at_start(self, name: str) -> dict[str, Any] | None:
        try:
            return self._read(name)
        except OSError as error:
            log.error("spool: %s cannot be read, trying again at the next start: %s", name, error)
            return None

    def _read(self, name: str) -> dict[str, Any] | None:
        """A stored file. One that is damaged is quarantined and treated as absent. Raises OSError."""
        data = self.store.read(name)
        if data is None:
            return None
        try:
            content: dict[str, Any] = json.loads(data)
            if not isinstance(content["number"], int) or not isinstance(content["mark"], dict):
                raise ValueError("not a file of this spool")
            if name != MARK_FILE and not (
                isinstance(content["report"]["batch_id"], str) and "faults" in content["report"]
            ):
                raise ValueError("not a batch")
        except (ValueError, KeyError, TypeError) as error:
            log.error("spool: %s is damaged and was moved to the folder aside: %s", name, error)
            try:
                self.store.quarantine(name)
            except OSError as failure:
                log.error("spool: damaged %s could not be moved to the folder aside: %s", name, failure)
            return None
        return content

    def _flush(self) -> bool:
        """Write the batches that are in memory only. Those with faults go first and in order, because a later mark
        covers earlier lines."""
        for batch in sorted(self._in_memory(), key=lambda batch: (not batch.has_faults, batch.number)):
            try:
                self._write(batch)
            except OSError as error:
                log.warning("spool: disk write failed, %d batches kept in memory: %s", len(self._in_memory()), error)
                return False
        return True

    def _write(self, batch: Batch) -> None:
        """Write one batch. One with faults may take the place of batches without. Raises OSError."""
        content = _dump({"number": batch.number, "mark": batch.mark, "report": batch.report})
        while batch.report is not None:
            try:
                self.store.write(batch.name, content)
            except OSError as error:
                stored = (
                    waiting for waiting in self._waiting.values() if waiting.report is None and not waiting.has_faults
                )
                droppable = next(stored, None) if batch.has_faults and error.errno in NO_SPACE_ERRORS else None
                if droppable is None:
                    raise
                self.store.delete(droppable.name)
                del self._waiting[droppable.batch_id]
                self._count_dropped(droppable, "no space left on the disk")
            else:
                batch.report = batch.mark = None

    def _count_dropped(self, batch: Batch, why: str) -> None:
        self._dropped += 1
        log.warning("spool: %s, dropped batch %s, which has no faults", why, batch.batch_id)

    def _in_memory(self) -> list[Batch]:
        return [batch for batch in self._waiting.values() if batch.report is not None]

    def _drop_for_space(self) -> None:
        for batch in [batch for batch in self._waiting.values() if not batch.has_faults]:
            if not self._is_over_limits():
                return
            self._count_dropped(batch, "limit reached")
            self.acknowledge(batch.batch_id)

    def _is_over_limits(self) -> bool:
        if (
            len(self._waiting) >= self._max_batches
            or sum(batch.size for batch in self._in_memory()) >= MAX_UNWRITTEN_BYTES
        ):
            return True
        return sum(batch.size for batch in self._waiting.values()) >= self._max_bytes


def _number(name: str) -> int:
    stem = name.removeprefix(f"{BATCH_FOLDER}/").removesuffix(".json")
    return int(stem) if stem.isascii() and stem.isdecimal() else 0


def _dump(content: Mapping[str, Any]) -> bytes:
    return json.dumps(content, separators=(",", ":")).encode()
