"""What the portal has not acknowledged yet: one file a batch, kept until it does.

A batch file also carries the mark, the place up to which the sources were read when it was made, so that one atomic
write stores a fault together with the fact that it was read: a crash neither loses it nor makes two of it.
"""

import errno
import json
import logging
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from agents.store import Store

log = logging.getLogger(__name__)

FOLDER = "batches"
MARK = "mark.json"
MAX_BYTES = 64 << 20
MAX_BATCHES = 10_000
MAX_MEMORY = 4 << 20  # bytes of batches that the disk refused
NO_ROOM = (errno.ENOSPC, errno.EDQUOT)

Mark = Mapping[str, Any]


@dataclass(slots=True, kw_only=True)
class Batch:
    """One report that waits. ``report`` and ``mark``: only while the disk does not have them. ``unread``: its file
    could not be read when it was looked at last."""

    number: int
    batch_id: str
    size: int
    precious: bool
    report: dict[str, Any] | None = None
    mark: Mark | None = None
    unread: bool = False

    @property
    def name(self) -> str:
        """Its file in the store."""
        return f"{FOLDER}/{self.number:012d}.json"


class Spool:
    """Batches in the order they were made, bounded in bytes and number. Safe to use from several threads.

    A batch that carries faults is never dropped: when the spool is full of them, ``full`` says so, and the owner stops
    reading its sources; the kernel's log is the buffer then. A batch without faults is dropped, oldest first, for one
    with, be it for the bounds or because the disk has no room. When the disk refuses a write all the same the batch is
    kept in memory, sent from there, and the mark stays where it was.
    """

    def __init__(self, store: Store, *, max_bytes: int = MAX_BYTES, max_batches: int = MAX_BATCHES) -> None:
        self.store = store
        self._max_bytes, self._max_batches = max_bytes, max_batches
        self._guard = threading.RLock()
        self._waiting: dict[str, Batch] = {}
        self._mark: Mark = {}
        self._stored_mark = True
        self._number = 0
        self._dropped = 0
        self._load()

    @property
    def mark(self) -> Mark:
        """The place up to which the sources were read; empty at the very first start."""
        return self._mark

    @property
    def full(self) -> bool:
        """Whether no further faults can be kept."""
        with self._guard:
            return self._over_bounds()

    @property
    def waiting(self) -> int:
        """How many batches the portal does not have yet."""
        return len(self._waiting)

    @property
    def ready(self) -> bool:
        """Whether there is one to send now, as far as is known."""
        return any(not batch.unread for batch in list(self._waiting.values()))

    @property
    def unwritten(self) -> int:
        """How many of them are in memory only, because the disk refused them; told while a disk hangs, too."""
        return sum(batch.report is not None for batch in list(self._waiting.values()))

    @property
    def dropped(self) -> int:
        """How many batches without faults were dropped since the start to make room for others."""
        return self._dropped

    def append(self, report: dict[str, Any], *, mark: Mark | None = None) -> None:
        """Keep an encoded report (its ``batch_id`` names it) and the mark that goes with it; None: the mark as it is,
        for a report about something else than what the sources say."""
        with self._guard:
            mark = self._mark if mark is None else mark
            self._number += 1
            size = len(json.dumps(report))
            batch = Batch(
                number=self._number,
                batch_id=report["batch_id"],
                size=size,
                precious=bool(report["faults"]),
                report=report,
                mark=mark,
            )
            self._waiting[batch.batch_id] = batch
            self.remember(mark)
            self._flush()
            self._make_room()

    def remember(self, mark: Mark) -> None:
        """A newer mark, with nothing in the log that is worth a batch; stored at the next ``save``."""
        self._mark, self._stored_mark = mark, False

    def save(self) -> None:
        """Store the mark. Put off while a batch lives in memory only: after a crash its lines must be read again."""
        with self._guard:
            if not self._flush() or self._stored_mark:
                return
            try:
                self.store.write(MARK, _dump({"number": self._number, "mark": self._mark}))
            except OSError as error:
                log.warning("spool: mark not stored: %s", error)
            else:
                self._stored_mark = True

    def next(self) -> dict[str, Any] | None:
        """The report to send now: the oldest one that can be read, those that were deferred last."""
        with self._guard:
            for batch in list(self._waiting.values()):
                if batch.report is not None:
                    return dict(batch.report)
                try:
                    content = self._read(batch.name)
                except OSError as error:  # too many open files, a disk with a bad moment: the file is there still
                    if not batch.unread:
                        log.error("spool: %s cannot be read now: %s", batch.name, error)
                    batch.unread = True
                    continue
                batch.unread = False
                if content is not None:
                    report: dict[str, Any] = content["report"]
                    return report
                del self._waiting[batch.batch_id]
            return None

    def acknowledge(self, batch_id: str) -> None:
        """The portal has it (or will never take it): forget it. The mark is stored first, as it may stand in this batch
        only."""
        with self._guard:
            batch = self._waiting.pop(batch_id, None)
            if batch is None:
                return
            self.save()
            try:
                self.store.delete(batch.name)
            except OSError as error:
                log.warning("spool: %s not deleted, it will be sent again after a restart: %s", batch.name, error)
            if not self._stored_mark:  # there was no room: there may be now
                self.save()

    def defer(self, batch_id: str) -> None:
        """Let the others pass before this one."""
        with self._guard:
            batch = self._waiting.pop(batch_id, None)
            if batch is not None:
                self._waiting[batch_id] = batch

    def _load(self) -> None:
        number = highest = 0
        content = self._read_at_start(MARK)
        if content is not None:
            number, self._mark = content["number"], content["mark"]
        for name in self.store.names(FOLDER):
            content = self._read_at_start(name)
            if content is None:
                highest = max(highest, _number(name))  # it may be there still, and must not be written over
                continue
            report = content["report"]
            size = len(json.dumps(report))
            batch = Batch(
                number=content["number"], batch_id=report["batch_id"], size=size, precious=bool(report["faults"])
            )
            self._waiting[batch.batch_id] = batch
            if batch.number > number:  # made after the mark was stored for the last time
                number, self._mark, self._stored_mark = batch.number, content["mark"], False
        self._number = max(number, highest)

    def _read_at_start(self, name: str) -> dict[str, Any] | None:
        try:
            return self._read(name)
        except OSError as error:
            log.error("spool: %s cannot be read, it stays for the next start: %s", name, error)
            return None

    def _read(self, name: str) -> dict[str, Any] | None:
        """A stored file; one that cannot be understood is set aside and is as if it were not there. Raises OSError."""
        data = self.store.read(name)
        if data is None:
            return None
        try:
            content: dict[str, Any] = json.loads(data)
            if not isinstance(content["number"], int) or not isinstance(content["mark"], dict):
                raise ValueError("not of this spool")
            if name != MARK and not (isinstance(content["report"]["batch_id"], str) and "faults" in content["report"]):
                raise ValueError("no batch")
        except (ValueError, KeyError, TypeError) as error:
            log.error("spool: %s set aside, it is damaged: %s", name, error)
            try:
                self.store.set_aside(name)
            except OSError as failure:
                log.error("spool: %s cannot be set aside: %s", name, failure)
            return None
        return content

    def _flush(self) -> bool:
        """Write what is in memory only: faults first, and these in order, as a later mark covers earlier lines."""
        for batch in sorted(self._in_memory(), key=lambda batch: (not batch.precious, batch.number)):
            try:
                self._write(batch)
            except OSError as error:
                log.warning("spool: %d batches kept in memory: %s", len(self._in_memory()), error)
                return False
        return True

    def _write(self, batch: Batch) -> None:
        """Write one batch, for one with faults in the place of those without. Raises OSError."""
        content = _dump({"number": batch.number, "mark": batch.mark, "report": batch.report})
        while batch.report is not None:
            try:
                self.store.write(batch.name, content)
            except OSError as error:
                stored = (one for one in self._waiting.values() if one.report is None and not one.precious)
                light = next(stored, None) if batch.precious and error.errno in NO_ROOM else None
                if light is None:
                    raise
                self.store.delete(light.name)
                del self._waiting[light.batch_id]
                self._note_dropped(light, "the disk has no room")
            else:
                batch.report = batch.mark = None

    def _note_dropped(self, batch: Batch, why: str) -> None:
        self._dropped += 1
        log.warning("spool: %s, batch %s without faults dropped", why, batch.batch_id)

    def _in_memory(self) -> list[Batch]:
        return [batch for batch in self._waiting.values() if batch.report is not None]

    def _make_room(self) -> None:
        for batch in [batch for batch in self._waiting.values() if not batch.precious]:
            if not self._over_bounds():
                return
            self._note_dropped(batch, "full")
            self.acknowledge(batch.batch_id)

    def _over_bounds(self) -> bool:
        if len(self._waiting) >= self._max_batches or sum(batch.size for batch in self._in_memory()) >= MAX_MEMORY:
            return True
        return sum(batch.size for batch in self._waiting.values()) >= self._max_bytes


def _number(name: str) -> int:
    stem = name.removeprefix(f"{FOLDER}/").removesuffix(".json")
    return int(stem) if stem.isascii() and stem.isdecimal() else 0


def _dump(content: Mapping[str, Any]) -> bytes:
    return json.dumps(content, separators=(",", ":")).encode()
