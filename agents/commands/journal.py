"""The command journal: each command is executed at most once, across crashes and reboots, and its result is kept until
the portal has it.

The journal entry is written to disk before the command starts. A reboot stays ``started`` until the boot ID changes,
which completes it. Any other command that is ``started`` when the agent starts was interrupted; it is reported as
failed and never repeated.
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

from agents.commands import journal_entry
from agents.commands.journal_entry import JournalEntry, State
from agents.host.store import Store
from agents.probes.finding import ResultSink
from kcover.faults.fault import Check, Command, CommandResult, Fault

log = logging.getLogger(__name__)

JOURNAL_FOLDER = "commands"
REBOOT_GRACE = timedelta(minutes=10)  # a reboot fails if the boot has not ended by then
RESULT_RETENTION = timedelta(days=7)  # an acknowledged result is kept this long after the command expired
MAX_RESULTS_PER_REPORT = 100
MAX_RESULT_BYTES_PER_REPORT = 512 << 10  # a report is at most 1 MiB
MAX_MESSAGE_LENGTH = 4096
LANES = journal_entry.LANES
OF_ONE_BOOT = ("reboot", "collect_evidence")  # kinds whose arguments may name the only boot in which they make sense


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The result of a command:

    ``status`` is ``done``, ``failed``, ``refused`` or ``expired``. ``checks`` and ``faults`` are its findings about the
    node.
    """

    status: str
    message: str = ""
    output: Mapping[str, Any] = field(default_factory=dict)
    checks: tuple[Check, ...] = ()
    faults: tuple[Fault, ...] = ()


class Executor(Protocol):
    """Acts on the node. Each method blocks until it is done, within its own time limit."""

    def reboot(self, args: Mapping[str, Any]) -> Outcome | None:
        """Request a reboot.

        Return None if it was requested (the next boot proves it), an outcome if it could not be requested.
        """

    def reset_gpu(self, args: Mapping[str, Any]) -> Outcome:
        """Reset one GPU; ``args`` has ``gpu_uuid``, ``pci`` or ``index``."""

    def run_check(self, args: Mapping[str, Any], *, expires_at: datetime) -> Outcome:
        """Run checks. The outcome is ``expired`` if they cannot start before ``expires_at``."""

    def collect_evidence(self, args: Mapping[str, Any]) -> Outcome:
        """Collect the bundle of evidence that ``args["bundle"]`` names; it is uploaded on its own."""


