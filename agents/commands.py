"""What the portal asks of this node: each command at most once, across crashes and reboots, and its result until told.

The journal entry is on disk before anything is done. A reboot stays ``started`` until the boot id changes, which is how
it becomes ``done``; any other command found ``started`` at start was cut short, and is reported failed, never done
again.
"""

import contextlib
import hashlib
import json
import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, Protocol

from agents import journal_entry
from agents.journal_entry import Entry
from agents.store import Store
from kcover.fault import Check, Command, CommandResult, Fault

log = logging.getLogger(__name__)

FOLDER = "commands"
REBOOT_GRACE = timedelta(minutes=10)  # a reboot that has not ended this boot by then is told as failed
KEEP = timedelta(days=7)  # a told result is remembered this long after the command expired
MAX_ANSWER = 100  # results a report carries
MAX_ANSWER_BYTES = 512 << 10  # and after so many bytes of them no further one: a report ends at the wire's 1 MiB
MAX_OUTPUT = 4096
LANES = journal_entry.LANES

Keep = Callable[[Sequence[Check], Sequence[Fault], datetime], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How an execution ended: ``done``, ``failed``, ``refused`` or ``expired``, and why; and what it found out about
    the node."""

    status: str
    message: str = ""
    output: Mapping[str, Any] = field(default_factory=dict)
    checks: tuple[Check, ...] = ()
    faults: tuple[Fault, ...] = ()


class Executor(Protocol):
    """What can be done to the node. Each verb waits for its end, with a time limit of its own."""

    def reboot(self, args: Mapping[str, Any]) -> Outcome | None:
        """Ask the node to reboot. None: asked, the next boot tells; else it could not be asked."""

    def reset_gpu(self, args: Mapping[str, Any]) -> Outcome:
        """Reset one GPU (``args``: ``gpu_uuid``, ``pci`` or ``index``)."""

    def run_check(self, args: Mapping[str, Any], *, expires_at: datetime) -> Outcome:
        """Run checks; ``expired`` where they cannot begin before ``expires_at``."""


class Journal:
    """All commands this node was given lately. Safe to use from several threads; ``work`` runs one command of a lane
    at a time."""

    def __init__(self, store: Store, executor: Executor, *, keep: Keep | None = None) -> None:
        """``keep`` takes the check results and faults that executions found."""
        self._store, self._executor, self._found = store, executor, keep
        self._guard = threading.RLock()
        self._working = {lane: threading.Lock() for lane in LANES}
        self._entries: dict[str, Entry] = {}
        for name in store.names(FOLDER):
            self._load(name)
        self._from_before = {id for id, entry in self._entries.items() if entry.state == "started"}
        self._damaged = set(store.names("aside"))

    def offer(self, commands: Iterable[Command]) -> bool:
        """Take commands in; True when one of them was not known. A result that was told is told again, as the portal
        lacks it."""
        fresh = False
        with self._guard:
            for command in commands:
                entry = self._entries.get(command.id)
                if entry is None:
                    self._entries[command.id] = Entry(command=command, state="offered")
                    fresh = True
                elif entry.state == "told":
                    entry.again = True
        return fresh

    def work(self, *, clock: Callable[[], datetime], boot_id: str, lanes: Sequence[str] = LANES) -> int:
        """Execute what was offered, in order. Returns how many came to a result.

        ``lanes``: a thread each may work on each of them, so that neither an hour of diagnostics nor a driver that
        never answers holds up a reboot.
        """
        done = 0
        for lane in lanes:
            with self._working[lane]:
                with self._guard:
                    offered = [one for one in self._entries.values() if one.state == "offered" and one.lane == lane]
                for entry in offered:
                    outcome = self._attempt(entry, now=clock(), boot_id=boot_id)
                    if outcome is not None:
                        self._finish(entry, outcome, now=clock())
                        done += 1
        return done

    def results(self, *, now: datetime, boot_id: str, again: bool = False) -> tuple[CommandResult, ...]:
        """The results to tell, reboots judged by the boot id; as many as a report can carry.

        ``again``: also those that were told and whose command is still offered. Not at once: the portal's answer may
        have crossed the result.
        """
        with self._guard:
            for entry in list(self._entries.values()):
                if entry.state == "started":
                    self._judge(entry, now=now, boot_id=boot_id)
            wanted = [entry for entry in self._entries.values() if entry.state == "finished" or (again and entry.again)]
            return self._fitting(wanted[:MAX_ANSWER])

    def told(self, ids: Iterable[str], *, now: datetime) -> None:
        """The portal has these results."""
        with self._guard:
            for id in ids:
                entry = self._entries.get(id)
                if entry is not None:
                    entry.again = False
                    if entry.state == "finished":
                        entry.state = "told"
                        if self._keep(entry):
                            journal_entry.slim(entry)
            for id, entry in list(self._entries.items()):
                if entry.state == "told" and now - entry.command.expires_at > KEEP:
                    del self._entries[id]
                    self._store.delete(_name(id))

    def _fitting(self, entries: Iterable[Entry]) -> tuple[CommandResult, ...]:
        results: list[CommandResult] = []
        size = 0
        for entry in entries:
            result = self._whole(entry)
            if result is None:
                continue
            size += len(json.dumps(journal_entry.dump_result(result)))
            if results and size > MAX_ANSWER_BYTES:
                break
            results.append(result)
        return tuple(results)

    def _whole(self, entry: Entry) -> CommandResult | None:
        """The result with its output, which only the disk keeps once it was told; without it where that fails."""
        if entry.state == "told":
            with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
                return journal_entry.parse(json.loads(self._store.read(_name(entry.command.id)) or b"")).result
        return entry.result

    def _attempt(self, entry: Entry, *, now: datetime, boot_id: str) -> Outcome | None:
        try:
            return self._execute(entry, now=now, boot_id=boot_id)
        except Exception as error:  # whatever broke: a command without an end would block its node's rescue
            log.exception("command %s broke", entry.command.id)
            if entry.command.kind == "reboot" and entry.state == "started":
                return None  # it may have been asked for: the boot id tells
            return Outcome(status="failed", message=f"the agent broke: {type(error).__name__}: {error}")

    def _execute(self, entry: Entry, *, now: datetime, boot_id: str) -> Outcome | None:
        command = entry.command
        if _aside(command.id) in self._damaged:
            return Outcome(status="failed", message="its journal entry is damaged, so it may have been done before")
        if command.expires_at <= now:
            return Outcome(status="expired", message=f"expired at {command.expires_at.isoformat()}")
        wanted = command.args.get("boot_id")
        if command.kind == "reboot" and wanted not in (None, "", boot_id):
            return Outcome(status="refused", message=f"meant for boot {wanted}, this is {boot_id}")
        verbs: Mapping[str, Callable[[], Outcome | None]] = {
            "reboot": lambda: self._executor.reboot(command.args),
            "reset_gpu": lambda: self._executor.reset_gpu(command.args),
            "run_check": lambda: self._executor.run_check(command.args, expires_at=command.expires_at),
        }
        if command.kind not in verbs:
            return Outcome(status="refused", message=f"unknown command {command.kind!r}")
        with self._guard:
            entry.state, entry.boot_id, entry.started_at = "started", boot_id, now
            if not self._keep(entry):
                return Outcome(status="refused", message="the journal cannot be written, so it could be done twice")
        log.info("command %s: %s begins", command.id, command.kind)
        return verbs[command.kind]()

    def _judge(self, entry: Entry, *, now: datetime, boot_id: str) -> None:
        command = entry.command
        if command.kind != "reboot":
            if command.id in self._from_before:
                self._finish(entry, Outcome(status="failed", message="cut short: the agent was restarted"), now=now)
        elif entry.boot_id != boot_id:
            output = {"boot_id": boot_id, "before": entry.boot_id}
            self._finish(entry, Outcome(status="done", message="the node is in another boot", output=output), now=now)
        elif entry.started_at is not None and abs(now - entry.started_at) >= REBOOT_GRACE:
            message = f"still in the same boot {REBOOT_GRACE} after it was asked for"
            self._finish(entry, Outcome(status="failed", message=message), now=now)

    def _finish(self, entry: Entry, outcome: Outcome, *, now: datetime) -> None:
        if self._found is not None and (outcome.checks or outcome.faults):
            try:
                self._found(outcome.checks, outcome.faults, now)
            except Exception as error:  # the command has its end all the same, and says what is missing
                log.exception("command %s: what it found is not kept", entry.command.id)
                outcome = replace(outcome, message=f"{outcome.message}; what it found could not be kept: {error}")
        with self._guard:
            entry.result = CommandResult(
                id=entry.command.id,
                status=outcome.status,
                message=outcome.message[:MAX_OUTPUT],
                finished_at=now,
                output=outcome.output,
            )
            entry.state = "finished"
            self._keep(entry)
        log.info("command %s: %s %s", entry.command.id, outcome.status, outcome.message[:200])

    def _keep(self, entry: Entry) -> bool:
        try:
            self._store.write(_name(entry.command.id), json.dumps(journal_entry.dump(entry)).encode())
        except OSError as error:
            log.error("command %s: journal not written: %s", entry.command.id, error)
            return False
        return True

    def _load(self, name: str) -> None:
        try:
            data = self._store.read(name)
            if data is not None:
                entry = journal_entry.parse(json.loads(data))
                self._entries[entry.command.id] = entry
                if entry.state == "told":
                    journal_entry.slim(entry)
        except (OSError, ValueError, KeyError, TypeError) as error:
            log.error("command journal: %s set aside, it is damaged: %s", name, error)
            self._store.set_aside(name)


def _name(id: str) -> str:
    return f"{FOLDER}/{hashlib.sha256(id.encode()).hexdigest()[:32]}.json"  # an id is the portal's: not a file name


def _aside(id: str) -> str:
    return f"aside/{_name(id).replace('/', '-')}"  # see Store.set_aside