class Journal:
    """The recent commands of this node. Thread-safe; each lane executes one command at a time."""

    def __init__(self, store: Store, executor: Executor, *, sink: ResultSink | None = None) -> None:
        """``sink`` takes the check results and faults that commands found."""
        self._store, self._executor, self._sink = store, executor, sink
        self._lock = threading.RLock()
        self._lane_locks = {lane: threading.Lock() for lane in LANES}
        self._entries: dict[str, JournalEntry] = {}
        for name in store.names(JOURNAL_FOLDER):
            self._load(name)
        self._started_earlier = {id for id, entry in self._entries.items() if entry.state is State.STARTED}
        self._damaged = set(store.names("aside"))

    def offer(self, commands: Iterable[Command]) -> bool:
        """Take in commands. Return True if one is new.

        If a command is offered again after its result was acknowledged, the portal lacks the result: it is sent again.
        """
        is_new = False
        with self._lock:
            for command in commands:
                entry = self._entries.get(command.id)
                if entry is None:
                    self._entries[command.id] = JournalEntry(command=command, state=State.OFFERED)
                    is_new = True
                elif entry.state is State.ACKNOWLEDGED:
                    entry.resend = True
        return is_new

    def execute(self, *, clock: Callable[[], datetime], boot_id: str, lanes: Sequence[str] = LANES) -> int:
        """Execute the offered commands of these lanes in order. Return how many finished.

        Each lane may have a thread of its own, so that neither an hour of diagnostics nor a driver that hangs delays a
        reboot.
        """
        done = 0
        for lane in lanes:
            with self._lane_locks[lane]:
                with self._lock:
                    offered = [
                        entry for entry in self._entries.values() if entry.state is State.OFFERED and entry.lane == lane
                    ]
                for entry in offered:
                    outcome = self._attempt(entry, now=clock(), boot_id=boot_id)
                    if outcome is not None:
                        self._finish(entry, outcome, now=clock())
                        done += 1
        return done

    def results(self, *, now: datetime, boot_id: str, resend: bool = False) -> tuple[CommandResult, ...]:
        """The results to report, as many as fit into one report. Reboots are settled by the boot ID.

        ``resend``: include acknowledged results whose command is still offered. Do not set it for the very next report,
        because the portal's answer may have crossed the result.
        """
        with self._lock:
            for entry in list(self._entries.values()):
                if entry.state is State.STARTED:
                    self._settle_started(entry, now=now, boot_id=boot_id)
            wanted = [
                entry for entry in self._entries.values() if entry.state is State.FINISHED or (resend and entry.resend)
            ]
            return self._within_size_limit(wanted[:MAX_RESULTS_PER_REPORT])

    def acknowledge(self, ids: Iterable[str], *, now: datetime) -> None:
        """Mark these results as received by the portal."""
        with self._lock:
            for id in ids:
                entry = self._entries.get(id)
                if entry is not None:
                    entry.resend = False
                    if entry.state is State.FINISHED:
                        entry.state = State.ACKNOWLEDGED
                        if self._write(entry):
                            journal_entry.drop_output(entry)
            for id, entry in list(self._entries.items()):
                if entry.state is State.ACKNOWLEDGED and now - entry.command.expires_at > RESULT_RETENTION:
                    del self._entries[id]
                    self._store.delete(_name(id))

    def _within_size_limit(self, entries: Iterable[JournalEntry]) -> tuple[CommandResult, ...]:
        results: list[CommandResult] = []
        size = 0
        for entry in entries:
            result = self._with_output(entry)
            if result is None:
                continue
            size += len(json.dumps(journal_entry.dump_result(result)))
            if results and size > MAX_RESULT_BYTES_PER_REPORT:
                break
            results.append(result)
        return tuple(results)

    def _with_output(self, entry: JournalEntry) -> CommandResult | None:
        """The result with its output.

        After acknowledgement only the disk has the output. If it cannot be read, the result goes without.
        """
        if entry.state is State.ACKNOWLEDGED:
            with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
                return journal_entry.parse(json.loads(self._store.read(_name(entry.command.id)) or b"")).result
        return entry.result

    def _attempt(self, entry: JournalEntry, *, now: datetime, boot_id: str) -> Outcome | None:
        try:
            return self._execute(entry, now=now, boot_id=boot_id)
        except Exception as error:  # any error: a command that never ends would block the rescue of its node
            log.exception("command %s raised an error", entry.command.id)
            if entry.command.kind == "reboot" and entry.state is State.STARTED:
                return None  # the reboot may have been requested: the boot ID will show it
            return Outcome(status="failed", message=f"error in the agent: {type(error).__name__}: {error}")

    def _execute(self, entry: JournalEntry, *, now: datetime, boot_id: str) -> Outcome | None:
        command = entry.command
        if _quarantined(command.id) in self._damaged:
            return Outcome(
                status="failed", message="the journal entry is damaged: the command may have been executed before"
            )
        if command.expires_at <= now:
            return Outcome(status="expired", message=f"expired at {command.expires_at.isoformat()}")
        wanted_boot = command.args.get("boot_id")
        if command.kind in OF_ONE_BOOT and wanted_boot not in (None, "", boot_id):
            return Outcome(status="refused", message=f"the command is for boot {wanted_boot}, this is boot {boot_id}")
        actions: Mapping[str, Callable[[], Outcome | None]] = {
            "reboot": lambda: self._executor.reboot(command.args),
            "reset_gpu": lambda: self._executor.reset_gpu(command.args),
            "run_check": lambda: self._executor.run_check(command.args, expires_at=command.expires_at),
            "collect_evidence": lambda: self._executor.collect_evidence(command.args),
        }
        if command.kind not in actions:
            return Outcome(status="refused", message=f"unknown command {command.kind!r}")
        with self._lock:
            entry.state, entry.boot_id, entry.started_at = State.STARTED, boot_id, now
            if not self._write(entry):
                return Outcome(
                    status="refused", message="the journal cannot be written: the command could be executed twice"
                )
        log.info("command %s: %s started", command.id, command.kind)
        return actions[command.kind]()

    def _settle_started(self, entry: JournalEntry, *, now: datetime, boot_id: str) -> None:
        command = entry.command
        if command.kind != "reboot":
            if command.id in self._started_earlier:
                self._finish(entry, Outcome(status="failed", message="interrupted: the agent was restarted"), now=now)
        elif entry.boot_id != boot_id:
            output = {"boot_id": boot_id, "before": entry.boot_id}
            self._finish(entry, Outcome(status="done", message="the node has rebooted", output=output), now=now)
        elif entry.started_at is not None and abs(now - entry.started_at) >= REBOOT_GRACE:
            message = f"the node is still in the same boot {REBOOT_GRACE} after the reboot was requested"
            self._finish(entry, Outcome(status="failed", message=message), now=now)

    def _finish(self, entry: JournalEntry, outcome: Outcome, *, now: datetime) -> None:
        if self._sink is not None and (outcome.checks or outcome.faults):
            try:
                self._sink(outcome.checks, outcome.faults, now)
            except Exception as error:  # the command still ends, and its message says what is missing
                log.exception("command %s: could not record its findings", entry.command.id)
                outcome = replace(outcome, message=f"{outcome.message}; its findings could not be recorded: {error}")
        with self._lock:
            entry.result = CommandResult(
                id=entry.command.id,
                status=outcome.status,
                message=outcome.message[:MAX_MESSAGE_LENGTH],
                finished_at=now,
                output=outcome.output,
            )
            entry.state = State.FINISHED
            self._write(entry)
        log.info("command %s: %s %s", entry.command.id, outcome.status, outcome.message[:200])

    def _write(self, entry: JournalEntry) -> bool:
        try:
            self._store.write(_name(entry.command.id), json.dumps(journal_entry.dump(entry)).encode())
        except OSError as error:
            log.error("command %s: could not write the journal: %s", entry.command.id, error)
            return False
        return True

    def _load(self, name: str) -> None:
        try:
            data = self._store.read(name)
            if data is not None:
                entry = journal_entry.parse(json.loads(data))
                self._entries[entry.command.id] = entry
                if entry.state is State.ACKNOWLEDGED:
                    journal_entry.drop_output(entry)
        except (OSError, ValueError, KeyError, TypeError) as error:
            log.error("command journal: %s is damaged and was moved to the folder aside: %s", name, error)
            self._store.quarantine(name)


def _name(id: str) -> str:
    digest = hashlib.sha256(id.encode()).hexdigest()[:32]  # IDs come from the portal and are not safe file names
    return f"{JOURNAL_FOLDER}/{digest}.json"


def _quarantined(id: str) -> str:
    return f"aside/{_name(id).replace('/', '-')}"  # see Store.quarantine
